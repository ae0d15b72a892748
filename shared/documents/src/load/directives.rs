//! `@{…}` in the strings of a document, replaced before anything else looks at it.
//!
//! `@{var}` gives a variable, `@{embed: path}` a file, each also as `[raw]` (default), `[yaml]` or `[binary]`
//! (base64). Inserted text is not expanded again. Keys are never touched. `@{literal: text}` gives its text, so
//! that a document with a literal `@{x}` in it can be written down: `@{literal: @}{x}`.

use std::sync::Arc;

use base64::Engine as _;

use crate::diagnostic::{Diagnostic, Diagnostics, MAX_REPORTED};
use crate::load::yaml::{self, MAX_DEPTH, MAX_DOCUMENT, YamlNode, YamlValue, placeholders};
use crate::load::{DocumentVars, FileError, FileSource, is_variable};
use crate::source::{LineColumn, SourceText};

/// Replaces the directives of one document.
pub(crate) struct DirectiveExpansion<'a> {
    source: &'a Arc<SourceText>,
    files: &'a dyn FileSource,
    vars: &'a DocumentVars,
    found: &'a mut Diagnostics,
    bytes: usize,
    failed: Vec<(usize, usize)>,
    grafted: Option<LineColumn>,
}

/// The encoding of a value that is put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EmbedEncoding {
    Raw,
    Yaml,
    Binary,
}

impl EmbedEncoding {
    fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Yaml => "yaml",
            Self::Binary => "binary",
        }
    }
}

