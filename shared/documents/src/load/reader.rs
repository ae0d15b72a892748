//! Deserializes structs from a tree with `serde`. Supplies positions, and reports all errors instead of only the first.
//!
//! An invalid value is reported and replaced by an empty one, so that the rest of the document is still read. A struct
//! without a required key cannot be created, so its entry is omitted. A document with an error is always rejected.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::{
    BorrowedStrDeserializer, MapDeserializer, SeqAccessDeserializer, SeqDeserializer, StrDeserializer,
    StringDeserializer, U64Deserializer,
};
use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::forward_to_deserialize_any;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::load::durations;
use crate::load::yaml::{YamlKey, YamlNode, YamlValue};
use crate::model::{Dialect, LineColumn, SourceText};

/// The serde name of the structs of InfraKit's documents. As Go does, they ignore the case of keys, and an empty value is
/// an absent one.
const INFRAKIT: &str = "InfraKit";
/// The serde name of a pod template, which treats an empty value as absent.
const POD_TEMPLATE: &str = "PodTemplate";
/// The serde name of the structs in a pod template. They ignore unknown keys, too.
const POD_TEMPLATE_PART: &str = "PodTemplatePart";

const WITH_CONNECTION: &str = "a webhook has `url`, or `connection` and `path`";

/// Structs that have exactly one of several keys: name in serde and in the schema, error code, keys, help for no key, help
/// for several keys.
pub(crate) const ALTERNATIVES: [(&str, &str, &[&str], &str, &str); 14] = [
    ("Unit", "unit-kind", &["pod", "webhook", "object", "infrakit"], "add one of them", "make two units of it"),
    (
        "Output",
        "output-source",
        &["file", "value", "secret"],
        "add `file: /PATH` for a pod, `value: ${…}` for a webhook, object or InfraKit plugin, or `secret: {name: …, key: …}` for an object",
        "keep one of the two",
    ),
    (
        "Bind",
        "bind",
        &["secret", "configMap"],
        "add `secret: {namespace: …, name: …}`, or `configMap` with the same keys",
        "make two entries of it",
    ),
    ("RouteGroupMatch", "match", &["label", "all", "any"], "add one of them", "keep exactly one"),
    (
        "Resource",
        "resource-kind",
        &["plugin", "collection"],
        "add `plugin: NAME`, or `collection:` with resources of InfraKit",
        "make two resources of it",
    ),
    ("Event", "event-action", &["apply", "delete", "ignore"], "add one of them", "make two entries of it"),
    (
        "Verify",
        "verify",
        &["github", "gitlab", "gitea", "vercel", "standard", "hmac", "e2b", "bearer", "basic", "url"],
        "add one of them, such as `standard: {secret: NAME}`",
        "keep exactly one",
    ),
    (
        "Auth",
        "auth",
        &["bearer", "basic", "header", "signed"],
        "add one of them, such as `bearer: {secret: NAME}`",
        "keep exactly one",
    ),
    (
        "Receiver",
        "receiver",
        &["standard", "webhook", "slack", "github", "comment"],
        "add one of them, such as `slack: {secret: NAME}`",
        "keep exactly one, and write a second subscription for the other",
    ),
    ("Webhook", "url", &["url", "path"], WITH_CONNECTION, WITH_CONNECTION),
    ("Describe", "url", &["url", "path"], WITH_CONNECTION, WITH_CONNECTION),
    ("Until", "url", &["url", "path"], WITH_CONNECTION, WITH_CONNECTION),
    (
        "Verification",
        "unit-kind",
        &["pod", "webhook", "object"],
        "add a script, a request or objects that show it",
        "keep one of them",
    ),
    ("VerificationRequest", "url", &["url", "path"], WITH_CONNECTION, WITH_CONNECTION),
];

/// Reads a document and reports its errors.
pub(crate) struct DocumentReader<'a> {
    pub(crate) source: &'a Arc<SourceText>,
    pub(crate) dialect: Dialect,
    found: RefCell<Diagnostics>,
    /// Positions of values that were replaced by empty ones.
    replaced: RefCell<BTreeSet<LineColumn>>,
}

