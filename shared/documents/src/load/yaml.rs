//! Parses YAML to a tree with positions, and serializes it.
//!
//! Types follow YAML 1.1 (`yes` and `on` are booleans), as in Signadot. Keys are always strings.

use std::fmt;
use std::sync::Arc;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_saphyr::{Location, Spanned};

use crate::escaping::with_texts;
use crate::source::LineColumn;
use crate::{At, Diagnostic, SourceText};

/// The maximum size of a document in bytes, before and after embedding: 4 MiB.
pub const MAX_DOCUMENT: usize = 4 << 20;
pub const MAX_DEPTH: usize = 32;
/// The maximum number of documents of a text.
const MAX_DOCUMENTS: usize = 100;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct YamlNode {
    pub(crate) value: YamlValue,
    pub(crate) at: LineColumn,
    /// The start and length of its bytes in the source. `None` if the source does not contain it unchanged (embedded,
    /// aliased).
    pub(crate) bytes: Option<(usize, usize)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum YamlValue {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    String(String),
    List(Vec<YamlNode>),
    Map(Vec<(At<String>, YamlNode)>),
}

impl YamlValue {
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl YamlNode {
    pub(crate) fn get(&self, name: &str) -> Option<&YamlNode> {
        let YamlValue::Map(entries) = &self.value else { return None };
        entries.iter().find(|(key, _)| key.value == name).map(|(_, node)| node)
    }

    /// Returns the value of a key. If it is missing, the case of keys is ignored.
    pub(crate) fn find(&self, name: &str) -> Option<&YamlNode> {
        let YamlValue::Map(entries) = &self.value else { return None };
        let near = || entries.iter().find(|(key, _)| key.value.eq_ignore_ascii_case(name)).map(|(_, node)| node);
        self.get(name).or_else(near)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let YamlValue::String(text) = &self.value { Some(text) } else { None }
    }

    /// Sets the position of the node and of everything below. Embedded values have the position of their directive.
    pub(crate) fn moved_to(&mut self, at: LineColumn) {
        self.each_mut(&mut |node| {
            node.at = at;
            node.bytes = None;
            if let YamlValue::Map(entries) = &mut node.value {
                entries.iter_mut().for_each(|(key, _)| key.at = at);
            }
        });
    }

    /// Applies `change` to each node below, and then to the node.
    pub(crate) fn each_mut(&mut self, change: &mut impl FnMut(&mut Self)) {
        match &mut self.value {
            YamlValue::List(items) => items.iter_mut().for_each(|item| item.each_mut(change)),
            YamlValue::Map(entries) => entries.iter_mut().for_each(|(_, node)| node.each_mut(change)),
            _ => {}
        }
        change(self);
    }

    pub(crate) fn to_json(&self) -> Json {
        match &self.value {
            YamlValue::Null => Json::Null,
            YamlValue::Bool(value) => (*value).into(),
            YamlValue::Number(value) => value.clone().into(),
            YamlValue::String(value) => value.clone().into(),
            YamlValue::List(items) => items.iter().map(Self::to_json).collect(),
            YamlValue::Map(entries) => entries.iter().map(|(key, node)| (key.value.clone(), node.to_json())).collect(),
        }
    }
}

/// Returns the number of levels of lists and mappings.
pub(crate) fn depth(tree: &Json) -> usize {
    match tree {
        Json::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Json::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns the documents of a text without empty ones, or the first error: invalid YAML, a duplicate key, or a limit.
pub(crate) fn parse(source: &Arc<SourceText>) -> Result<Vec<YamlNode>, Diagnostic> {
    if source.text.len() > MAX_DOCUMENT {
        let message = format!("the document has {} bytes, more than {MAX_DOCUMENT}", source.text.len());
        let wrong = Diagnostic::error("too-large", source, None, message);
        return Err(wrong.help("load large data in a script instead of embedding it"));
    }
    serde_saphyr::from_multiple_with_options::<Spanned<RawNode>>(&source.text, options())
        .map(|nodes| nodes.into_iter().map(|spanned| node(source, spanned)).collect())
        .map_err(|error| refusal(source, &error))
}

/// Returns the tree as YAML. Loading it again yields the same values, and a `@{…}` in them is not expanded.
pub(crate) fn write(tree: Json) -> Result<String, String> {
    serde_saphyr::to_string(&with_texts(&tree, escaped)).map_err(|error| error.to_string())
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_documents: MAX_DOCUMENTS,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_nodes: 300_000,
            max_events: 3_000_000,
            max_total_scalar_bytes: MAX_DOCUMENT,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 50_000,
            max_replay_stack_depth: 16,
        },
        with_snippet: false,
    }
}

fn refusal(source: &Arc<SourceText>, error: &serde_saphyr::Error) -> Diagnostic {
    use serde_saphyr::Error as E;
    let error = error.without_snippet();
    let at = error.location().and_then(pos);
    let message = said(error);
    match error {
        E::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("?").trim_matches('"');
            let mut found =
                Diagnostic::error("duplicate-key", source, at, format!("the key `{key}` stands here twice"))
                    .help("keep one of the two");
            if let Some(first) = at.and_then(|at| first_of(source, key, at)) {
                found = found.related(first, "first here");
            }
            found
        }
        E::NullIntoString { .. } => Diagnostic::error("yaml", source, at, "a key is empty").help("give it a name"),
        E::Budget { .. } if message.contains("Documents {") => {
            let message = format!("the text has more than {MAX_DOCUMENTS} documents");
            Diagnostic::error("too-complex", source, at, message).help("split the file")
        }
        _ if message.contains("limit") || message.contains("budget") || matches!(error, E::Budget { .. }) => {
            Diagnostic::error("too-complex", source, at, too_complex(message)).help(format!(
                "at most {MAX_DEPTH} levels, 300,000 values and 1,000 aliases, which stand for at most 50,000 values"
            ))
        }
        E::RecursiveReferencesRequireWeakTypes { .. } => {
            Diagnostic::error("too-complex", source, at, "this holds itself")
                .help("write it out instead of using aliases")
        }
        _ if message == "expected string scalar" => {
            Diagnostic::error("yaml", source, at, "a key is a list or a mapping").help("keys are texts")
        }
        _ => {
            let found = Diagnostic::error("yaml", source, at, message.clone());
            match at.and_then(|at| source.line(at.line)) {
                Some(line) if line.contains('@') && message.contains('@') => {
                    found.help("quote a value that begins with `@`: \"@{…}\", or \"@{…[yaml]}\" unless it is a text")
                }
                Some(line) if message.contains("mapping values") && line.contains("${") => {
                    found.help("a value with `: ` needs quotes: \"${a ? b : c}\"")
                }
                Some(line) if unquoted(line) => {
                    found.help("inside `{…}` and `[…]` a value with `${…}` needs quotes: \"${…}\"")
                }
                Some(line) if line.trim_start().starts_with('\t') || line.contains('\t') => {
                    found.help("indent with blanks, not with tabs")
                }
                _ => found,
            }
        }
    }
}

/// Returns true if a one-line mapping or list contains an unquoted `${`, whose `}` would end the mapping.
fn unquoted(line: &str) -> bool {
    let before = |at: usize| line[..at].trim_end().ends_with([':', ',', '[']);
    line.contains(['{', '[']) && line.match_indices("${").any(|(at, _)| before(at))
}

fn too_complex(message: String) -> String {
    if message.starts_with("recursion") || message.contains("nesting") || message.contains("depth") {
        "this is nested too deeply".to_owned()
    } else if message.starts_with("alias") {
        "the aliases stand for too much".to_owned()
    } else {
        message
    }
}

/// Returns the message without its position, which the diagnostic has separately.
fn said(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let text = text.lines().next().unwrap_or_default();
    let text = text.find(" at line ").map_or(text, |n| &text[..n]);
    let text = text.find(" (line ").map_or(text, |n| &text[..n]);
    let text = text.strip_prefix("error: ").unwrap_or(text);
    match text.find(": ") {
        Some(n) if text.starts_with("line ") => text[n + 2..].to_owned(),
        _ => text.trim_end_matches('.').to_owned(),
    }
}

/// Returns the position of the same key at the same column in the nearest line above `at`.
fn first_of(source: &SourceText, key: &str, at: LineColumn) -> Option<LineColumn> {
    (1..at.line).rev().map(|line| LineColumn { line, ..at }).find(|&above| {
        let (start, length) = source.bytes(above, usize::MAX);
        let rest = source.text[start..start + length].trim_start_matches(['"', '\'']).strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with(':'))
    })
}

