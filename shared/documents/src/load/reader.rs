//! Deserializes the structs of the model from a tree with `serde`, and supplies positions.
//!
//! The first error of a struct is reported, and the struct is left out. The other entries of a mapping are still read.
//! A document with an error is always rejected.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::{
    BorrowedStrDeserializer, MapAccessDeserializer, SeqAccessDeserializer, SeqDeserializer, StrDeserializer,
};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use crate::diagnostic::{Diagnostic, Diagnostics, unquoted};
use crate::load::yaml::{YamlNode, YamlValue};
use crate::model::{At, LineColumn, SourceText, TemplateTree};

/// The fields of structs that may be written as this value alone. It is the first field of such a struct.
const SHORT_FORMS: [&str; 2] = ["value", "after"];

/// The enums that are a mapping with one key, the variant, and what follows `add one of them` for an empty one.
const CHOICES: [(&str, &str); 4] = [
    ("Auth", ", such as `bearer: {secret: NAME}`"),
    ("Match", ""),
    ("Receiver", ", such as `slack: {secret: NAME}`"),
    ("Verify", ", such as `standard: {secret: NAME}`"),
];

/// How keys and empty values are read. All formats but Ebb's treat an empty value as an absent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    Ebb,
    Kubernetes,
    /// Keys in any case, as Go reads them.
    Infrakit,
    /// Keys in any case, with a warning.
    Signadot,
}

pub(crate) struct DocumentReader<'a> {
    pub(crate) source: &'a Arc<SourceText>,
    strictness: Strictness,
    found: RefCell<Diagnostics>,
}

impl<'a> DocumentReader<'a> {
    pub(crate) fn new(source: &'a Arc<SourceText>, strictness: Strictness) -> Self {
        Self { source, strictness, found: RefCell::default() }
    }

    /// Deserializes a document. Returns `None` after it has reported an error.
    pub(crate) fn read<'n, T: Deserialize<'n>>(&self, node: &'n YamlNode) -> Option<T> {
        self.read_below(node, &NodePath::Root)
    }

    /// Deserializes a node below the top level, like [`Self::read`].
    pub(crate) fn read_below<'n, T: Deserialize<'n>>(&self, node: &'n YamlNode, path: &NodePath<'_>) -> Option<T> {
        self.read_as(self.strictness, node, path)
    }

    /// Deserializes a node of another format than the document's, like [`Self::read`].
    pub(crate) fn read_as<'n, T: Deserialize<'n>>(
        &self,
        strictness: Strictness,
        node: &'n YamlNode,
        path: &NodePath<'_>,
    ) -> Option<T> {
        let reader =
            NodeReader { reader: self, strictness, node, key: None, field: "", beside: &[], path, required: false };
        reader.report(T::deserialize(reader)).ok()
    }

    pub(crate) fn into_found(self) -> Diagnostics {
        self.found.into_inner()
    }

    /// Creates an error at a position. The caller completes it and calls [`Self::note`].
    pub(crate) fn wrong(&self, code: &'static str, at: LineColumn, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, self.source, at, message)
    }

    pub(crate) fn note(&self, diagnostic: Diagnostic) {
        self.found.borrow_mut().push(diagnostic);
    }

    /// Reports an invalid name with the most similar valid one.
    pub(crate) fn note_near<'n>(
        &self,
        diagnostic: Diagnostic,
        name: &str,
        candidates: impl IntoIterator<Item = &'n str>,
    ) {
        let diagnostic = self.found.borrow().suggest(diagnostic, name, candidates);
        self.note(diagnostic);
    }

    /// Returns the text of a scalar in the document. Returns `None` for a list, a mapping and an embedded value.
    fn written(&self, node: &YamlNode) -> Option<&str> {
        let (start, length) = node.bytes?;
        match node.value {
            YamlValue::List(_) | YamlValue::Map(_) => None,
            _ => self.source.text.get(start..start + length).map(str::trim_end),
        }
    }
}

/// The path of a node in messages: the keys and list positions above it.
#[derive(Clone, Copy)]
pub(crate) enum NodePath<'p> {
    Root,
    Key(&'p NodePath<'p>, &'p str),
    Item(&'p NodePath<'p>, usize),
}