impl<'a> DocumentReader<'a> {
    pub(crate) fn new(source: &'a Arc<SourceText>, dialect: Dialect) -> Self {
        Self { source, dialect, found: RefCell::default(), replaced: RefCell::default() }
    }

    /// Deserializes a document. Returns `None` after it has reported an error.
    pub(crate) fn read<'n, T: Deserialize<'n>>(&self, node: &'n YamlNode) -> Option<T> {
        self.read_below(node, &NodePath::Root)
    }

    /// Deserializes a document whose top level ignores unknown keys, like [`Self::read`].
    pub(crate) fn read_open<'n, T: Deserialize<'n>>(&self, node: &'n YamlNode) -> Option<T> {
        self.read_as(node, &NodePath::Root, Form::Open)
    }

    /// Deserializes a node below the top level, like [`Self::read`].
    pub(crate) fn read_below<'n, T: Deserialize<'n>>(&self, node: &'n YamlNode, path: &NodePath<'_>) -> Option<T> {
        self.read_as(node, path, Form::Value)
    }

    fn read_as<'n, T: Deserialize<'n>>(&self, node: &'n YamlNode, path: &NodePath<'_>, form: Form) -> Option<T> {
        let reader = NodeReader { reader: self, node, key: None, field: "", path, form };
        reader.report(T::deserialize(reader)).ok()
    }

    pub(crate) fn into_found(self) -> Diagnostics {
        self.found.into_inner()
    }

    /// Creates an error at a position. The caller completes it and calls [`Self::note`].
    pub(crate) fn wrong(&self, code: &'static str, at: LineColumn, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, self.source, at, message)
    }

    /// Creates an error that underlines a whole scalar, at most to the end of its first line.
    fn wrong_at(&self, code: &'static str, node: &YamlNode, message: impl Into<String>) -> Diagnostic {
        let wrong = self.wrong(code, node.at, message);
        let text = node.bytes.and_then(|(start, length)| self.source.text.get(start..start + length));
        match (&node.value, text) {
            (YamlValue::List(_) | YamlValue::Map(_), _) | (_, None) => wrong,
            (_, Some(text)) => {
                let length = text.lines().next().map_or(0, |line| line.trim_end().chars().count());
                wrong.length(length.max(1))
            }
        }
    }

    /// Reports a diagnostic, unless it is at a value that was replaced.
    pub(crate) fn note(&self, diagnostic: Diagnostic) {
        if diagnostic.at.is_none_or(|at| !self.replaced.borrow().contains(&at)) {
            self.found.borrow_mut().push(diagnostic);
        }
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

    /// Returns the text of a scalar from the document.
    fn written(&self, node: &YamlNode) -> String {
        match node.bytes.and_then(|(start, length)| self.source.text.get(start..start + length)) {
            Some(raw) if !raw.trim().is_empty() => raw.trim().to_owned(),
            _ => node.to_json().to_string(),
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
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("it is reported")]
    Reported,
    #[error("the key `{0}` is missing")]
    Missing(&'static str),
    #[error("expected {0}")]
    Type(String),
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

    fn missing_field(key: &'static str) -> Self {
        Self::Missing(key)
    }
}

type Found<T> = Result<T, ReadError>;

/// The expected form of a value.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Value,
    /// The value of a required key. A text must not be empty.
    Required,
    /// A list of texts. A single text is a list of one.
    Names,
    /// A mapping that may have unknown keys.
    Open,
}

/// Deserializes one node.
#[derive(Clone, Copy)]
struct NodeReader<'r, 'n, 'p> {
    reader: &'r DocumentReader<'r>,
    node: &'n YamlNode,
    /// The key of the node.
    key: Option<&'n YamlKey>,
    /// The field of the key.
    field: &'n str,
    path: &'p NodePath<'p>,
    form: Form,
}

/// An empty mapping, which replaces an invalid value.
type Nothing<'n> = std::iter::Empty<(&'n str, &'n str)>;

impl<'n> NodeReader<'_, 'n, '_> {
    /// Returns the path of the node for messages.
    fn place(&self) -> String {
        match self.path {
            NodePath::Root => "the document".to_owned(),
            path => format!("`{path}`"),
        }
    }

