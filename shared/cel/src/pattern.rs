//! Regular expressions of documents, with limits of size and cost.

use std::fmt;
use std::sync::Arc;

use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{Compiler, Config, WhichCaptures};
use regex_automata::util::syntax;
use regex_syntax::ast::{self, Ast, Visitor};

/// The maximum size of a compiled pattern, in bytes.
pub const MAX_PATTERN: usize = 64 << 10;
/// The maximum length of a pattern, in bytes. Parsing takes time before [`MAX_PATTERN`] applies.
pub const MAX_PATTERN_LENGTH: usize = 1024;
/// The help for a pattern that is too large.
pub const PATTERN_HELP: &str = "use small numbers in `{…}`, and `[A-Za-z0-9_]` instead of `\\w`";
/// The maximum nesting of groups and classes.
const MAX_PATTERN_DEPTH: u32 = 64;

/// Bytes of a compiled pattern that one step produces.
const BYTES_PER_STEP: u64 = 3;
/// Steps of a Unicode class such as `\p{L}`, whose ranges are copied and perhaps negated.
const CLASS_STEPS: u64 = 2_000;
/// Code points whose other cases one step finds.
const FOLDED_PER_STEP: u64 = 5;
/// Code points of the largest class.
const CODE_POINTS: u64 = 0x11_0000;

/// A compiled regular expression. Matching takes time in proportion to the text, whatever the pattern is.
#[derive(Clone)]
pub struct TextPattern {
    text: Arc<str>,
    machine: Arc<PikeVM>,
}

/// A text that is not a usable pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("{0}")]
    Syntax(String),
    /// The pattern is longer than [`MAX_PATTERN_LENGTH`].
    #[error("it has {0} bytes; the limit is {MAX_PATTERN_LENGTH}")]
    TooLong(usize),
    /// The compiled pattern is larger than [`MAX_PATTERN`].
    #[error("it takes more than {MAX_PATTERN} bytes when it is compiled")]
    TooLarge,
    /// The work budget is exhausted.
    #[error("it exceeds the work budget of the document")]
    NoBudget,
}

impl TextPattern {
    /// Compiles a pattern. `allow` decides if a number of steps may be spent.
    pub(crate) fn compile(text: &str, mut allow: impl FnMut(u64) -> bool) -> Result<Self, PatternError> {
        if text.len() > MAX_PATTERN_LENGTH {
            return Err(PatternError::TooLong(text.len()));
        }
        let mut parser = ast::parse::ParserBuilder::new().nest_limit(MAX_PATTERN_DEPTH).build();
        let tree = parser.parse(text).map_err(|error| syntax_error(&error))?;
        if !allow(pattern_cost(&tree)) {
            return Err(PatternError::NoBudget);
        }
        let config = Config::new().nfa_size_limit(Some(MAX_PATTERN)).which_captures(WhichCaptures::None);
        let syntax = syntax::Config::new().nest_limit(MAX_PATTERN_DEPTH);
        let built = Compiler::new().configure(config).syntax(syntax).build(text);
        let size = built.as_ref().map_or(MAX_PATTERN, |nfa| nfa.memory_usage()) as u64;
        if !allow(size / BYTES_PER_STEP) {
            return Err(PatternError::NoBudget);
        }
        let nfa = built.map_err(|error| match error.size_limit() {
            Some(_) => PatternError::TooLarge,
            None => syntax_error(&error),
        })?;
        let machine = PikeVM::new_from_nfa(nfa).map_err(|error| syntax_error(&error))?;
        Ok(Self { text: text.into(), machine: Arc::new(machine) })
    }

    /// Returns true if the pattern matches a part of the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.machine.is_match(&mut self.machine.create_cache(), text)
    }

    /// Returns the maximum number of steps to match a text with this many bytes.
    pub fn match_steps(&self, bytes: usize) -> u64 {
        (self.machine.get_nfa().states().len() as u64).saturating_mul(bytes as u64 + 1)
    }
}

impl fmt::Debug for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TextPattern").field(&self.text).finish()
    }
}

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// Returns the last line of a parser error. The other lines draw the pattern.
fn syntax_error(error: &dyn std::error::Error) -> PatternError {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    PatternError::Syntax(line.strip_prefix("error: ").unwrap_or(line).to_owned())
}

/// Returns the maximum number of steps to translate a pattern. Classes are copied by range. In a pattern without case,
/// the other cases of every code point of a class are looked up.
fn pattern_cost(tree: &Ast) -> u64 {
    let Ok(price) = ast::visit(tree, PatternCost::default());
    price.plain.saturating_add(if price.ignores_case { price.folded / FOLDED_PER_STEP } else { 0 })
}

