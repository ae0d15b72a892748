//! Taking values out of a tree: what is not as it should be is noted, and the reading goes on.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::load::yaml::{YamlKey, YamlNode, YamlValue};
use crate::model::{At, Dialect, LineColumn, SourceText};

/// Reads one document and notes what is wrong with it.
pub(crate) struct DocumentReader<'a> {
    pub(crate) source: &'a Arc<SourceText>,
    pub(crate) dialect: Dialect,
    pub(crate) found: Diagnostics,
}

/// A mapping whose keys are known.
#[derive(Clone, Debug)]
pub(crate) struct MapReader<'n> {
    pub(crate) at: LineColumn,
    pub(crate) path: String,
    entries: &'n [(YamlKey, YamlNode)],
    dialect: Dialect,
}

impl<'n> MapReader<'n> {
    /// The key and value, if they are there. Signadot's reader takes an empty value as an absent one, and a key in
    /// another case as the key.
    pub(crate) fn entry(&self, name: &str) -> Option<(&'n YamlKey, &'n YamlNode)> {
        let exact = self.entries.iter().find(|(key, _)| key.name == name);
        let found = match self.dialect {
            Dialect::Ebb => exact,
            Dialect::Signadot => exact
                .or_else(|| self.entries.iter().find(|(key, _)| key.name.eq_ignore_ascii_case(name)))
                .filter(|(_, node)| node.value != YamlValue::Null),
        };
        found.map(|(key, node)| (key, node))
    }

    /// The value of a key.
    pub(crate) fn get(&self, name: &str) -> Option<&'n YamlNode> {
        self.entry(name).map(|(_, node)| node)
    }

    /// A path below this one, for messages.
    pub(crate) fn below(&self, name: &str) -> String {
        below(&self.path, name)
    }
}

/// A path below another one, for messages.
pub(crate) fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

impl<'a> DocumentReader<'a> {
    pub(crate) fn new(source: &'a Arc<SourceText>, dialect: Dialect) -> Self {
        Self { source, dialect, found: Diagnostics::new() }
    }

    /// An error at a place, to be completed and given to [`Self::note`].
    pub(crate) fn wrong(&self, code: &'static str, at: LineColumn, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, self.source, at, message)
    }