    /// Reports that the node is invalid, and marks it as replaced by an empty value.
    fn replace(&self, wrong: Diagnostic) {
        self.reader.note(wrong);
        self.reader.replaced.borrow_mut().insert(self.node.at);
    }

    fn wrong_type(&self, wanted: &str) {
        let message = format!("{} is {}; expected {wanted}", self.place(), self.node.value.noun());
        let wrong = self.reader.wrong_at("wrong-type", self.node, message);
        let help = match &self.node.value {
            YamlValue::Bool(_) | YamlValue::Number(_) if wanted == "a string" => {
                Some(format!("quote it: \"{}\"", self.reader.written(self.node)))
            }
            YamlValue::String(text) => looks_like(text, wanted).then(|| format!("without quotes: {text}")),
            YamlValue::Null => Some("give it a value, or take the key out".to_owned()),
            _ => None,
        };
        self.replace(match help {
            Some(help) => wrong.help(help),
            None => wrong,
        });
    }

    /// Reports the reason why a visitor rejected the node.
    fn report<T>(&self, made: Found<T>) -> Found<T> {
        let at = self.node.at;
        match made {
            Ok(_) | Err(ReadError::Reported) => return made,
            Err(ReadError::Missing(key)) => {
                let wrong = self.reader.wrong("missing-key", at, format!("{} has no `{key}`", self.place()));
                self.reader.note(wrong.help(format!("add `{key}:`")));
            }
            Err(ReadError::Type(wanted)) => self.wrong_type(&wanted),
            Err(ReadError::Other(message)) => {
                self.reader.note(self.reader.wrong("wrong-value", at, format!("{}: {message}", self.place())));
            }
        }
        Err(ReadError::Reported)
    }

    /// Returns the value of a visitor for an empty mapping.
    fn empty_map<V: Visitor<'n>>(&self, visitor: V) -> Found<V::Value> {
        let nothing: Nothing<'n> = std::iter::empty();
        visitor.visit_map(MapDeserializer::<_, ReadError>::new(nothing)).map_err(|_| ReadError::Reported)
    }