impl NodePath<'_> {
    fn place(&self) -> String {
        match self {
            Self::Root => "the document".to_owned(),
            path => format!("`{path}`"),
        }
    }
}

impl fmt::Display for NodePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => f.write_str(key),
            Self::Key(above, key) => write!(f, "{above}.{key}"),
            Self::Item(above, number) => write!(f, "{above}[{number}]"),
        }
    }
}

/// The error of a value that cannot be deserialized.
///
/// A text is the rest of a sentence that begins with the place of the value. It may have a second line, the help.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("it is reported")]
    Reported,
    #[error("the key `{0}` is missing")]
    Missing(&'static str),
    /// The key or the text is none of these.
    #[error("expected one of {0:?}")]
    Unknown(&'static [&'static str]),
    #[error("expected {0}")]
    Type(String),
    /// A struct has none of the keys of which it needs one.
    #[error("has {0}")]
    NoAlternative(String),
    #[error("{0}")]
    Other(String),
}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    fn invalid_type(_: de::Unexpected<'_>, wanted: &dyn de::Expected) -> Self {
        Self::Type(wanted.to_string())
    }

    fn invalid_value(_: de::Unexpected<'_>, wanted: &dyn de::Expected) -> Self {
        Self::Type(wanted.to_string())
    }

    fn invalid_length(_: usize, wanted: &dyn de::Expected) -> Self {
        Self::NoAlternative(wanted.to_string())
    }

    fn unknown_variant(_: &str, known: &'static [&'static str]) -> Self {
        Self::Unknown(known)
    }

    fn unknown_field(_: &str, known: &'static [&'static str]) -> Self {
        Self::Unknown(known)
    }

    fn missing_field(key: &'static str) -> Self {
        Self::Missing(key)
    }
}

type Found<T> = Result<T, ReadError>;

#[derive(Clone, Copy)]
struct NodeReader<'r, 'n> {
    reader: &'r DocumentReader<'r>,
    strictness: Strictness,
    node: &'n YamlNode,
    key: Option<&'n At<String>>,
    field: &'n str,
    /// The entries of the mapping that contains the node.
    beside: &'n [(At<String>, YamlNode)],
    path: &'r NodePath<'r>,
    /// True for the value of a required key. A text must not be empty.
    required: bool,
}

/// A field of a struct, its key in the document, and its value.
type Field<'n> = (&'n str, Option<&'n At<String>>, &'n YamlNode);

impl<'r, 'n> NodeReader<'r, 'n> {
    fn report<T>(self, made: Found<T>) -> Found<T> {
        made.map_err(|error| {
            let (reader, at, place) = (self.reader, self.node.at, self.path.place());
            match error {
                ReadError::Reported => {}
                ReadError::Missing(key) => {
                    let wrong = reader.wrong("missing-key", at, format!("{place} has no `{key}`"));
                    reader.note(wrong.help(format!("add `{key}:`")));
                }
                ReadError::Unknown(known) => {
                    let text = self.node.text().unwrap_or_default();
                    let wrong = reader.wrong("unknown-value", at, format!("{place} cannot be `{text}`"));
                    reader.note_near(wrong, text, known.iter().copied());
                }
                ReadError::Type(wanted) => self.wrong_type(&wanted),
                ReadError::NoAlternative(text) => {
                    let at = self.key.map_or(at, |key| key.at);
                    reader
                        .note(sentence(|message| reader.wrong("one-of", at, message), &format!("{place} has {text}")));
                }
                ReadError::Other(text) => {
                    let wrong = |message| self.wrong("wrong-value", message);
                    reader.note(sentence(wrong, &format!("{place} {text}")));
                }
            }
            ReadError::Reported
        })
    }

    /// Creates an error that underlines a whole scalar, at most to the end of its first line.
    fn wrong(&self, code: &'static str, message: String) -> Diagnostic {
        let wrong = self.reader.wrong(code, self.node.at, message);
        match self.reader.written(self.node) {
            None => wrong,
            Some(text) => {
                let length = text.lines().next().map_or(0, |line| line.trim_end().chars().count());
                wrong.length(length.max(1))
            }
        }
    }