fn pos(location: Location) -> Option<LineColumn> {
    let line = u32::try_from(location.line()).ok().filter(|line| *line > 0)?;
    Some(LineColumn { line, column: u32::try_from(location.column()).unwrap_or(u32::MAX).max(1) })
}

/// A node of serde-saphyr.
enum RawNode {
    Leaf(YamlValue),
    List(Vec<Spanned<RawNode>>),
    Map(Vec<(Spanned<String>, Spanned<RawNode>)>),
}

fn node(source: &SourceText, spanned: Spanned<RawNode>) -> YamlNode {
    let at = pos(spanned.referenced).unwrap_or_default();
    let here = spanned.referenced == spanned.defined;
    let span = spanned.defined.span();
    let written = match (span.byte_offset(), span.byte_len()) {
        (Some(start), Some(length)) => Some((start as usize, length as usize)),
        _ => None,
    };
    let bytes = written.filter(|_| here);
    let value = match spanned.value {
        RawNode::Leaf(value) => leaf(source, value, written),
        RawNode::List(items) => YamlValue::List(items.into_iter().map(|item| node(source, item)).collect()),
        RawNode::Map(entries) => YamlValue::Map(
            entries
                .into_iter()
                .map(|(key, value)| {
                    (At { at: pos(key.referenced).unwrap_or_default(), value: key.value }, node(source, value))
                })
                .collect(),
        ),
    };
    YamlNode { value, at, bytes }
}