    /// An error that underlines a whole scalar, as far as its line goes.
    pub(crate) fn wrong_at(&self, code: &'static str, node: &YamlNode, message: impl Into<String>) -> Diagnostic {
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

    /// Notes what is wrong.
    pub(crate) fn note(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// Notes what is wrong with a name, with the name that was meant. The search takes time, so it is made only for what
    /// is reported.
    pub(crate) fn note_near<'n>(
        &mut self,
        diagnostic: Diagnostic,
        name: &str,
        candidates: impl IntoIterator<Item = &'n str>,
    ) {
        let diagnostic = if self.found.is_full() { diagnostic } else { diagnostic.suggest(name, candidates) };
        self.note(diagnostic);
    }

    /// A mapping that has no other keys than these.
    pub(crate) fn map<'n>(&mut self, node: &'n YamlNode, path: &str, keys: &[&str]) -> Option<MapReader<'n>> {
        let map = self.any_map(node, path)?;
        for (key, _) in map.entries {
            if keys.contains(&key.name.as_str()) {
                continue;
            }
            let near = keys.iter().find(|known| known.eq_ignore_ascii_case(&key.name));
            let place = if path.is_empty() { "here".to_owned() } else { format!("in `{path}`") };
            match (self.dialect, near) {
                (Dialect::Signadot, Some(near)) if !map.entries.iter().any(|(other, _)| other.name == *near) => {
                    let warning = Diagnostic::warning(
                        "key-case",
                        self.source,
                        key.at,
                        format!("`{}` is taken as `{near}`", key.name),
                    )
                    .help(format!("write `{near}`"));
                    self.note(warning);
                }
                _ => {
                    let wrong = self.wrong("unknown-key", key.at, format!("there is no key `{}` {place}", key.name));
                    self.note_near(wrong, &key.name, keys.iter().copied());
                }
            }
        }
        Some(map)
    }

    /// A mapping with any keys.
    pub(crate) fn any_map<'n>(&mut self, node: &'n YamlNode, path: &str) -> Option<MapReader<'n>> {
        let entries = self.entries(node, path)?;
        Some(MapReader { at: node.at, path: path.to_owned(), entries, dialect: self.dialect })
    }

    /// The entries of a mapping.
    pub(crate) fn entries<'n>(&mut self, node: &'n YamlNode, path: &str) -> Option<&'n [(YamlKey, YamlNode)]> {
        match &node.value {
            YamlValue::Map(entries) => Some(entries),
            _ => {
                self.wrong_type(node, path, "a mapping");
                None
            }
        }
    }

    /// The items of a list.
    pub(crate) fn list<'n>(&mut self, node: &'n YamlNode, path: &str) -> Option<&'n [YamlNode]> {
        match &node.value {
            YamlValue::List(items) => Some(items),
            _ => {
                self.wrong_type(node, path, "a list");
                None
            }
        }
    }

    /// The value of a key that has to be there.
    pub(crate) fn required<'n>(&mut self, map: &MapReader<'n>, key: &str) -> Option<&'n YamlNode> {
        let found = map.get(key);
        if found.is_none() {
            let place = if map.path.is_empty() { "the document".to_owned() } else { format!("`{}`", map.path) };
            let wrong = self.wrong("missing-key", map.at, format!("{place} has no `{key}`"));
            self.note(wrong.help(format!("add `{key}:`")));
        }
        found
    }

    /// A string.
    pub(crate) fn string(&mut self, node: &YamlNode, path: &str) -> Option<At<String>> {
        match &node.value {
            YamlValue::String(text) => Some(At { value: text.clone(), at: node.at }),
            _ => {
                self.wrong_type(node, path, "a string");
                None
            }
        }
    }

    /// A string, if the key is there.
    pub(crate) fn optional_string(&mut self, map: &MapReader<'_>, key: &str) -> Option<At<String>> {
        let node = map.get(key)?;
        self.string(node, &map.below(key))
    }

    /// A string that has to be there and to have something in it.
    pub(crate) fn required_string(&mut self, map: &MapReader<'_>, key: &str) -> Option<At<String>> {
        let node = self.required(map, key)?;
        let text = self.string(node, &map.below(key))?;
        if text.value.is_empty() {
            let wrong = self.wrong("empty", text.at, format!("`{}` is empty", map.below(key)));
            self.note(wrong);
            return None;
        }
        Some(text)
    }

    /// A boolean, if the key is there; `false` if not.
    pub(crate) fn flag(&mut self, map: &MapReader<'_>, key: &str) -> Option<bool> {
        let Some(node) = map.get(key) else { return Some(false) };
        match &node.value {
            YamlValue::Bool(value) => Some(*value),
            _ => {
                self.wrong_type(node, &map.below(key), "a boolean");
                None
            }
        }
    }

    /// A whole number between two bounds, if the key is there.
    pub(crate) fn integer(&mut self, map: &MapReader<'_>, key: &str, least: u64, most: u64) -> Option<u64> {
        let node = map.get(key)?;
        let path = map.below(key);
        match &node.value {
            YamlValue::Number(number) => match number.as_u64().filter(|n| (least..=most).contains(n)) {
                Some(number) => Some(number),
                None => {
                    let wrong = self.wrong("out-of-range", node.at, format!("`{path}` is {number}"));
                    self.note(wrong.help(format!("a whole number from {least} to {most}")));
                    None
                }
            },
            _ => {
                self.wrong_type(node, &path, "a whole number");
                None
            }
        }
    }

    /// Notes that a value has another type than it should.
    pub(crate) fn wrong_type(&mut self, node: &YamlNode, path: &str, wanted: &str) {
        let path = if path.is_empty() { "the document".to_owned() } else { format!("`{path}`") };
        let message = format!("{path} is {}, {wanted} is wanted", node.value.noun());
        let wrong = self.wrong_at("wrong-type", node, message);
        let help = match &node.value {
            YamlValue::Bool(_) | YamlValue::Number(_) if wanted == "a string" => {
                let written = self.written(node);
                Some(format!("quote it: \"{written}\""))
            }
            YamlValue::String(text) if wanted == "a mapping" && text.is_empty() => None,
            YamlValue::String(text) if wanted != "a mapping" && wanted != "a list" => {
                looks_like(text, wanted).then(|| format!("without quotes: {text}"))
            }
            YamlValue::Null => Some("give it a value, or take the key out".to_owned()),
            _ => None,
        };
        self.note(match help {
            Some(help) => wrong.help(help),
            None => wrong,
        });
    }

    /// How a scalar stands in the document.
    pub(crate) fn written(&self, node: &YamlNode) -> String {
        match node.bytes.and_then(|(start, length)| self.source.text.get(start..start + length)) {
            Some(raw) if !raw.trim().is_empty() => raw.trim().to_owned(),
            _ => node.to_json().to_string(),
        }
    }

    /// Where a line and column (from 1) of a string's value stand in the document.
    pub(crate) fn inside(&self, node: &YamlNode, value: &str, at: LineColumn) -> LineColumn {
        if node.bytes.is_none() {
            return node.at;
        }
        // A block begins at its first line that is not empty.
        let empty = u32::try_from(value.chars().take_while(|c| *c == '\n').count()).unwrap_or(0);
        let Some(line) = (node.at.line + at.line).checked_sub(empty + 1) else { return node.at };
        let (Some(source), Some(text)) = (self.source.line(line), value.lines().nth(at.line as usize - 1)) else {
            return node.at;
        };
        match source.rfind(text) {
            Some(byte) if !text.is_empty() => {
                let before = u32::try_from(source[..byte].chars().count()).unwrap_or(u32::MAX);
                LineColumn { line, column: before.saturating_add(at.column) }
            }
            _ => {
                let blanks = source.chars().take_while(|c| c.is_whitespace()).count();
                LineColumn { line, column: u32::try_from(blanks).unwrap_or(u32::MAX).saturating_add(1) }
            }
        }
    }
}

fn looks_like(text: &str, wanted: &str) -> bool {
    match wanted {
        "a boolean" => ["true", "false", "yes", "no", "on", "off"].contains(&text.to_lowercase().as_str()),
        "a whole number" => text.parse::<u64>().is_ok(),
        "a number" => text.parse::<f64>().is_ok(),
        _ => false,
    }
}