    fn wrong_type(&self, wanted: &str) {
        let wanted = match wanted {
            "a sequence" => "a list",
            "a map" => "a mapping",
            "f64" => "a number",
            "u32" => "a whole number from 0 to 4294967295",
            wanted => wanted,
        };
        let message = format!("{} is {}; expected {wanted}", self.path.place(), self.node.value.noun());
        let wrong = self.wrong("wrong-type", message);
        self.reader.note(match &self.node.value {
            YamlValue::Bool(_) | YamlValue::Number(_) if wanted == "a string" => {
                let written = self.reader.written(self.node).map(str::trim).filter(|text| !text.is_empty());
                let text = written.map_or_else(|| self.node.to_json().to_string(), str::to_owned);
                wrong.help(format!("quote it: \"{text}\""))
            }
            YamlValue::String(text) if looks_like(text, wanted) => wrong.help(unquoted(text)),
            YamlValue::Null => wrong.help("give it a value, or take the key out"),
            _ => wrong,
        });
    }

    /// Returns true for an empty value that the format treats as an absent one.
    fn is_absent(&self, node: &YamlNode) -> bool {
        self.strictness != Strictness::Ebb && node.value == YamlValue::Null
    }

    /// Returns the entries of a mapping with the fields that their keys mean.
    fn fields(&self, entries: &'n [(At<String>, YamlNode)], known: &'static [&'static str]) -> Found<Vec<Field<'n>>> {
        let any_case = matches!(self.strictness, Strictness::Infrakit | Strictness::Signadot);
        let mut fields: Vec<Field<'n>> = Vec::with_capacity(entries.len());
        for (key, node) in entries {
            let exact = known.contains(&key.value.as_str());
            let near = known.iter().find(|field| any_case && !exact && field.eq_ignore_ascii_case(&key.value));
            let field = near.copied().unwrap_or(&key.value);
            if let Some((_, Some(first), _)) = fields.iter().find(|(other, ..)| any_case && *other == field) {
                let wrong = self.reader.wrong("duplicate-key", key.at, format!("`{}` is `{field}` again", key.value));
                self.reader.note(wrong.help("keep one of the two").related(first.at, "first here"));
                return Err(ReadError::Reported);
            }
            // Unknown keys at the top of Signadot's documents are the platform's own.
            if near.is_some() && self.strictness == Strictness::Signadot && !matches!(self.path, NodePath::Root) {
                let message = format!("`{}` is taken as `{field}`", key.value);
                let warning = Diagnostic::warning("key-case", self.reader.source, key.at, message);
                self.reader.note(warning.help(format!("write `{field}`")));
            }
            if !(self.is_absent(node) && (exact || near.is_some())) {
                fields.push((field, Some(key), node));
            }
        }
        Ok(fields)
    }

    /// Deserializes the only entry of a mapping as a variant and its content.
    fn choice<V: Visitor<'n>>(self, variants: &'static [&'static str], example: &str, visitor: V) -> Found<V::Value> {
        let YamlValue::Map(entries) = &self.node.value else { return expected("a mapping") };
        let fields = self.fields(entries, variants)?;
        if let Some((_, Some(key), _)) = fields.iter().find(|(field, ..)| !variants.contains(field)) {
            let mut known = variants.to_vec();
            known.sort_unstable();
            return Err(self.unknown_key(key, &known));
        }
        if let ([], [others @ .., last]) = (fields.as_slice(), variants) {
            let text = format!("none of `{}` and `{last}`\nadd one of them{example}", others.join("`, `"));
            return Err(ReadError::NoAlternative(text));
        }
        if let [(_, Some(own), _), (_, Some(other), _), ..] = fields[..] {
            return Err(self.several(self.path, own, other));
        }
        visitor.visit_enum(MapAccessDeserializer::new(self.map(fields, false)))
    }

    /// Reports that the mapping at a path has two keys, and can have only one of them.
    fn several(&self, path: &NodePath<'_>, own: &At<String>, other: &At<String>) -> ReadError {
        let message = format!("{} has `{}` and `{}`", path.place(), own.value, other.value);
        let wrong = self.reader.wrong("one-of", other.at, message).related(own.at, "the first one");
        self.reader.note(wrong.help("keep exactly one"));
        ReadError::Reported
    }

    fn unknown_key(&self, key: &At<String>, known: &[&str]) -> ReadError {
        let place = match self.path {
            NodePath::Root => "at the top level".to_owned(),
            path => format!("in `{path}`"),
        };
        let wrong = self.reader.wrong("unknown-key", key.at, format!("unknown key `{}` {place}", key.value));
        // The key of a target of Signadot protects its resources by their names.
        let of_target = (key.value == "protect" && known.contains(&"params")).then_some("ebb.protect");
        match (self.path, key.value.as_str()) {
            (NodePath::Root, "metadata" | "spec") => {
                let help = "write its keys at the top level: Ebb's documents have neither `metadata` nor `spec`";
                self.reader.note(wrong.help(help));
            }
            _ => self.reader.note_near(wrong, &key.value, known.iter().copied().chain(of_target)),
        }
        ReadError::Reported
    }

    /// Deserializes the node as the content of a variant.
    fn variant<V: Visitor<'n>>(self, visitor: V, name: &'n str) -> Found<V::Value> {
        let content = self.map(vec![(name, None, self.node)], self.required);
        visitor.visit_enum(MapAccessDeserializer::new(content))
    }

    fn map(self, fields: Vec<Field<'n>>, required: bool) -> MapReader<'r, 'n> {
        MapReader { map: self, fields: fields.into_iter(), next: None, required }
    }
}

/// Creates a diagnostic from a message, whose last line may be the help.
fn sentence(wrong: impl FnOnce(String) -> Diagnostic, text: &str) -> Diagnostic {
    match text.rsplit_once('\n') {
        Some((message, help)) => wrong(message.to_owned()).help(help),
        None => wrong(text.to_owned()),
    }
}

fn looks_like(text: &str, wanted: &str) -> bool {
    match wanted {
        "a boolean" => ["true", "false", "yes", "no", "on", "off"].contains(&text.to_lowercase().as_str()),
        "a number" => text.parse::<f64>().is_ok(),
        _ => wanted.starts_with("a whole number") && text.parse::<u64>().is_ok(),
    }
}

fn position(at: LineColumn) -> SeqDeserializer<std::array::IntoIter<u32, 2>, ReadError> {
    SeqDeserializer::new([at.line, at.column].into_iter())
}

fn expected<T>(wanted: &str) -> Found<T> {
    Err(ReadError::Type(wanted.to_owned()))
}

impl<'n> Deserializer<'n> for NodeReader<'_, 'n> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        match &self.node.value {
            YamlValue::Null => visitor.visit_unit(),
            YamlValue::Bool(value) => visitor.visit_bool(*value),
            YamlValue::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (None, Some(number)) => visitor.visit_i64(number),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            },
            YamlValue::String(text) => visitor.visit_borrowed_str(text),
            YamlValue::List(items) => visitor.visit_seq(ListReader { list: self, items: items.iter().enumerate() }),
            YamlValue::Map(entries) => {
                let fields = entries.iter().map(|(key, node)| (key.value.as_str(), Some(key), node)).collect();
                visitor.visit_map(self.map(fields, false))
            }
        }
    }

    fn deserialize_str<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        if self.required && self.node.text() == Some("") {
            let message = format!("{} is empty", self.path.place());
            self.reader.note(self.reader.wrong("empty", self.node.at, message));
            return Err(ReadError::Reported);
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_string<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        if self.is_absent(self.node) {
            visitor.visit_none()
        } else {
            visitor.visit_some(Self { required: false, ..self })
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(self, _: &'static str, visitor: V) -> Found<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    /// Deserializes a struct. `At` gets the position of the node, and `Named` its key.
    fn deserialize_struct<V: Visitor<'n>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Found<V::Value> {
        let short = fields.first().filter(|first| SHORT_FORMS.contains(first));
        match (name, &self.node.value) {
            ("At", _) => visitor.visit_seq(Pair(Some(position(self.node.at)), Some(self))),
            ("Named", _) => {
                let (name, at) = self.key.map_or(("", self.node.at), |key| (key.value.as_str(), key.at));
                let name = Pair(Some(position(at)), Some(BorrowedStrDeserializer::new(name)));
                visitor.visit_seq(Pair(Some(SeqAccessDeserializer::new(name)), Some(self)))
            }
            (_, YamlValue::Map(entries)) => visitor.visit_map(self.map(self.fields(entries, fields)?, true)),
            (_, value) => match (short, value) {
                (Some(short), YamlValue::List(_)) => expected(&format!("a value or a mapping with `{short}`")),
                (Some(short), _) => visitor.visit_map(self.map(vec![(*short, None, self.node)], true)),
                (None, _) => expected("a mapping"),
            },
        }
    }

    /// Deserializes an enum. The variant of a tree is the type of the value. Otherwise, it is the key of the value, or a
    /// text.
    fn deserialize_enum<V: Visitor<'n>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Found<V::Value> {
        if variants == TemplateTree::VARIANTS {
            let variant = match &self.node.value {
                YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) => "Scalar",
                YamlValue::String(_) => "Text",
                YamlValue::List(_) => "List",
                YamlValue::Map(_) => "Map",
            };
            return self.variant(visitor, variant);
        }
        if let Some((_, example)) = CHOICES.iter().find(|(choice, _)| *choice == name) {
            return self.choice(variants, example, visitor);
        }
        if !variants.contains(&self.field) {
            let Some(text) = self.node.text() else { return expected("a string") };
            return visitor.visit_enum(StrDeserializer::<ReadError>::new(text));
        }
        let given = self.beside.iter().filter(|(_, node)| !self.is_absent(node)).map(|(key, _)| key);
        let mut others = given.filter(|key| variants.contains(&key.value.as_str()) && key.value != self.field);
        let (Some(other), Some(own), NodePath::Key(above, _)) = (others.next(), self.key, self.path) else {
            return self.variant(visitor, self.field);
        };
        Err(self.several(above, own, other))
    }

    fn deserialize_ignored_any<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        <V: Visitor<'n>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct
        map identifier
    }
}