/// The text between `@{` and `}`.
#[derive(Debug, PartialEq, Eq)]
enum Directive<'t> {
    Var(&'t str),
    Embed(&'t str),
    Literal(&'t str),
}

impl<'a> DirectiveExpansion<'a> {
    pub(crate) fn new(
        source: &'a Arc<SourceText>,
        files: &'a dyn FileSource,
        vars: &'a DocumentVars,
        found: &'a mut Diagnostics,
    ) -> Self {
        let bytes = source.text.len();
        Self { source, files, vars, found, bytes, failed: Vec::new(), grafted: None }
    }

    /// Replaces in all strings of a tree. Gives the bytes of the source in which something was refused: what else is
    /// found there follows from it.
    pub(crate) fn expand(mut self, node: &mut YamlNode) -> Vec<(usize, usize)> {
        self.expand_node(node);
        if let Some(at) = self.grafted.filter(|_| node.depth() > MAX_DEPTH) {
            let wrong =
                Diagnostic::error("too-complex", self.source, at, "with what is embedded this is nested too deeply");
            self.found.push(wrong.help(format!("at most {MAX_DEPTH} levels")));
        }
        self.failed
    }

    fn expand_node(&mut self, node: &mut YamlNode) {
        match &mut node.value {
            YamlValue::List(items) => items.iter_mut().for_each(|item| self.expand_node(item)),
            YamlValue::Map(entries) => entries.iter_mut().for_each(|(_, value)| self.expand_node(value)),
            YamlValue::String(_) => {
                let (found, span) = (self.found.len(), node.bytes);
                self.expand_text(node);
                if self.found.len() > found {
                    self.failed.extend(span);
                }
            }
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) => {}
        }
    }

    fn expand_text(&mut self, node: &mut YamlNode) {
        let YamlValue::String(text) = &node.value else { return };
        let text = text.clone();
        let spots = placeholders(&text);
        if spots.is_empty() {
            return;
        }
        let whole = spots.len() == 1 && spots[0] == (0, text.len());
        let mut places = PositionFinder::new(self.source, node);
        let mut result = String::new();
        let mut last = 0;
        let mut moved = false;
        for (start, end) in spots {
            if self.found.len() > MAX_REPORTED && self.found.has_errors() {
                // It is refused, and no more will be told.
                return;
            }
            let spot = &text[start..end];
            let at = places.next(spot);
            result.push_str(&text[last..start]);
            last = end;
            let Some((bytes, encoding)) = self.value(spot, at) else { continue };
            self.bytes = self.bytes.saturating_add(bytes.len());
            if self.bytes > MAX_DOCUMENT {
                self.wrong(
                    "too-large",
                    at,
                    spot,
                    format!("with this the document has more than {MAX_DOCUMENT} bytes"),
                    None,
                );
                return;
            }
            if encoding != EmbedEncoding::Raw && !whole {
                self.wrong(
                    "invalid-encoding",
                    at,
                    spot,
                    format!("invalid encoding: `[{}]` does not work as a part of a larger string", encoding.as_str()),
                    Some("leave only the directive in the string, or use `[raw]`".to_owned()),
                );
                continue;
            }
            match encoding {
                EmbedEncoding::Yaml => {
                    self.graft(node, &bytes, at, spot);
                    return;
                }
                EmbedEncoding::Binary => {
                    result.push_str(&base64::engine::general_purpose::STANDARD.encode(&bytes));
                    moved = true;
                }
                EmbedEncoding::Raw => match String::from_utf8(bytes) {
                    Ok(raw) => {
                        moved |= raw.contains('\n');
                        result.push_str(&raw);
                    }
                    Err(_) => self.wrong(
                        "invalid-encoding",
                        at,
                        spot,
                        "invalid encoding: this is no UTF-8 text".to_owned(),
                        Some("take `[binary]`, which gives base64".to_owned()),
                    ),
                },
            }
        }
        result.push_str(&text[last..]);
        node.value = YamlValue::String(result);
        if moved {
            node.bytes = None;
        }
    }

    /// The bytes that a placeholder stands for; `None` if it was refused.
    fn value(&mut self, spot: &str, at: LazyPosition) -> Option<(Vec<u8>, EmbedEncoding)> {
        let (directive, encoding) = match parse(spot) {
            Ok(parsed) => parsed,
            Err(refusal) => {
                let (code, message, help) = refusal.describe();
                self.wrong(code, at, spot, message, Some(help));
                return None;
            }
        };
        let bytes = match directive {
            Directive::Literal(text) => text.as_bytes().to_vec(),
            Directive::Var(name) => match self.vars.get(name) {
                Some(value) => value.as_bytes().to_vec(),
                None => {
                    let mut wrong = Diagnostic::error(
                        "unexpanded-variable",
                        self.source,
                        at.pos(self.source),
                        format!("unexpanded variable: `{name}` has no value"),
                    )
                    .length(spot.chars().count());
                    wrong = match crate::expr::nearest(name, self.vars.names()) {
                        Some(near) => wrong.help(format!("did you mean `@{{{near}}}`? Or give it: --set {name}=VALUE")),
                        None => wrong.help(format!("give it: --set {name}=VALUE")),
                    };
                    self.found.push(wrong);
                    return None;
                }
            },
            Directive::Embed(path) => match self.files.read(path) {
                Ok(bytes) => bytes,
                Err(error) => {
                    let (code, help) = match &error {
                        FileError::Outside(_) => (
                            "embed-outside",
                            "keep what is embedded beside or below the document, or link nothing out of there",
                        ),
                        FileError::Missing(_) => ("embed-missing", "paths are relative to the document's directory"),
                        FileError::NotAFile(_) => ("embed-not-a-file", "name a regular file"),
                        FileError::TooLarge(_) => ("too-large", "load large data in a script instead of embedding it"),
                        FileError::NoFiles(_) => {
                            ("embed-not-here", "expand the document first; `ebb` does so when it applies one")
                        }
                        FileError::Unreadable { .. } => ("embed-unreadable", "make it readable"),
                    };
                    self.wrong(code, at, spot, error.to_string(), Some(help.to_owned()));
                    return None;
                }
            },
        };
        Some((bytes, encoding))
    }

    /// Puts the tree of a YAML text in the place of a string; several documents as a list.
    fn graft(&mut self, node: &mut YamlNode, bytes: &[u8], place: LazyPosition, spot: &str) {
        let at = place.pos(self.source);
        let text = String::from_utf8_lossy(bytes);
        let inner = SourceText::new(spot, text);
        match yaml::parse(&inner) {
            Ok(mut documents) => {
                // Several are a list; what stands between two `---` and is nothing is none of them.
                if documents.len() > 1 {
                    documents.retain(|document| document.value != YamlValue::Null);
                }
                let mut tree = match documents.len() {
                    0 | 1 => documents.pop().unwrap_or(YamlNode { value: YamlValue::Null, at, bytes: None }),
                    _ => YamlNode { value: YamlValue::List(documents), at, bytes: None },
                };
                tree.moved_to(at);
                *node = tree;
                self.grafted = Some(at);
            }
            Err(error) => {
                let within = error.at.map_or(String::new(), |at| format!(", line {}, column {}", at.line, at.column));
                self.wrong(
                    "embedded-yaml",
                    place,
                    spot,
                    format!("the embedded file is not YAML: {}{within}", error.message),
                    error.help,
                );
            }
        }
    }

    fn wrong(&mut self, code: &'static str, at: LazyPosition, spot: &str, message: String, help: Option<String>) {
        let mut wrong = Diagnostic::error(code, self.source, at.pos(self.source), message).length(spot.chars().count());
        wrong.help = help;
        self.found.push(wrong);
    }
}

/// The place of a placeholder. Counting the characters before a byte takes time, so it is done only for messages.
#[derive(Clone, Copy)]
enum LazyPosition {
    At(LineColumn),
    Byte(usize),
}

impl LazyPosition {
    fn pos(self, source: &SourceText) -> LineColumn {
        match self {
            Self::At(at) => at,
            Self::Byte(byte) => source.place(byte),
        }
    }
}

/// Finds the place of one placeholder after the other in the text that a string was read from.
struct PositionFinder<'a> {
    source: &'a SourceText,
    at: LineColumn,
    span: Option<(usize, usize)>,
}

impl<'a> PositionFinder<'a> {
    fn new(source: &'a SourceText, node: &YamlNode) -> Self {
        Self { source, at: node.at, span: node.bytes }
    }

