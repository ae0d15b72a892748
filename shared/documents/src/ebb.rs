//! Our documents: `apiVersion: ebb.dev/v1` and a `kind`.

mod param;
mod plugin;
mod sandbox;
mod unit;

pub(crate) use plugin::plugin;
pub(crate) use sandbox::sandbox;

use crate::load::names::{MAX_NAME, NameSyntax};
use crate::load::reader::{DocumentReader, below};
use crate::load::yaml::{YamlKey, YamlNode, YamlValue};
use crate::model::{At, TemplateText, TemplateTree};

/// The only version of the format.
pub(crate) const API_VERSION: &str = "ebb.dev/v1";
pub(crate) const KINDS: [&str; 2] = ["Plugin", "Sandbox"];

/// Which of our documents something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentKind {
    Plugin,
    Sandbox,
}

impl DocumentReader<'_> {
    /// Reads `apiVersion` and `kind`.
    pub(crate) fn kind(&mut self, document: &YamlNode) -> Option<DocumentKind> {
        let top = self.any_map(document, "")?;
        if top.get("apiVersion").is_none() {
            let wrong = self.wrong("missing-key", top.at, "the document has no `apiVersion`");
            self.note(wrong.help(format!("add `apiVersion: {API_VERSION}` at the top")));
        }
        let version = top.get("apiVersion").and_then(|node| self.string(node, "apiVersion"));
        let kind = self.required_string(&top, "kind");
        if let Some(version) = version.filter(|version| version.value != API_VERSION) {
            let wrong = self.wrong("api-version", version.at, format!("`{}` is not read here", version.value));
            self.note(wrong.help(format!("write `apiVersion: {API_VERSION}`")));
            return None;
        }
        let kind = kind?;
        match kind.value.as_str() {
            "Plugin" => Some(DocumentKind::Plugin),
            "Sandbox" => Some(DocumentKind::Sandbox),
            other => {
                let wrong = self.wrong("unknown-kind", kind.at, format!("there is no kind `{other}`"));
                self.note_near(wrong, other, KINDS);
                None
            }
        }
    }

    /// The entries of a mapping from names that the author chose.
    fn named<'n>(
        &mut self,
        node: &'n YamlNode,
        path: &str,
        what: &str,
        shape: NameSyntax,
    ) -> Vec<(At<String>, &'n YamlNode)> {
        let entries = self.entries(node, path).unwrap_or_default();
        let most = if shape == NameSyntax::Environment { 255 } else { MAX_NAME };
        entries
            .iter()
            .map(|(key, value)| {
                let name = named(key);
                self.check_name(&name, what, shape, most);
                (name, value)
            })
            .collect()
    }

    /// A string with `${…}` in it.
    fn text(&mut self, node: &YamlNode, path: &str) -> Option<At<TemplateText>> {
        let text = self.string(node, path)?;
        Some(At { value: TemplateText::Template(text.value), at: text.at })
    }

    /// One name or a list of them.
    fn names(&mut self, node: &YamlNode, path: &str) -> Vec<At<String>> {
        match &node.value {
            YamlValue::List(items) => {
                items.iter().enumerate().filter_map(|(n, item)| self.string(item, &format!("{path}[{n}]"))).collect()
            }
            YamlValue::String(name) => vec![At { value: name.clone(), at: node.at }],
            _ => {
                self.wrong_type(node, path, "a name or a list of names");
                Vec::new()
            }
        }
    }
}

fn named(key: &YamlKey) -> At<String> {
    At { value: key.name.clone(), at: key.at }
}

/// A tree whose strings are templates.
fn tree(node: &YamlNode) -> At<TemplateTree> {
    let value = match &node.value {
        YamlValue::String(text) => TemplateTree::Text(TemplateText::Template(text.clone())),
        YamlValue::List(items) => TemplateTree::List(items.iter().map(tree).collect()),
        YamlValue::Map(entries) => {
            TemplateTree::Map(entries.iter().map(|(key, node)| (key.name.clone(), tree(node))).collect())
        }
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) => TemplateTree::Scalar(node.to_json()),
    };
    At { value, at: node.at }
}

fn inner(path: &str, name: &At<String>) -> String {
    below(path, &name.value)
}

/// The keys that are read, for the test that the schemas have the same.
#[cfg(test)]
pub(crate) mod keys {
    pub(crate) use super::param::KEYS as PARAM;
    pub(crate) use super::plugin::{DEFAULTS, KEYS as PLUGIN, RUNNER};
    pub(crate) use super::sandbox::{KEYS as SANDBOX, RESOURCE};
    pub(crate) use super::unit::{DESCRIBE, INPUT, KEYS as UNIT, OBJECT, OUTPUT, POD, RETRY, WEBHOOK};
}
