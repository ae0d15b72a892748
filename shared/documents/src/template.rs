//! Splits texts with `${…}` into literals and expressions.
//!
//! `$${` is a literal `${`. A `}` in a string, a comment or a map does not end an expression. [`crate::cel`] parses the
//! expressions.

use std::collections::BTreeMap;

use serde_json::Value;
use url::{Host, Url};

use crate::cel::convert::json_type;
use crate::cel::{self, Expression, Scope, string_end};
use crate::model::{At, LineColumn, SourceText};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePiece {
    /// Literal text with resolved escapes.
    Literal(String),
    Expression {
        /// The text between `${` and `}`.
        text: String,
        /// The byte offset of `text` in the template.
        offset: usize,
    },
}

/// A `${` without its `}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`${{` is never closed")]
pub struct UnclosedExpression {
    /// The byte offset of the `${` in the template.
    pub offset: usize,
}

/// Splits a template into pieces. Adjacent literals are one piece. An empty text has no pieces.
///
/// # Errors
/// Returns [`UnclosedExpression`] if a `${` has no matching `}`.
pub fn split(text: &str) -> Result<Vec<TemplatePiece>, UnclosedExpression> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut at = 0;
    while let Some(found) = text[at..].find('$') {
        let dollar = at + found;
        literal.push_str(&text[at..dollar]);
        let rest = &text[dollar..];
        if rest.starts_with("$${") {
            literal.push_str("${");
            at = dollar + 3;
        } else if rest.starts_with("${") {
            let start = dollar + 2;
            let end = start + expression_length(&text[start..]).ok_or(UnclosedExpression { offset: dollar })?;
            if !literal.is_empty() {
                pieces.push(TemplatePiece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(TemplatePiece::Expression { text: text[start..end].to_owned(), offset: start });
            at = end + 1;
        } else {
            literal.push('$');
            at = dollar + 1;
        }
    }
    literal.push_str(&text[at..]);
    if !literal.is_empty() {
        pieces.push(TemplatePiece::Literal(literal));
    }
    Ok(pieces)
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParsedText(pub(crate) Vec<TextPart>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TextPart {
    Literal(String),
    Expression(Expression),
}

impl ParsedText {
    /// Parses a template whose expressions have the names of `scope`. An error describes the first mistake.
    pub(crate) fn new(text: &str, scope: Scope) -> Result<Self, String> {
        let parsed = |piece| match piece {
            TemplatePiece::Literal(text) => Ok(TextPart::Literal(text)),
            TemplatePiece::Expression { text, .. } => cel::parse_checked(&text, scope).map(TextPart::Expression),
        };
        let pieces = split(text).map_err(|error| error.to_string())?;
        pieces.into_iter().map(parsed).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.0.iter().filter_map(|part| match part {
            TextPart::Literal(_) => None,
            TextPart::Expression(expression) => Some(expression),
        })
    }

    /// Returns the expression of a template that is exactly one.
    pub(crate) fn whole(&self) -> Option<&Expression> {
        let [TextPart::Expression(expression)] = self.0.as_slice() else { return None };
        Some(expression)
    }

    /// Returns the text in which `value` returns the text of each expression.
    pub(crate) fn joined<E>(&self, value: impl Fn(&Expression) -> Result<String, E>) -> Result<String, E> {
        let text = |part: &TextPart| match part {
            TextPart::Literal(text) => Ok(text.clone()),
            TextPart::Expression(expression) => value(expression),
        };
        self.0.iter().map(text).collect()
    }
}

pub(crate) fn of_output(unit: &str, output: &str) -> String {
    format!("${{units[\"{unit}\"].outputs[\"{output}\"]}}")
}

/// Returns a value as a part of a text. `null` is empty, and values of other types become JSON.
pub(crate) fn joinable(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Returns the number of bytes before the `}` that ends an expression, or `None` if there is none.
fn expression_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                // A comment ends with its line. Without a line end, only the `//` is skipped.
                at += text[at..].find('\n').unwrap_or(1);
            }
            b'"' | b'\'' => {
                at = string_end(text, at);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the position in the document of a byte of a string that begins at `value.at`.
///
/// The parsed string differs from the text of the document in quotes, escapes, indentation and expanded `@{…}`. The
/// function therefore searches the document for the line of the string. If the line is not found, it returns the
/// position at which the string begins.
pub fn place(source: &SourceText, value: &At<&str>, offset: usize) -> LineColumn {
    let text = value.value;
    let offset = text.floor_char_boundary(offset);
    let (start, _) = source.bytes(value.at, 0);
    let line_start = text[..offset].rfind('\n').map_or(0, |n| n + 1);
    let line_end = text[offset..].find('\n').map_or(text.len(), |n| offset + n);
    let line = &text[line_start..line_end];
    // Escapes of a quoted string change its line, but rarely the text after the offset.
    let tries = [(line_start, line), (offset, text[offset..line_end].trim_end())];
    for (from, needle) in tries {
        if needle.trim().is_empty() {
            continue;
        }
        let earlier = text[..from].matches(needle).count();
        let window = &source.text[start..];
        if let Some((found, _)) = window.match_indices(needle).nth(earlier) {
            // A match beyond the last line of the string belongs to another string.
            if window[..found].matches('\n').count() <= text.matches('\n').count() + 2 {
                return source.place(start + found + (offset - from));
            }
        }
    }
    value.at
}

/// Returns true if parsing the URL does not change it: it has no `..`, no `\\`, and no character to encode.
pub(crate) fn is_normal_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|parsed| parsed.as_str() == text)
}

/// Returns true if a path after an origin is written as a URL has it, and stays below the origin.
pub(crate) fn is_normal_path(path: &str) -> bool {
    is_normal_url(&format!("https://x.invalid{path}"))
}

/// The values of [`next_url`].
pub(crate) const NEXT: &str = "a URL, or texts by parameters of the query";

/// Returns the URL of the page after that of `url`, by a URL or the parameters of its query. `None` is the end: no value, or a
/// parameter without one.
///
/// # Errors
/// Returns what it is instead.
pub(crate) fn next_url(url: &str, next: Value) -> Result<Option<String>, &'static str> {
    let base = Url::parse(url).map_err(|_| "another one")?;
    let made = match next {
        Value::Null | Value::Bool(false) => return Ok(None),
        Value::String(text) if text.is_empty() => return Ok(None),
        Value::String(text) => base.join(&text).map_err(|_| "such a text")?,
        Value::Object(parameters) => {
            let texts: BTreeMap<String, String> =
                parameters.into_iter().map(|(name, value)| (name, joinable(value))).collect();
            if texts.values().any(String::is_empty) {
                return Ok(None);
            }
            let mut made = base.clone();
            let kept = base.query_pairs().filter(|(name, _)| !texts.contains_key(&**name));
            made.query_pairs_mut().clear().extend_pairs(kept).extend_pairs(&texts);
            made
        }
        other => return Err(json_type(&other)),
    };
    Ok(Some(made.into()))
}

/// Returns true for loopback, which only `ebb dev` and `ebb run` can reach.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Returns true for a Service of a cluster: `http://NAME.NAMESPACE.svc`, with or without a port.
pub fn is_service(url: &Url) -> bool {
    url.scheme() == "http" && url.domain().and_then(ebb_kube::podspec::service_of).is_some()
}

/// Returns true for a name that only a cluster knows.
pub fn is_in_cluster(url: &Url) -> bool {
    url.domain().is_some_and(|host| [".svc", ".svc.cluster.local"].iter().any(|end| host.ends_with(end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    fn shown(text: &str) -> String {
        match split(text) {
            Ok(pieces) => pieces
                .iter()
                .map(|piece| match piece {
                    TemplatePiece::Literal(text) => format!("[{text}]"),
                    TemplatePiece::Expression { text, offset } => format!("<{text}@{offset}>"),
                })
                .collect(),
            Err(UnclosedExpression { offset }) => format!("unclosed at {offset}"),
        }
    }

    #[test]
    fn pieces() {
        for (text, expected) in rows::<(String, String)>("pieces") {
            assert_eq!(shown(&text), expected, "{text}");
        }
    }

    #[test]
    fn positions_in_documents() {
        let text = "a: ${one}\nb: \"x-${two}\"\nc: |\n  first\n  ${three} and\n  ${four}\nd: '${one}'\n";
        let source = SourceText::new("t.yaml", text);
        let places = rows::<((u32, u32), String, String, (u32, u32))>("positions_in_documents");
        for ((line, column), text, word, expected) in places {
            let value = At { value: text.as_str(), at: LineColumn { line, column } };
            let at = place(&source, &value, text.find(&word).unwrap());
            assert_eq!((at.line, at.column), expected, "{word}");
        }
    }
}