    fn next(&mut self, spot: &str) -> LazyPosition {
        let Some((start, length)) = self.span else { return LazyPosition::At(self.at) };
        match self.source.text.get(start..start + length).and_then(|raw| raw.find(spot)) {
            Some(offset) => {
                let end = offset + spot.len();
                self.span = Some((start + end, length - end));
                LazyPosition::Byte(start + offset)
            }
            None => LazyPosition::At(self.at),
        }
    }
}

/// Why a placeholder makes no sense.
#[derive(Debug, PartialEq, Eq)]
enum DirectiveError {
    Name(String),
    Operation(String),
    Encoding(String),
    Path,
}

impl DirectiveError {
    fn describe(self) -> (&'static str, String, String) {
        match self {
            Self::Name(name) => (
                "invalid-variable",
                format!("invalid variable name: `{name}`"),
                "a letter, then letters, digits, `_`, `.` or `-`; a literal `@{` is written `@{literal: @}{`"
                    .to_owned(),
            ),
            Self::Operation(operation) => (
                "unsupported-operation",
                format!("unsupported operation: `{operation}`"),
                "there is `@{var}`, `@{embed: path}` and `@{literal: text}`".to_owned(),
            ),
            Self::Encoding(encoding) => (
                "invalid-encoding",
                format!("invalid encoding: `{encoding}`"),
                "there is `[raw]`, `[yaml]` and `[binary]`".to_owned(),
            ),
            Self::Path => ("embed-missing", "no file is named".to_owned(), "write `@{embed: path}`".to_owned()),
        }
    }
}

/// Takes a placeholder apart.
fn parse(spot: &str) -> Result<(Directive<'_>, EmbedEncoding), DirectiveError> {
    let inside = spot.strip_prefix("@{").and_then(|rest| rest.strip_suffix('}')).unwrap_or(spot);
    let Some((operation, rest)) = inside.split_once(':') else {
        let inside = inside.trim();
        let (name, encoding) = encoding(inside)?;
        return match is_variable(name) {
            true => Ok((Directive::Var(name), encoding)),
            false => Err(DirectiveError::Name(inside.to_owned())),
        };
    };
    let (operation, encoding) = encoding(operation.trim())?;
    match operation {
        "embed" if rest.trim().is_empty() => Err(DirectiveError::Path),
        "embed" => Ok((Directive::Embed(rest.trim()), encoding)),
        "literal" if encoding == EmbedEncoding::Raw => Ok((Directive::Literal(rest.trim()), encoding)),
        other => Err(DirectiveError::Operation(other.to_owned())),
    }
}

fn encoding(text: &str) -> Result<(&str, EmbedEncoding), DirectiveError> {
    let Some((name, rest)) = text.split_once('[') else { return Ok((text, EmbedEncoding::Raw)) };
    let Some((word, after)) = rest.rsplit_once(']') else {
        return Err(DirectiveError::Encoding(format!("[{rest}")));
    };
    if !after.trim().is_empty() {
        return Err(DirectiveError::Encoding(format!("[{rest}")));
    }
    let encoding = match word.trim() {
        "raw" => EmbedEncoding::Raw,
        "yaml" => EmbedEncoding::Yaml,
        "binary" => EmbedEncoding::Binary,
        other => return Err(DirectiveError::Encoding(format!("[{other}]"))),
    };
    Ok((name.trim_end(), encoding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_taken_apart() {
        type Case<'t> = (&'t str, Result<(Directive<'t>, EmbedEncoding), DirectiveError>);
        let cases: [Case<'_>; 15] = [
            ("@{dev}", Ok((Directive::Var("dev"), EmbedEncoding::Raw))),
            ("@{ dev }", Ok((Directive::Var("dev"), EmbedEncoding::Raw))),
            ("@{tfstate-bucket}", Ok((Directive::Var("tfstate-bucket"), EmbedEncoding::Raw))),
            ("@{x[binary]}", Ok((Directive::Var("x"), EmbedEncoding::Binary))),
            ("@{embed:f}", Ok((Directive::Embed("f"), EmbedEncoding::Raw))),
            ("@{ embed : f }", Ok((Directive::Embed("f"), EmbedEncoding::Raw))),
            ("@{embed[yaml]: ./a b}", Ok((Directive::Embed("./a b"), EmbedEncoding::Yaml))),
            ("@{embed[ yaml ]: a:b}", Ok((Directive::Embed("a:b"), EmbedEncoding::Yaml))),
            ("@{embed: }", Err(DirectiveError::Path)),
            ("@{literal: @}", Ok((Directive::Literal("@"), EmbedEncoding::Raw))),
            ("@{1x}", Err(DirectiveError::Name("1x".into()))),
            ("@{x:y}", Err(DirectiveError::Operation("x".into()))),
            ("@{x[json]}", Err(DirectiveError::Encoding("[json]".into()))),
            ("@{x[yaml}", Err(DirectiveError::Encoding("[yaml".into()))),
            ("@{embed[]: f}", Err(DirectiveError::Encoding("[]".into()))),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