/// Converts the booleans `y` and `n` to texts. YAML readers disagree on them, and authors rarely mean a boolean.
fn leaf(source: &SourceText, value: YamlValue, written: Option<(usize, usize)>) -> YamlValue {
    let raw = written.and_then(|(start, length)| source.text.get(start..start + length)).map(str::trim);
    match (value, raw) {
        (YamlValue::Bool(_), Some(raw)) if raw.len() == 1 => YamlValue::String(raw.to_owned()),
        (value, _) => value,
    }
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyVisitor;

        impl<'de> Visitor<'de> for AnyVisitor {
            type Value = RawNode;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E: de::Error>(self) -> Result<RawNode, E> {
                Ok(RawNode::Leaf(YamlValue::Null))
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<RawNode, E> {
                Ok(RawNode::Leaf(YamlValue::Bool(value)))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<RawNode, E> {
                Ok(RawNode::Leaf(YamlValue::Number(value.into())))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<RawNode, E> {
                Ok(RawNode::Leaf(YamlValue::Number(value.into())))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<RawNode, E> {
                serde_json::Number::from_f64(value)
                    .map(|number| RawNode::Leaf(YamlValue::Number(number)))
                    .ok_or_else(|| E::custom("a number must be finite"))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<RawNode, E> {
                Ok(RawNode::Leaf(YamlValue::String(value.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<RawNode, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(RawNode::List)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawNode, A::Error> {
                let mut map = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    map.push(entry);
                }
                Ok(RawNode::Map(map))
            }
        }

        deserializer.deserialize_any(AnyVisitor)
    }
}

/// Returns the start and end of each `@{…}` that is not empty, in bytes.
pub(crate) fn placeholders(text: &str) -> Vec<(usize, usize)> {
    let mut spots = Vec::new();
    let mut from = 0;
    while let Some(start) = text[from..].find("@{").map(|n| from + n) {
        let inside = start + 2;
        match text[inside..].find('}') {
            Some(0) => from = inside,
            Some(length) => {
                spots.push((start, inside + length + 1));
                from = inside + length + 1;
            }
            None => break,
        }
    }
    spots
}

fn escaped(text: &str) -> String {
    if placeholders(text).is_empty() { text.to_owned() } else { text.replace("@{", "@{literal: @}{") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn placeholders_are_found() {
        for (text, expected) in rows::<(String, Vec<(usize, usize)>)>("placeholders_are_found") {
            assert_eq!(placeholders(&text), expected, "{text}");
        }
    }
}
