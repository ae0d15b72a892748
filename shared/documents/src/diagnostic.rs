//! Errors and warnings of documents, each with a stable code, a position and a fix.
//!
//! Every check of this crate creates [`Diagnostic`]s and collects them in [`Diagnostics`], so that one pass over a
//! document reports as many errors as possible. This module formats them, and callers print them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, SourceCode};

use crate::cel::nearest;
use crate::source::{LineColumn, SourceText};

/// The code of a text that may be a secret, in place of the name of one.
pub(crate) const SECRET_NAME: &str = "secret-name";
/// The maximum length of a drawn line. Longer lines are cropped.
const MAX_DRAWN: usize = 240;

/// The maximum number of characters of a message or a help.
const MAX_MESSAGE: usize = 600;

/// The maximum number of reported errors of a document, and of reported warnings.
pub const MAX_REPORTED: usize = 100;

/// The maximum number of diagnostics of a document that suggest a name. A search can take several milliseconds.
const MAX_SUGGESTIONS: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Error,
    /// The document is accepted, but may not have the effect that its author expects.
    Warning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiagnosticStyle {
    /// Unicode lines, no colour.
    Plain,
    Coloured,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The code of the error in kebab-case. A released code is never renamed.
    pub code: &'static str,
    pub severity: Severity,
    /// A description of the error as a sentence without a full stop.
    pub message: String,
    pub help: Option<String>,
    /// The document to which positions refer.
    pub source: Arc<SourceText>,
    /// The position. `None` means the whole document.
    pub at: Option<LineColumn>,
    /// The number of characters to underline from `at`, at most to the end of the line.
    pub length: usize,
    /// Related positions in the same document, each with a label.
    pub related: Vec<(LineColumn, String)>,
}

impl Diagnostic {
    /// Creates an error at a position. Its length is that of the word at the position.
    pub fn error(
        code: &'static str,
        source: &Arc<SourceText>,
        at: impl Into<Option<LineColumn>>,
        message: impl Into<String>,
    ) -> Self {
        let at = at.into();
        let length = at.map_or(0, |at| source.word_length(at));
        Self {
            code,
            severity: Severity::Error,
            message: capped(message.into()),
            help: None,
            source: Arc::clone(source),
            at,
            length,
            related: Vec::new(),
        }
    }

    pub fn warning(
        code: &'static str,
        source: &Arc<SourceText>,
        at: impl Into<Option<LineColumn>>,
        message: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, source, at, message) }
    }

    /// Sets the help, which describes a fix.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(capped(help.into()));
        self
    }

    /// Sets the help to `did you mean …?` if one of `candidates` is similar to `name`. Otherwise lists at most twelve
    /// candidates.
    #[must_use]
    pub fn suggest<'a>(self, name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Self {
        let candidates: Vec<&str> = candidates.into_iter().collect();
        if let Some(near) = nearest(name, candidates.iter().copied()) {
            return self.help(format!("did you mean `{near}`?"));
        }
        if candidates.is_empty() {
            return self;
        }
        let (shown, rest) = candidates.split_at(candidates.len().min(12));
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        self.help(format!("expected `{}`{more}", shown.join("`, `")))
    }

    /// Sets the number of underlined characters.
    #[must_use]
    pub fn length(mut self, length: usize) -> Self {
        self.length = length;
        self
    }

    #[must_use]
    pub fn related(mut self, at: LineColumn, what: impl Into<String>) -> Self {
        self.related.push((at, what.into()));
        self
    }

    /// Returns one line without the help: `file:line:column: error[code]: message`.
    pub fn plain(&self) -> String {
        let place = match self.at.map(|at| self.source.author(at)) {
            Some(at) => format!("{}:{}:{}", self.source.name, at.line, at.column),
            None => self.source.name.clone(),
        };
        let severity = if self.severity == Severity::Error { "error" } else { "warning" };
        format!("{place}: {severity}[{}]: {}", self.code, self.message.replace('\n', " "))
    }

    /// Returns several lines: file and position, the surrounding lines, a label and the help. The surrounding lines are omitted
    /// for a position far to the right in a very long line, and if a secret may be in them.
    pub fn drawn(&self, drawing: DiagnosticStyle) -> String {
        let around = |at: LineColumn| at.line.saturating_sub(1)..=at.line.saturating_add(1);
        let places = self.at.into_iter().chain(self.related.iter().map(|(at, _)| *at));
        let long = |line: u32| self.source.line(line).is_some_and(|line| line.len() > MAX_DRAWN);
        let is_hidden = self.code == SECRET_NAME;
        if !is_hidden && !places.clone().flat_map(around).any(long) {
            return self.rendered(drawing);
        }
        if is_hidden || places.clone().any(|at| at.column as usize > MAX_DRAWN / 2) {
            let help = self.help.as_ref().map_or(String::new(), |help| format!("  help: {help}\n"));
            return format!("{}\n{help}", self.plain());
        }
        let cropped: Vec<String> = self.source.lines().map(|line| line.chars().take(MAX_DRAWN).collect()).collect();
        let source = SourceText::new(self.source.name.clone(), cropped.join("\n"));
        Self { source, length: self.length.min(MAX_DRAWN / 4), ..self.clone() }.rendered(drawing)
    }

    fn rendered(&self, drawing: DiagnosticStyle) -> String {
        let theme = match drawing {
            DiagnosticStyle::Plain => GraphicalTheme::unicode_nocolor(),
            DiagnosticStyle::Coloured => GraphicalTheme::unicode(),
        };
        let mut text = String::new();
        let drawn = GraphicalReportHandler::new_themed(theme)
            .with_links(false)
            .with_width(100)
            .with_context_lines(1)
            .render_report(&mut text, self);
        if drawn.is_err() { self.plain() } else { text }
    }
}

