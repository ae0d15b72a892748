//! Expands `@{…}` in the strings of a document, before any other check.
//!
//! `@{var}` is replaced by the value of a variable, `@{embed: path}` by the content of a file. The encoding is `[raw]`
//! (the default), `[yaml]` or `[binary]` (base64). Inserted text is not expanded again, and keys are not expanded.
//! `@{literal: text}` is replaced by its text, so `@{literal: @}{x}` is a literal `@{x}`.

use std::sync::Arc;

use base64::Engine as _;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::load::yaml::{self, MAX_DEPTH, MAX_DOCUMENT, YamlNode, YamlValue, placeholders};
use crate::load::{DocumentVars, FileError, FileSource, is_variable};
use crate::source::{LineColumn, SourceText};

pub(crate) struct DirectiveExpansion<'a> {
    source: &'a Arc<SourceText>,
    files: &'a dyn FileSource,
    vars: &'a DocumentVars,
    found: &'a mut Diagnostics,
    bytes: usize,
    grafted: Option<LineColumn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EmbedEncoding {
    Raw,
    Yaml,
    Binary,
}

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
        Self { source, files, vars, found, bytes, grafted: None }
    }

    /// Expands the directives in all strings of a tree. Returns false if it has reported an error.
    pub(crate) fn expand(mut self, node: &mut YamlNode) -> bool {
        let before = self.found.len();
        node.each_mut(&mut |node| self.expand_text(node));
        if let Some(at) = self.grafted.filter(|_| yaml::depth(&node.to_json()) > MAX_DEPTH) {
            let wrong =
                Diagnostic::error("too-complex", self.source, at, "with what is embedded this is nested too deeply");
            self.found.push(wrong.help(format!("at most {MAX_DEPTH} levels")));
        }
        self.found.len() == before
    }

    fn expand_text(&mut self, node: &mut YamlNode) {
        let YamlValue::String(text) = &node.value else { return };
        let text = text.clone();
        let spots = placeholders(&text);
        if spots.is_empty() {
            return;
        }
        let whole = spots.len() == 1 && spots[0] == (0, text.len());
        let mut left = node.bytes;
        let mut result = String::new();
        let mut last = 0;
        let mut moved = false;
        for (start, end) in spots {
            if self.found.is_full() {
                return;
            }
            let byte = next_byte(self.source, &mut left, &text[start..end]);
            let spot = Spot { text: &text[start..end], at: node.at, byte };
            result.push_str(&text[last..start]);
            last = end;
            let Some((bytes, encoding)) = self.value(&spot) else { continue };
            self.bytes = self.bytes.saturating_add(bytes.len());
            if self.bytes > MAX_DOCUMENT {
                let message = format!("with this the document has more than {MAX_DOCUMENT} bytes");
                return self.wrong(&spot, "too-large", message, None);
            }
            if encoding != EmbedEncoding::Raw && !whole {
                let word = if encoding == EmbedEncoding::Yaml { "yaml" } else { "binary" };
                let message = format!("invalid encoding: `[{word}]` does not work as a part of a larger string");
                let help = "leave only the directive in the string, or use `[raw]`";
                self.wrong(&spot, "invalid-encoding", message, Some(help));
                continue;
            }
            match encoding {
                EmbedEncoding::Yaml => return self.graft(node, &bytes, &spot),
                EmbedEncoding::Binary => {
                    result.push_str(&base64::engine::general_purpose::STANDARD.encode(&bytes));
                    moved = true;
                }
                EmbedEncoding::Raw => match String::from_utf8(bytes) {
                    Ok(raw) => {
                        moved |= raw.contains('\n');
                        result.push_str(&raw);
                    }
                    Err(_) => {
                        let help = "take `[binary]`, which gives base64";
                        self.wrong(&spot, "invalid-encoding", "invalid encoding: this is no UTF-8 text", Some(help));
                    }
                },
            }
        }
        result.push_str(&text[last..]);
        node.value = YamlValue::String(result);
        if moved {
            node.bytes = None;
        }
    }

    /// Returns the value of a placeholder. Returns `None` after it has reported an error.
    fn value(&mut self, spot: &Spot<'_>) -> Option<(Vec<u8>, EmbedEncoding)> {
        let (directive, encoding) = match parse(spot.text) {
            Ok(parsed) => parsed,
            Err((code, message, help)) => {
                self.wrong(spot, code, message, Some(help));
                return None;
            }
        };
        let bytes = match directive {
            Directive::Literal(text) => text.as_bytes().to_vec(),
            Directive::Var(name) => match self.vars.get(name) {
                Some(value) => value.as_bytes().to_vec(),
                None => {
                    let help = match crate::cel::nearest(name, self.vars.names()) {
                        Some(near) => format!("did you mean `@{{{near}}}`? Or give it: --set {name}=VALUE"),
                        None => format!("give it: --set {name}=VALUE"),
                    };
                    let message = format!("unexpanded variable: `{name}` has no value");
                    self.wrong(spot, "unexpanded-variable", message, Some(&help));
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
                    self.wrong(spot, code, error.to_string(), Some(help));
                    return None;
                }
            },
        };
        Some((bytes, encoding))
    }

    /// Replaces a string by the tree of a YAML text. Several documents become a list.
    fn graft(&mut self, node: &mut YamlNode, bytes: &[u8], spot: &Spot<'_>) {
        let at = spot.place(self.source);
        match yaml::parse(&SourceText::new(spot.text, String::from_utf8_lossy(bytes))) {
            Ok(mut documents) => {
                // An empty document between two `---` is not an item of the list.
                if documents.len() > 1 {
                    documents.retain(|document| document.value != YamlValue::Null);
                }
                let of = |value| YamlNode { value, at, bytes: None };
                *node = match documents.len() {
                    0 | 1 => documents.pop().unwrap_or(of(YamlValue::Null)),
                    _ => of(YamlValue::List(documents)),
                };
                node.moved_to(at);
                self.grafted = Some(at);
            }
            Err(error) => {
                let within = error.at.map_or(String::new(), |at| format!(", line {}, column {}", at.line, at.column));
                let message = format!("the embedded file is not YAML: {}{within}", error.message);
                self.wrong(spot, "embedded-yaml", message, error.help.as_deref());
            }
        }
    }

    fn wrong(&mut self, spot: &Spot<'_>, code: &'static str, message: impl Into<String>, help: Option<&str>) {
        let wrong = Diagnostic::error(code, self.source, spot.place(self.source), message);
        let wrong = wrong.length(spot.text.chars().count());
        self.found.push(match help {
            Some(help) => wrong.help(help),
            None => wrong,
        });
    }
}

