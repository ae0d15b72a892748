//! The text of a document, with its lines and positions.

use std::sync::Arc;

use miette::{MietteError, SourceCode, SourceSpan, SpanContents};
use serde::Deserialize;

/// The start of the header line, which maps the lines of a stored document to those of its author's file.
pub(crate) const HEADER: &str = "# ebb:lines ";
/// The maximum number of runs in the header line. The last one covers the rest of the document.
pub(crate) const MAX_RUNS: usize = 10_000;

/// A position in a document. Line and column count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub struct LineColumn {
    pub line: u32,
    pub column: u32,
}

/// A document's text and its name in messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceText {
    /// The path as the user wrote it, `<stdin>`, or `name@version` for a stored plugin.
    pub name: String,
    /// The text before `@{…}` is expanded. Positions refer to it.
    pub text: String,
    /// The byte offset of the start of each line.
    pub(crate) starts: Vec<usize>,
    /// The line runs of the header line. Empty for a text without one.
    runs: Vec<LineRun>,
}

impl SourceText {
    /// Creates a source from its name and text.
    ///
    /// As in YAML, a line ends with a line feed, a carriage return, or both.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        // A carriage return alone becomes a line feed, so that every reader counts the same lines.
        let text: String = text.into();
        let text = text.split("\r\n").map(|part| part.replace('\r', "\n")).collect::<Vec<_>>().join("\r\n");
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(end, _)| end + 1)).collect();
        let runs = runs(&text);
        Arc::new(Self { name: name.into(), text, starts, runs })
    }

    /// Returns the position in the file of the document's author. It differs from `at` only if the document was
    /// serialized again before it was stored.
    pub fn author(&self, at: LineColumn) -> LineColumn {
        let after = self.runs.partition_point(|run| run.own <= at.line);
        after.checked_sub(1).and_then(|last| self.runs.get(last)).map_or(at, |run| run.place(at))
    }

    /// Returns all lines without their line ends.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        (0..self.starts.len()).filter_map(|number| self.nth(number))
    }

    /// Returns the line with this number, from 0, without its line end.
    fn nth(&self, number: usize) -> Option<&str> {
        let start = *self.starts.get(number)?;
        let end = self.starts.get(number + 1).copied().unwrap_or(self.text.len());
        Some(self.text[start..end].trim_end_matches(['\n', '\r']))
    }

    /// Returns the line with this number, from 1, without its line end.
    pub fn line(&self, line: u32) -> Option<&str> {
        self.nth((line as usize).checked_sub(1)?)
    }

    /// Returns the position of a byte of the text. For a byte past the end, returns the position of the end.
    pub fn place(&self, byte: usize) -> LineColumn {
        let byte = self.text.floor_char_boundary(byte);
        let line = self.starts.partition_point(|&start| start <= byte);
        let start = self.starts.get(line - 1).copied().unwrap_or_default();
        let column = self.text[start..byte].chars().count() + 1;
        LineColumn { line: u32::try_from(line).unwrap_or(u32::MAX), column: u32::try_from(column).unwrap_or(u32::MAX) }
    }

    /// Returns the first byte and the number of bytes of `characters` characters from a position on, within its line.
    pub fn bytes(&self, at: LineColumn, characters: usize) -> (usize, usize) {
        let number = (at.line as usize).saturating_sub(1);
        let (Some(start), Some(line)) = (self.starts.get(number), self.nth(number)) else {
            return (self.text.len(), 0);
        };
        let column = (at.column as usize).saturating_sub(1);
        let from = line.char_indices().nth(column).map_or(line.len(), |(byte, _)| byte);
        let rest = &line[from..];
        let length = rest.char_indices().nth(characters).map_or(rest.len(), |(byte, _)| byte);
        (start + from, length)
    }

    /// Returns the text of a number or boolean at a position. If the position contains another text, returns the value
    /// as JSON.
    pub(crate) fn scalar(&self, at: LineColumn, value: &serde_json::Value) -> String {
        let (start, length) = self.bytes(at, self.word_length(at));
        let written = self.text.get(start..start + length).unwrap_or_default();
        let plain = !written.is_empty() && !written.starts_with(['@', '*', '&', '!', '"', '\'']);
        if plain { written.to_owned() } else { value.to_string() }
    }

    /// Returns the number of characters of the word at a position: a quoted text with its quotes, or the text up to a
    /// blank or a YAML delimiter.
    pub(crate) fn word_length(&self, at: LineColumn) -> usize {
        let (start, length) = self.bytes(at, usize::MAX);
        let rest = &self.text[start..start + length];
        let mut characters = rest.chars();
        match characters.next() {
            Some(quote @ ('"' | '\'')) => characters.position(|c| c == quote).map_or(rest.chars().count(), |n| n + 2),
            Some(_) => {
                let word = rest.chars().take_while(|c| !c.is_whitespace() && !",]}".contains(*c)).count();
                if rest.chars().nth(word.saturating_sub(1)) == Some(':') && word > 1 { word - 1 } else { word.max(1) }
            }
            None => 0,
        }
    }
}

/// A run of lines that are consecutive in the author's file too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineRun {
    /// The first line of the run.
    pub(crate) own: u32,
    pub(crate) author: u32,
    pub(crate) shift: i64,
}

impl LineRun {
    /// Returns the position in the author's file of a position in this run.
    pub(crate) fn place(self, at: LineColumn) -> LineColumn {
        let line = self.author.saturating_add(at.line.saturating_sub(self.own));
        let column = u32::try_from((i64::from(at.column) + self.shift).max(1)).unwrap_or(u32::MAX);
        LineColumn { line, column }
    }
}

/// Returns the runs of the header line. Returns none for a text without a header line.
fn runs(text: &str) -> Vec<LineRun> {
    let Some(header) = text.lines().next().and_then(|line| line.strip_prefix(HEADER)) else { return Vec::new() };
    let run = |text: &str| {
        let mut parts = text.split(':');
        let own = parts.next()?.parse().ok()?;
        let author = parts.next()?.parse().ok()?;
        Some(LineRun { own, author, shift: parts.next()?.parse().ok()? })
    };
    header.split(',').take(MAX_RUNS).map_while(run).collect()
}

/// Returns the text without its header line.
pub(crate) fn body(text: &str) -> &str {
    text.strip_prefix(HEADER).map_or(text, |rest| rest.split_once('\n').map_or("", |(_, body)| body))
}

impl SourceCode for SourceText {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        context_lines_before: usize,
        context_lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let inner = self.text.read_span(span, context_lines_before, context_lines_after)?;
        Ok(Box::new(miette::MietteSpanContents::new_named(
            self.name.clone(),
            inner.data(),
            *inner.span(),
            inner.line(),
            inner.column(),
            inner.line_count(),
        )))
    }
}
