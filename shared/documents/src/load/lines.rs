//! Maps the lines of stored and embedded texts to those of the author's file.
//!
//! A document with `@{…}`, or one of several in a file, is serialized again before it is stored, so its lines change. A
//! header line, which is a comment, maps them. For each run of lines, it contains the first line, the author's line,
//! and the number of columns by which the author's lines begin farther right. Digests ignore the header line.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::load::yaml::{self, YamlNode, YamlValue};
use crate::source::{HEADER, LineColumn, LineRun, MAX_RUNS, SourceText};

/// Returns the text of a serialized document with its header line.
pub(crate) fn mapped(source: &Arc<SourceText>, node: &YamlNode, text: String) -> String {
    let below = SourceText::new("stored", format!("#\n{text}"));
    let Some(again) = yaml::parse(&below).ok().and_then(|mut documents| documents.pop()) else { return text };
    let mut places = BTreeMap::new();
    pair(source, node, &again, &mut places);
    let mut runs: Vec<LineRun> = Vec::new();
    for (own, (column, author)) in places {
        let shift = i64::from(author.column) - i64::from(column);
        let known = runs.last().map(|run| run.place(LineColumn { line: own, column }));
        if known != Some(author) && runs.len() < MAX_RUNS {
            runs.push(LineRun { own, author: author.line, shift });
        }
    }
    let runs: Vec<String> = runs.iter().map(|run| format!("{}:{}:{}", run.own, run.author, run.shift)).collect();
    let header = format!("{HEADER}{}\n", runs.join(","));
    // A document that is too large with its header line is stored without it.
    if header.len() + text.len() > yaml::MAX_DOCUMENT { text } else { header + &text }
}

/// Adds the author's position of the first key or value in each line.
fn pair(source: &SourceText, author: &YamlNode, own: &YamlNode, places: &mut BTreeMap<u32, (u32, LineColumn)>) {
    match (&author.value, &own.value) {
        (YamlValue::Map(first), YamlValue::Map(second)) => {
            for ((key, value), (own_key, own_value)) in first.iter().zip(second) {
                places.entry(own_key.at.line).or_insert((own_key.at.column, source.author(key.at)));
                pair(source, value, own_value, places);
            }
        }
        (YamlValue::List(first), YamlValue::List(second)) => {
            for (item, own_item) in first.iter().zip(second) {
                pair(source, item, own_item, places);
            }
        }
        _ => {
            places.entry(own.at.line).or_insert((own.at.column, source.author(author.at)));
        }
    }
}

/// The lines of an embedded text in the document, each with its line number and the number of characters before it.
pub(crate) struct EmbeddedLines {
    lines: Vec<Option<(u32, u32)>>,
    /// The start of the text, as the position of lines that the document does not contain unchanged.
    at: LineColumn,
}

impl EmbeddedLines {
    pub(crate) fn of(document: &SourceText, text: &SourceText, at: LineColumn) -> Self {
        // A block starts at its first line that is not empty.
        let empty = text.lines().take_while(|line| line.trim().is_empty()).count();
        let lines = text.lines().zip(0..).map(|(line, number)| {
            let there = (at.line + number).checked_sub(u32::try_from(empty).ok()?)?;
            let written = document.line(there)?;
            let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
            let blanks = |line: &str| line.chars().take_while(|c| c.is_whitespace()).count();
            let before = if written.ends_with(line) {
                written.chars().count() - line.chars().count()
            } else if first(written) == first(line) {
                // The line contained a `@{…}`, whose value has another length.
                blanks(written).saturating_sub(blanks(line))
            } else {
                return None;
            };
            Some((there, u32::try_from(before).ok()?))
        });
        Self { lines: lines.collect(), at }
    }

    /// Returns the position in the document of a position in the text.
    pub(crate) fn place(&self, at: LineColumn) -> LineColumn {
        match self.lines.get((at.line as usize).saturating_sub(1)) {
            Some(&Some((line, before))) => LineColumn { line, column: before.saturating_add(at.column) },
            _ => self.at,
        }
    }
}