/// A placeholder: one `@{…}` in a string.
struct Spot<'t> {
    text: &'t str,
    /// The position of its string.
    at: LineColumn,
    /// Its byte offset in the source, if the source contains it.
    byte: Option<usize>,
}

impl Spot<'_> {
    /// Returns the position. Counting characters takes time, so this is called only for messages.
    fn place(&self, source: &SourceText) -> LineColumn {
        self.byte.map_or(self.at, |byte| source.place(byte))
    }
}

/// Returns the byte offset of a placeholder. `left` is the start and length of the rest of its string in the source.
fn next_byte(source: &SourceText, left: &mut Option<(usize, usize)>, spot: &str) -> Option<usize> {
    let (start, length) = (*left)?;
    let offset = source.text.get(start..start + length)?.find(spot)?;
    let end = offset + spot.len();
    *left = Some((start + end, length - end));
    Some(start + offset)
}

/// The error of an invalid placeholder: code, message and help.
type DirectiveError = (&'static str, String, &'static str);

fn parse(spot: &str) -> Result<(Directive<'_>, EmbedEncoding), DirectiveError> {
    let inside = spot.strip_prefix("@{").and_then(|rest| rest.strip_suffix('}')).unwrap_or(spot);
    let Some((operation, rest)) = inside.split_once(':') else {
        let (name, encoding) = encoding(inside.trim())?;
        return match is_variable(name) {
            true => Ok((Directive::Var(name), encoding)),
            false => Err((
                "invalid-variable",
                format!("invalid variable name: `{}`", inside.trim()),
                "a letter, then letters, digits, `_`, `.` or `-`; a literal `@{` is written `@{literal: @}{`",
            )),
        };
    };
    let (operation, encoding) = encoding(operation.trim())?;
    match (operation, rest.trim()) {
        ("embed", "") => Err(("embed-missing", "no file is named".to_owned(), "write `@{embed: path}`")),
        ("embed", path) => Ok((Directive::Embed(path), encoding)),
        ("literal", text) if encoding == EmbedEncoding::Raw => Ok((Directive::Literal(text), encoding)),
        _ => Err((
            "unsupported-operation",
            format!("unsupported operation: `{operation}`"),
            "expected `@{var}`, `@{embed: path}` or `@{literal: text}`",
        )),
    }
}

fn encoding(text: &str) -> Result<(&str, EmbedEncoding), DirectiveError> {
    let Some((name, rest)) = text.split_once('[') else { return Ok((text, EmbedEncoding::Raw)) };
    let encoding = match rest.rsplit_once(']').map(|(word, after)| (word.trim(), after.trim())) {
        Some(("raw", "")) => EmbedEncoding::Raw,
        Some(("yaml", "")) => EmbedEncoding::Yaml,
        Some(("binary", "")) => EmbedEncoding::Binary,
        _ => {
            let message = format!("invalid encoding: `[{rest}`");
            return Err(("invalid-encoding", message, "expected `[raw]`, `[yaml]` or `[binary]`"));
        }
    };
    Ok((name.trim_end(), encoding))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn directives_are_parsed() {
        for (text, expected) in rows::<(String, String)>("directives_are_parsed") {
            let shown = match parse(&text) {
                Ok((directive, encoding)) => format!("{directive:?} {encoding:?}"),
                Err((_, message, _)) => format!("error: {message}"),
            };
            assert_eq!(shown, expected, "{text}");
        }
    }
}