    fn text(&self) -> Option<&'n str> {
        match &self.node.value {
            YamlValue::String(text) => Some(text),
            _ => None,
        }
    }

    fn whole_number(&self, most: u64) -> u64 {
        match &self.node.value {
            YamlValue::Number(number) => number.as_u64().filter(|number| *number <= most).unwrap_or_else(|| {
                let wrong = self.reader.wrong("out-of-range", self.node.at, format!("{} is {number}", self.place()));
                self.replace(wrong.help(format!("a whole number from 0 to {most}")));
                0
            }),
            _ => {
                self.wrong_type("a whole number");
                0
            }
        }
    }

    /// Returns a duration in milliseconds.
    fn duration(&self, units: &[(&str, u64)], example: &str) -> u64 {
        let (reader, node) = (self.reader, self.node);
        let wrong = match &node.value {
            YamlValue::String(text) => {
                let found = durations::duration(text, units);
                if let Some(found) = found {
                    return found;
                }
                let unit = text.trim_start_matches('0');
                if unit.len() < text.len() && unit.starts_with(|c: char| c.is_ascii_alphabetic()) {
                    reader.wrong_at("bad-duration", node, format!("{} must be above 0", self.place())).help(example)
                } else {
                    reader.wrong_at("bad-duration", node, format!("`{text}` is not a duration")).help(example)
                }
            }
            YamlValue::Number(number) => reader
                .wrong("bad-duration", node.at, format!("{} is {number}, without a unit", self.place()))
                .help(format!("{example}; {number}s if seconds are meant")),
            _ => {
                self.wrong_type("a duration");
                return 0;
            }
        };
        self.replace(wrong);
        0
    }

    /// Returns the fields of a struct with their nodes. Signadot, InfraKit and Kubernetes treat an empty value as absent.
    /// Signadot and InfraKit also ignore the case of keys.
    fn fields(
        &self,
        name: &str,
        entries: &'n [(YamlKey, YamlNode)],
        fields: &'static [&'static str],
    ) -> Vec<Field<'n>> {
        let open = self.form == Form::Open || name == POD_TEMPLATE_PART;
        let any_case = name == INFRAKIT;
        let signadot = self.reader.dialect == Dialect::Signadot && !any_case;
        let written = |field: &str| entries.iter().any(|(key, _)| key.name == field);
        let near: Vec<&str> =
            fields.iter().copied().filter(|field| any_case || (signadot && !written(field))).collect();
        let mut known: Vec<Field<'n>> = Vec::new();
        for (key, node) in entries {
            let exact = fields.iter().find(|field| **field == key.name);
            let other = || near.iter().find(|field| field.eq_ignore_ascii_case(&key.name));
            let Some(&field) = exact.or_else(other) else {
                if !open {
                    let place = match self.path {
                        NodePath::Root => "at the top level".to_owned(),
                        path => format!("in `{path}`"),
                    };
                    let wrong = self.reader.wrong("unknown-key", key.at, format!("unknown key `{}` {place}", key.name));
                    self.reader.note_near(wrong, &key.name, fields.iter().copied());
                }
                continue;
            };
            if exact.is_none() && !open && !any_case {
                let message = format!("`{}` is taken as `{field}`", key.name);
                let warning = Diagnostic::warning("key-case", self.reader.source, key.at, message);
                self.reader.note(warning.help(format!("write `{field}`")));
            }
            let first = known.iter().find(|(known, ..)| *known == field);
            if let Some((_, Some(first), _)) = first.filter(|_| any_case) {
                let wrong = self.reader.wrong("duplicate-key", key.at, format!("`{}` is `{field}` again", key.name));
                self.reader.note(wrong.help("keep one of the two").related(first.at, "first here"));
            }
            let lenient = signadot || any_case || [POD_TEMPLATE, POD_TEMPLATE_PART].contains(&name);
            let empty = node.value == YamlValue::Null && lenient;
            if first.is_none() && !empty {
                known.push((field, Some(key), node));
            }
        }
        known
    }

    /// Returns true if a struct has exactly one of its alternatives. Reports an error otherwise.
    fn has_one(&self, name: &str, fields: &[Field<'n>]) -> bool {
        let Some((_, code, keys, add, leave)) = ALTERNATIVES.iter().find(|(of, ..)| *of == name) else { return true };
        let mut given = fields.iter().filter(|(field, ..)| keys.contains(field));
        let wrong = match (given.next(), given.next()) {
            (Some(_), None) => return true,
            (Some((first, Some(first_key), _)), Some((second, Some(key), _))) => {
                let message = format!("{} has `{first}` and `{second}`", self.place());
                self.reader.wrong(code, key.at, message).help(*leave).related(first_key.at, "the first one")
            }
            _ => {
                let at = self.key.map_or(self.node.at, |key| key.at);
                let (last, others) = keys.split_last().unwrap_or((&"", &[]));
                let message = format!("{} has none of `{}` and `{last}`", self.place(), others.join("`, `"));
                self.reader.wrong(code, at, message).help(*add)
            }
        };
        self.reader.note(wrong);
        false
    }
}

/// A field of a struct, its key in the document, and its value.
type Field<'n> = (&'n str, Option<&'n YamlKey>, &'n YamlNode);

fn looks_like(text: &str, wanted: &str) -> bool {
    match wanted {
        "a boolean" => ["true", "false", "yes", "no", "on", "off"].contains(&text.to_lowercase().as_str()),
        "a whole number" => text.parse::<u64>().is_ok(),
        "a number" => text.parse::<f64>().is_ok(),
        _ => false,
    }
}

fn position(at: LineColumn) -> SeqDeserializer<std::array::IntoIter<u32, 2>, ReadError> {
    SeqDeserializer::new([at.line, at.column].into_iter())
}