/// The number of warnings with one code that are reported one by one.
const MAX_ALIKE: usize = 5;
/// The number of lines that a warning names for others with its code.
const MAX_LINES: usize = 10;

/// Returns the help for a text that is a value of another type.
pub(crate) fn unquoted(text: &str) -> String {
    format!("without quotes: `{text}`, and `\"@{{NAME[yaml]}}\"` in place of `\"@{{NAME}}\"`")
}

/// Returns warnings of one document without repetitions: of more than [`MAX_ALIKE`] with the same code, the first one has the
/// number and the lines of the others.
pub(crate) fn grouped(warnings: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let mut lines: BTreeMap<&'static str, Vec<u32>> = BTreeMap::new();
    for warning in &warnings {
        let line = warning.at.map_or(0, |at| warning.source.author(at).line);
        lines.entry(warning.code).or_default().push(line);
    }
    let mut kept = Vec::new();
    for warning in warnings {
        match lines.get(warning.code).filter(|lines| lines.len() > MAX_ALIKE) {
            None => kept.push(warning),
            Some(lines) if !kept.iter().any(|one: &Diagnostic| one.code == warning.code) => {
                let others: BTreeSet<u32> = lines[1..].iter().copied().collect();
                let named: Vec<String> = others.iter().take(MAX_LINES).map(u32::to_string).collect();
                let rest = if others.len() > MAX_LINES { " and others" } else { "" };
                let message = format!(
                    "{}; {} more warnings [{}] are about the lines {}{rest}",
                    warning.message,
                    lines.len() - 1,
                    warning.code,
                    named.join(", ")
                );
                kept.push(Diagnostic { message, ..warning });
            }
            Some(_) => {}
        }
    }
    kept
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

impl miette::Diagnostic for Diagnostic {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.at.map(|_| &*self.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let at = self.at?;
        let (start, length) = self.source.bytes(at, self.length);
        let own = LabeledSpan::new_primary_with_span(Some("here".to_owned()), (start, length));
        let related = self.related.iter().map(|(at, what)| {
            let (start, length) = self.source.bytes(*at, self.source.word_length(*at));
            LabeledSpan::new_with_span(Some(what.clone()), (start, length))
        });
        Some(Box::new(std::iter::once(own).chain(related)))
    }
}

/// The errors and warnings of a document. As the error of a function, it contains at least one error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Adds a diagnostic. After [`MAX_REPORTED`] of one severity, a final one states that there are more, and further
    /// ones are omitted.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        match self.0.iter().filter(|it| it.severity == diagnostic.severity).count() {
            0..MAX_REPORTED => self.0.push(diagnostic),
            MAX_REPORTED => {
                let message = format!("there is more like this; the first {MAX_REPORTED} are reported");
                let more = Diagnostic { code: "more", message, help: None, related: Vec::new(), ..diagnostic };
                self.0.push(more.help("fix these and check again"));
            }
            _ => {}
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() > MAX_REPORTED && self.0.iter().filter(|it| it.severity == Severity::Error).count() > MAX_REPORTED
    }

    /// Adds a suggestion to `diagnostic`, unless there are already many diagnostics.
    pub(crate) fn suggest<'a>(
        &self,
        diagnostic: Diagnostic,
        name: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Diagnostic {
        if self.0.len() < MAX_SUGGESTIONS { diagnostic.suggest(name, candidates) } else { diagnostic }
    }

    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }

    /// Sorts the diagnostics by file and position.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.0.sort_by(|a, b| (&a.source.name, a.at).cmp(&(&b.source.name, b.at)));
        self
    }

    /// Returns the value with the warnings.
    ///
    /// # Errors
    /// Returns all diagnostics, sorted, if one of them is an error.
    pub fn or<T>(self, value: T) -> Result<(T, Self), Self> {
        let sorted = self.sorted();
        if sorted.has_errors() { Err(sorted) } else { Ok((value, sorted)) }
    }

    /// Returns one line per diagnostic.
    pub fn plain(&self) -> String {
        self.0.iter().map(|d| d.plain() + "\n").collect()
    }

    pub fn drawn(&self, drawing: DiagnosticStyle) -> String {
        self.0.iter().map(|d| d.drawn(drawing)).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let help = |help: &String| format!("\n  help: {help}");
        let texts = self.0.iter().map(|one| one.plain() + &one.help.as_ref().map(help).unwrap_or_default());
        f.write_str(&texts.collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Diagnostics {}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl Deref for Diagnostics {
    type Target = [Diagnostic];

    fn deref(&self) -> &[Diagnostic] {
        &self.0
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<I: IntoIterator<Item = Diagnostic>>(&mut self, diagnostics: I) {
        diagnostics.into_iter().for_each(|diagnostic| self.push(diagnostic));
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Shortens a text to [`MAX_MESSAGE`] characters. Messages quote documents, whose texts can be of any length.
fn capped(text: String) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => text[..end].to_owned() + "…",
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_bytes_are_inverse() {
        let source = SourceText::new("f", "a: é\r\n  bc: \"x y\"\n\nlast");
        for (byte, character) in source.text.char_indices() {
            if character != '\n' && character != '\r' {
                assert_eq!(source.bytes(source.place(byte), 1), (byte, character.len_utf8()), "{byte}");
            }
        }
        let at = |line, column| LineColumn { line, column };
        assert_eq!(source.place(usize::MAX), at(4, 5));
        assert_eq!(source.bytes(at(9, 9), 5), (source.text.len(), 0));
        assert_eq!(source.bytes(at(1, 99), 5), (5, 0));
        assert_eq!(source.word_length(at(2, 3)), 2, "a key without its colon");
        assert_eq!(source.word_length(at(2, 7)), 5, "a quoted text");
        assert_eq!(source.word_length(at(3, 1)), 0, "an empty line");
    }

    #[test]
    fn equal_warnings_are_one() {
        let source = SourceText::new("f", "a\n".repeat(300));
        let warning = |code, line| {
            let at = LineColumn { line, column: 1 };
            Diagnostic::warning(code, &source, at, format!("`u{line}` is wrong"))
        };
        let few: Vec<Diagnostic> = (1..=5).map(|line| warning("few", line)).collect();
        let all: Vec<Diagnostic> = few.iter().cloned().chain((1..=200).map(|line| warning("many", line))).collect();
        let kept = grouped(all);
        assert_eq!((kept.len(), &kept[..5]), (6, &few[..]));
        assert_eq!(
            kept[5].plain(),
            "f:1:1: warning[many]: `u1` is wrong; 199 more warnings [many] are about the lines 2, 3, 4, 5, 6, 7, 8, 9, 10, \
             11 and others"
        );
    }

    #[test]
    fn the_first_hundred_of_each_severity_are_reported() {
        let source = SourceText::new("f", "a\n".repeat(300));
        let mut all = Diagnostics::default();
        for line in 1..=300 {
            let at = LineColumn { line, column: 1 };
            all.push(Diagnostic::warning("w", &source, at, "looks wrong"));
            all.push(Diagnostic::error("e", &source, at, "wrong"));
        }
        assert!(all.has_errors());
        assert_eq!(all.len(), 2 * (MAX_REPORTED + 1));
        let last: Vec<String> = all.iter().rev().take(2).map(Diagnostic::plain).collect();
        assert_eq!(
            last,
            [
                "f:101:1: error[more]: there is more like this; the first 100 are reported",
                "f:101:1: warning[more]: there is more like this; the first 100 are reported"
            ]
        );
    }

    #[test]
    fn lines_end_as_in_yaml() {
        let source = SourceText::new("f", "a\rb\r\nc\n\rd");
        assert_eq!(source.lines().collect::<Vec<_>>(), ["a", "b", "c", "", "d"]);
        assert_eq!(source.starts, [0, 2, 5, 7, 8]);
        assert_eq!(source.place(8), LineColumn { line: 5, column: 1 });
        let wrong = Diagnostic::error("x", &source, LineColumn { line: 5, column: 1 }, "wrong");
        assert!(wrong.drawn(DiagnosticStyle::Plain).contains("5 │ d"), "{}", wrong.drawn(DiagnosticStyle::Plain));
    }

    #[test]
    fn lines_that_are_too_long_are_cropped() {
        let source = SourceText::new("f", format!("{} {}\n", "a".repeat(50), "b".repeat(5000)));
        let near = Diagnostic::error("x", &source, LineColumn { line: 1, column: 52 }, "wrong");
        assert!(near.drawn(DiagnosticStyle::Plain).lines().all(|line| line.chars().count() < 300));
        let far = Diagnostic::error("x", &source, LineColumn { line: 1, column: 4000 }, "wrong").help("right");
        assert_eq!(far.drawn(DiagnosticStyle::Plain), "f:1:4000: error[x]: wrong\n  help: right\n");
    }
}