struct ListReader<'r, 'n> {
    list: NodeReader<'r, 'n>,
    items: std::iter::Enumerate<std::slice::Iter<'n, YamlNode>>,
}

impl<'n> SeqAccess<'n> for ListReader<'_, 'n> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Found<Option<S::Value>> {
        let Some((number, node)) = self.items.next() else { return Ok(None) };
        let path = NodePath::Item(self.list.path, number);
        let reader = NodeReader { node, key: None, field: "", beside: &[], path: &path, required: false, ..self.list };
        reader.report(seed.deserialize(reader)).map(Some)
    }
}

struct MapReader<'r, 'n> {
    map: NodeReader<'r, 'n>,
    fields: std::vec::IntoIter<Field<'n>>,
    next: Option<Field<'n>>,
    required: bool,
}

impl<'n> MapAccess<'n> for MapReader<'_, 'n> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Found<Option<S::Value>> {
        self.next = self.fields.next();
        let Some((field, key, _)) = self.next else { return Ok(None) };
        match (seed.deserialize(BorrowedStrDeserializer::new(field)), key) {
            (Err(ReadError::Unknown(known)), Some(key)) => Err(self.map.unknown_key(key, known)),
            (made, _) => made.map(Some),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.fields.len())
    }

    fn next_value_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Found<S::Value> {
        let Some((field, key, node)) = self.next else { return Err(ReadError::Reported) };
        let beside = match &self.map.node.value {
            YamlValue::Map(entries) => entries.as_slice(),
            _ => &[],
        };
        let below = key.map(|key| NodePath::Key(self.map.path, &key.value));
        let path = below.as_ref().unwrap_or(self.map.path);
        let reader = NodeReader { node, key, field, beside, path, required: self.required, ..self.map };
        reader.report(seed.deserialize(reader))
    }
}

/// Deserializes two values as a list.
struct Pair<A, B>(Option<A>, Option<B>);

impl<'n, A: Deserializer<'n, Error = ReadError>, B: Deserializer<'n, Error = ReadError>> SeqAccess<'n> for Pair<A, B> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Found<Option<S::Value>> {
        match self.0.take() {
            Some(first) => seed.deserialize(first).map(Some),
            None => self.1.take().map(|second| seed.deserialize(second)).transpose(),
        }
    }
}