impl<'n> Deserializer<'n> for NodeReader<'_, 'n, '_> {
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
                let entries = entries.iter().map(|(key, node)| (key.name.as_str(), Some(key), node));
                visitor.visit_map(MapReader { map: self, entries, next: None, form: Form::Value })
            }
        }
    }

    fn deserialize_bool<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        let value = matches!(self.node.value, YamlValue::Bool(true));
        if !matches!(self.node.value, YamlValue::Bool(_)) {
            self.wrong_type("a boolean");
        }
        visitor.visit_bool(value)
    }

    fn deserialize_u32<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        visitor.visit_u64(self.whole_number(u64::from(u32::MAX)))
    }

    fn deserialize_f64<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        match &self.node.value {
            YamlValue::Number(number) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            _ => {
                self.wrong_type("a number");
                visitor.visit_f64(0.0)
            }
        }
    }

    fn deserialize_str<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        match self.text() {
            None => self.wrong_type("a string"),
            Some("") if self.form == Form::Required => {
                self.replace(self.reader.wrong("empty", self.node.at, format!("{} is empty", self.place())));
            }
            Some(_) => {}
        }
        visitor.visit_borrowed_str(self.text().unwrap_or_default())
    }

    fn deserialize_string<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        match &self.node.value {
            YamlValue::Null if self.reader.dialect == Dialect::Signadot => visitor.visit_none(),
            _ => visitor.visit_some(Self { form: Form::Value, ..self }),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(self, name: &'static str, visitor: V) -> Found<V::Value> {
        match name {
            "Duration" => {
                let value = self.duration(&durations::UNITS, "a number with its unit: 500ms, 5s, 5m, 2h or 1d");
                visitor.visit_newtype_struct(U64Deserializer::new(value))
            }
            "SignadotDuration" => {
                let help = "a whole number with its unit: 30m, 4h, 2d or 1w";
                visitor.visit_newtype_struct(U64Deserializer::new(self.duration(&durations::SIGNADOT_UNITS, help)))
            }
            "FailureClass" => {
                let class = match &self.node.value {
                    YamlValue::String(text) => text.clone(),
                    YamlValue::Number(number) => number.to_string(),
                    _ => {
                        self.wrong_type("a failure class");
                        String::new()
                    }
                };
                visitor.visit_newtype_struct(StringDeserializer::new(class))
            }
            "NameList" => visitor.visit_newtype_struct(Self { form: Form::Names, ..self }),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        let items = match &self.node.value {
            YamlValue::List(items) => items.as_slice(),
            YamlValue::String(_) if self.form == Form::Names => std::slice::from_ref(self.node),
            _ => {
                self.wrong_type(if self.form == Form::Names { "a name or a list of names" } else { "a list" });
                &[]
            }
        };
        visitor.visit_seq(ListReader { list: self, items: items.iter().enumerate() })
    }

    fn deserialize_map<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        match &self.node.value {
            YamlValue::Map(_) => self.deserialize_any(visitor),
            _ => {
                self.wrong_type("a mapping");
                self.empty_map(visitor)
            }
        }
    }

    fn deserialize_struct<V: Visitor<'n>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Found<V::Value> {
        let fields = match (name, &self.node.value) {
            ("At", _) => return visitor.visit_seq(Pair(Some(position(self.node.at)), Some(self))),
            ("Named", _) => {
                let (name, at) = self.key.map_or(("", self.node.at), |key| (&key.name, key.at));
                let name = Pair(Some(position(at)), Some(BorrowedStrDeserializer::new(name)));
                return visitor.visit_seq(Pair(Some(SeqAccessDeserializer::new(name)), Some(self)));
            }
            (_, YamlValue::Map(entries)) => self.fields(name, entries, fields),
            ("FullInput", YamlValue::List(_)) => {
                self.wrong_type("a value or a mapping with `value`");
                return Err(ReadError::Reported);
            }
            ("FullInput" | "FullVariable", _) => vec![("value", None, self.node)],
            _ => {
                self.wrong_type("a mapping");
                return self.empty_map(visitor);
            }
        };
        if !self.has_one(name, &fields) {
            return Err(ReadError::Reported);
        }
        let entries = fields.into_iter();
        // The value of a variable may be an empty text.
        let form = if name == "FullVariable" { Form::Value } else { Form::Required };
        visitor.visit_map(MapReader { map: self, entries, next: None, form })
    }

    /// Deserializes an enum. The variant is the key of the value, or a text. For a `TemplateTree`, it is the type of
    /// the value.
    fn deserialize_enum<V: Visitor<'n>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Found<V::Value> {
        if name == "TemplateTree" {
            let field = match &self.node.value {
                YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) => "Scalar",
                YamlValue::String(_) => "Text",
                YamlValue::List(_) => "List",
                YamlValue::Map(_) => "Map",
            };
            return visitor.visit_enum(Self { field, form: Form::Value, ..self });
        }
        if variants.contains(&self.field) {
            return visitor.visit_enum(self);
        }
        let known = self.text().and_then(|text| variants.iter().find(|variant| **variant == text));
        match (known, self.text()) {
            (Some(_), _) => {}
            (None, Some(text)) => {
                let message = format!("{} cannot be `{text}`", self.place());
                let wrong = self.reader.wrong("unknown-value", self.node.at, message);
                self.reader.note_near(wrong, text, variants.iter().copied());
                self.reader.replaced.borrow_mut().insert(self.node.at);
            }
            (None, None) => self.wrong_type("a string"),
        }
        let variant = known.or(variants.first()).copied().unwrap_or_default();
        visitor.visit_enum(StrDeserializer::new(variant))
    }

    fn deserialize_ignored_any<V: Visitor<'n>>(self, visitor: V) -> Found<V::Value> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        <V: Visitor<'n>>
        i8 i16 i32 i64 i128 u8 u16 u64 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

