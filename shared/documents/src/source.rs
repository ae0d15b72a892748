//! The text of a document: its lines, and where a place is in it.

use std::sync::Arc;

use miette::{MietteError, SourceCode, SourceSpan, SpanContents};

use crate::load::lines;
use crate::model::LineColumn;

/// A document's text and its name in messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceText {
    /// The path as it was given, `<stdin>`, or `name@version` for a stored plugin.
    pub name: String,
    /// The text before `@{…}` is expanded: places refer to it.
    pub text: String,
    /// The byte at which each line begins.
    pub(crate) starts: Vec<usize>,
    /// The lines in the file of its author, if it was written again.
    runs: Vec<lines::LineRun>,
}

impl SourceText {
    /// A text and what to call it.
    ///
    /// A line ends as it does for YAML: by a line feed, a carriage return, or both.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        let text: String = text.into();
        let ends = text.match_indices(['\n', '\r']).map(|(end, _)| end + 1);
        let starts = ends.filter(|&start| !text[start - 1..].starts_with("\r\n"));
        let starts = std::iter::once(0).chain(starts).collect();
        let runs = lines::runs(&text);
        Arc::new(Self { name: name.into(), text, starts, runs })
    }

    /// Returns the place in the file of the document's author. It is the same unless the document was written again
    /// before it was stored.
    pub fn author(&self, at: LineColumn) -> LineColumn {
        let after = self.runs.partition_point(|run| run.begins() <= at.line);
        after.checked_sub(1).and_then(|last| self.runs.get(last)).map_or(at, |run| run.place(at))
    }

    /// All lines without their ends.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        (0..self.starts.len()).filter_map(|number| self.nth(number))
    }

    /// The line with this number, from 0, without its end.
    fn nth(&self, number: usize) -> Option<&str> {
        let start = *self.starts.get(number)?;
        let end = self.starts.get(number + 1).copied().unwrap_or(self.text.len());
        Some(self.text[start..end].trim_end_matches(['\n', '\r']))
    }

    /// The line, from 1, without its line end.
    pub fn line(&self, line: u32) -> Option<&str> {
        self.nth((line as usize).checked_sub(1)?)
    }

    /// The place of a byte of the text; past the end, the end.
    pub fn place(&self, byte: usize) -> LineColumn {
        let byte = self.text.floor_char_boundary(byte);
        let line = self.starts.partition_point(|&start| start <= byte);
        let start = self.starts.get(line - 1).copied().unwrap_or_default();
        let column = self.text[start..byte].chars().count() + 1;
        LineColumn { line: u32::try_from(line).unwrap_or(u32::MAX), column: u32::try_from(column).unwrap_or(u32::MAX) }
    }

    /// First byte and number of bytes of so many characters from a place on, within its line.
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

    /// The text of a number or boolean at a place, as it is written; if it is not written there, as JSON.
    pub(crate) fn scalar(&self, at: LineColumn, value: &serde_json::Value) -> String {
        let (start, length) = self.bytes(at, self.word_length(at));
        let written = self.text.get(start..start + length).unwrap_or_default();
        let plain = !written.is_empty() && !written.starts_with(['@', '*', '&', '!', '"', '\'']);
        if plain { written.to_owned() } else { value.to_string() }
    }

    /// Characters of the word at a place: a quoted text with its quotes, or up to a blank or a YAML delimiter.
    pub fn word_length(&self, at: LineColumn) -> usize {
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
