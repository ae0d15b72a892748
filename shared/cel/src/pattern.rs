//! Regular expressions of documents, with limits of size and cost.

use std::fmt;
use std::sync::Arc;

use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{Compiler, Config, WhichCaptures};
use regex_automata::util::syntax;

/// The maximum size of a compiled pattern, in bytes.
pub const MAX_PATTERN: usize = 64 << 10;
/// The maximum length of a pattern, in bytes. Parsing takes time before [`MAX_PATTERN`] applies.
pub const MAX_PATTERN_LENGTH: usize = 1024;
/// The help for a pattern that is too large.
pub const PATTERN_HELP: &str = "use small numbers in `{…}`, and `[A-Za-z0-9_]` instead of `\\w`";
const MAX_PATTERN_DEPTH: u32 = 64;

/// The number of bytes of a compiled pattern that one step produces.
const BYTES_PER_STEP: u64 = 3;
/// The number of steps of a class, whose ranges are copied and possibly negated.
const CLASS_STEPS: u64 = 100;
/// The number of steps of a class in a pattern that may ignore case. The compiler looks up the other cases of every
/// code point of the class.
const FOLD_STEPS: u64 = 100_000;

/// A compiled regular expression. For every pattern, the time to match is proportional to the length of the text.
#[derive(Clone)]
pub struct TextPattern {
    text: Arc<str>,
    machine: Arc<PikeVM>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("{0}")]
    Syntax(String),
    #[error("it has {0} bytes; the limit is {MAX_PATTERN_LENGTH}")]
    TooLong(usize),
    #[error("it takes more than {MAX_PATTERN} bytes when it is compiled")]
    TooLarge,
    /// The caller did not allow the number of steps.
    #[error("it takes too many steps to compile")]
    TooSlow,
}

impl TextPattern {
    /// Compiles a pattern. `allow` returns true if a number of steps is allowed. A step takes about 50 ns.
    pub fn compile(text: &str, mut allow: impl FnMut(u64) -> bool) -> Result<Self, PatternError> {
        if text.len() > MAX_PATTERN_LENGTH {
            return Err(PatternError::TooLong(text.len()));
        }
        if !allow(class_steps(text)) {
            return Err(PatternError::TooSlow);
        }
        let config = Config::new().nfa_size_limit(Some(MAX_PATTERN)).which_captures(WhichCaptures::None);
        let syntax = syntax::Config::new().nest_limit(MAX_PATTERN_DEPTH);
        let built = Compiler::new().configure(config).syntax(syntax).build(text);
        let nfa = built.map_err(|error| match error.size_limit() {
            Some(_) => PatternError::TooLarge,
            None => syntax_error(&error),
        })?;
        if !allow(nfa.memory_usage() as u64 / BYTES_PER_STEP) {
            return Err(PatternError::TooSlow);
        }
        let machine = PikeVM::new_from_nfa(nfa).map_err(|error| syntax_error(&error))?;
        Ok(Self { text: text.into(), machine: Arc::new(machine) })
    }

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

/// Returns the maximum number of steps to read the classes of a pattern. `\p{L}`, `[^a]` and each operation on a class
/// such as `[\w--a]` count. A group with flags may ignore case.
fn class_steps(text: &str) -> u64 {
    let count = |parts: &[&str]| parts.iter().map(|part| text.matches(part).count() as u64).sum::<u64>();
    let flags = text.replace("(?:", "(").contains("(?");
    let folded = if flags { count(&["[", r"\p", r"\P", "&&", "--", "~~"]) } else { 0 };
    CLASS_STEPS * count(&["[", r"\"]) + FOLD_STEPS * folded
}

/// Returns the last line of a parser error. The other lines contain a drawing of the pattern.
fn syntax_error(error: &dyn std::error::Error) -> PatternError {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    PatternError::Syntax(line.strip_prefix("error: ").unwrap_or(line).to_owned())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "it measures")]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_compiled_quickly_or_rejected() {
        let most = 1_000_000;
        type Row = (Vec<(String, usize)>, u64, String);
        let rows: Vec<Row> = serde_saphyr::from_str(include_str!("../tests/patterns.yaml")).unwrap();
        for (parts, least, refusal) in rows {
            let pattern: String = parts.iter().map(|(part, times)| part.repeat(*times)).collect();
            let start = std::time::Instant::now();
            let mut taken = 0;
            let made = TextPattern::compile(&pattern, |steps| {
                taken += steps;
                taken <= most
            });
            let shown: String = pattern.chars().take(40).collect();
            let refused = made.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains(&refusal) && refused.is_empty() == refusal.is_empty(), "{shown}: {refused}");
            assert!(taken >= least, "{shown}: {taken}");
            assert!(start.elapsed() < std::time::Duration::from_secs(10), "{shown}: {:?}", start.elapsed());
        }
    }

    #[test]
    fn patterns_match_anywhere_at_a_cost_by_the_text() {
        let compile = |text: &str| TextPattern::compile(text, |_| true).unwrap();
        let pattern = compile("b+é");
        assert!(pattern.is_match("abbéc") && !pattern.is_match("abc"));
        assert_eq!(pattern.match_steps(999) * 2, pattern.match_steps(1_999));
        let start = std::time::Instant::now();
        assert!(!compile("(a|aa)+$").is_match(&("a".repeat(100_000) + "b")));
        assert!(!compile("(?:[01]*1[01]{100}){2}x").is_match(&"0110".repeat(2_000)));
        assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
    }
}