#[derive(Default)]
struct PatternCost {
    plain: u64,
    folded: u64,
    ignores_case: bool,
}

impl PatternCost {
    fn class(&mut self, steps: u64, code_points: u64) {
        self.plain = self.plain.saturating_add(steps);
        self.folded = self.folded.saturating_add(code_points);
    }

    fn flags(&mut self, flags: &ast::Flags) {
        self.ignores_case |= flags.flag_state(ast::Flag::CaseInsensitive) == Some(true);
    }
}

impl Visitor for PatternCost {
    type Output = Self;
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<Self, Self::Err> {
        Ok(self)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        self.plain += 1;
        match ast {
            Ast::Flags(flags) => self.flags(&flags.flags),
            Ast::Group(group) => group.flags().into_iter().for_each(|flags| self.flags(flags)),
            Ast::ClassUnicode(_) => self.class(CLASS_STEPS, CODE_POINTS),
            Ast::ClassPerl(_) => self.class(CLASS_STEPS, 0),
            Ast::ClassBracketed(class) if class.negated => self.class(CLASS_STEPS, 0),
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), Self::Err> {
        use ast::ClassSetItem as Item;
        match item {
            Item::Empty(_) | Item::Literal(_) | Item::Union(_) => self.class(1, 1),
            Item::Range(range) => {
                self.class(1, u64::from(u32::from(range.end.c).saturating_sub(u32::from(range.start.c))) + 1);
            }
            Item::Ascii(class) => self.class(1, if class.negated { CODE_POINTS } else { 128 }),
            Item::Unicode(_) | Item::Perl(_) => self.class(CLASS_STEPS, CODE_POINTS),
            Item::Bracketed(class) => {
                self.class(CLASS_STEPS, if class.negated { CODE_POINTS } else { 0 });
            }
        }
        Ok(())
    }

    fn visit_class_set_binary_op_pre(&mut self, _: &ast::ClassSetBinaryOp) -> Result<(), Self::Err> {
        self.class(CLASS_STEPS, CODE_POINTS);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> (Result<TextPattern, PatternError>, u64) {
        let mut taken = 0;
        let made = TextPattern::compile(text, |steps| {
            taken += steps;
            true
        });
        (made, taken)
    }

    #[test]
    fn what_is_slow_costs_much_and_what_is_common_costs_little() {
        for (pattern, least, most) in [
            ("[a-z][a-z0-9-]{0,62}", 100, 3_000),
            ("(?i)^[a-z0-9-]+$", 10, 3_000),
            (r"^\w+$", 1_000, 20_000),
            ("[^/]+", 1_000, 20_000),
            (r"(?i)[ -\x{10FFFF}]", 200_000, 300_000),
            (r"(?i)\p{any}", 200_000, 300_000),
            (r"(?i)[[^a]]", 200_000, 300_000),
            (r"(?i)[[:^alpha:]]", 200_000, 300_000),
            (r"(?i:[\W])", 200_000, 300_000),
        ] {
            let (made, steps) = steps(pattern);
            assert!(made.is_ok(), "{pattern}: {made:?}");
            assert!((least..=most).contains(&steps), "{pattern}: {steps}");
        }
    }

    #[test]
    fn patterns_are_small() {
        for (pattern, wrong) in [
            (r"\w{900}".to_owned(), PatternError::TooLarge),
            ("((a{1,100}){1,100}){1,100}".to_owned(), PatternError::TooLarge),
            ("a".repeat(1025), PatternError::TooLong(1025)),
            ("(a".to_owned(), PatternError::Syntax("unclosed group".to_owned())),
            (r"\p{nothing}".to_owned(), PatternError::Syntax("Unicode property not found".to_owned())),
        ] {
            let (made, steps) = steps(&pattern);
            assert_eq!(made, Err(wrong), "{pattern}");
            assert!(steps < 50_000, "{pattern}: {steps}");
        }
        assert_eq!(TextPattern::compile(r"\w{900}", |_| false), Err(PatternError::NoBudget));
    }

    #[test]
    fn matching_is_anywhere_and_costs_by_the_text() {
        let pattern = steps("b+é").0.unwrap();
        assert!(pattern.is_match("abbéc") && !pattern.is_match("abc"));
        assert_eq!(pattern.match_steps(999) * 2, pattern.match_steps(1_999));
    }
}