impl<'n> EnumAccess<'n> for NodeReader<'_, 'n, '_> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'n>>(self, seed: S) -> Found<(S::Value, Self)> {
        Ok((seed.deserialize(StrDeserializer::<ReadError>::new(self.field))?, self))
    }
}

impl<'n> VariantAccess<'n> for NodeReader<'_, 'n, '_> {
    type Error = ReadError;

    fn unit_variant(self) -> Found<()> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'n>>(self, seed: S) -> Found<S::Value> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'n>>(self, _: usize, visitor: V) -> Found<V::Value> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'n>>(self, _: &'static [&'static str], visitor: V) -> Found<V::Value> {
        self.deserialize_any(visitor)
    }
}

/// Deserializes the items of a list.
struct ListReader<'r, 'n, 'p> {
    list: NodeReader<'r, 'n, 'p>,
    items: std::iter::Enumerate<std::slice::Iter<'n, YamlNode>>,
}

impl<'n> SeqAccess<'n> for ListReader<'_, 'n, '_> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Found<Option<S::Value>> {
        let Some((number, node)) = self.items.next() else { return Ok(None) };
        let path = NodePath::Item(self.list.path, number);
        let reader =
            NodeReader { reader: self.list.reader, node, key: None, field: "", path: &path, form: Form::Value };
        reader.report(seed.deserialize(reader)).map(Some)
    }
}

/// Deserializes the entries of a mapping.
struct MapReader<'r, 'n, 'p, E> {
    map: NodeReader<'r, 'n, 'p>,
    entries: E,
    next: Option<Field<'n>>,
    form: Form,
}

impl<'n, E: Iterator<Item = Field<'n>>> MapAccess<'n> for MapReader<'_, 'n, '_, E> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Found<Option<S::Value>> {
        self.next = self.entries.next();
        self.next.map(|(key, ..)| seed.deserialize(BorrowedStrDeserializer::new(key))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.size_hint().0)
    }

    fn next_value_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Found<S::Value> {
        let Some((field, key, node)) = self.next else { return Err(ReadError::Reported) };
        let below = key.map(|key| NodePath::Key(self.map.path, &key.name));
        let path = below.as_ref().unwrap_or(self.map.path);
        let reader = NodeReader { reader: self.map.reader, node, key, field, path, form: self.form };
        reader.report(seed.deserialize(reader))
    }
}

/// Deserializes two values as a list.
struct Pair<A, B>(Option<A>, Option<B>);

impl<'n, A: Deserializer<'n, Error = ReadError>, B: Deserializer<'n, Error = ReadError>> SeqAccess<'n> for Pair<A, B> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Found<Option<S::Value>> {
        match (self.0.take(), self.1.take()) {
            (Some(first), second) => {
                self.1 = second;
                seed.deserialize(first).map(Some)
            }
            (None, Some(second)) => seed.deserialize(second).map(Some),
            (None, None) => Ok(None),
        }
    }
}
