//! Reads collections of InfraKit's resources, in the three forms that InfraKit had.
//!
//! 1. `{ID, Properties: {Resources: {NAME: {Plugin, Type, Properties}}}}`, of the first resource plugin.
//! 2. The same with `Resources` as a list of `{ID, Plugin, Properties}`.
//! 3. `kind: resource` with `metadata.name` and `properties`, of the resource controller.
//!
//! The first two may consist of `Resources` alone. The name of the file is then their ID.
//!
//! Ebb's `kind: Collection` and the `collection` of a resource have the resources of the third form, or contain one of
//! these documents. A collection alone is loaded as a sandbox with one resource.
//!
//! InfraKit's documents are templates of Go. [`parse_unrendered`] reads those that are not valid YAML before they are
//! rendered. The compiler resolves their references, and rejects all other template functions.

use std::sync::Arc;

use serde::Deserialize;

use crate::load::foreign;
use crate::load::names::{MAX_NAME, NameSyntax, valid_name};
use crate::load::yaml::{self, YamlNode, YamlValue};
use crate::model::{
    CollectionDoc, CollectionEntry, CollectionForm, CollectionTarget, ControllerCollection, Entries, KeyedResource,
    LineColumn, ListedResource, Named, PluginCollection, PluginResources, ResourceDoc, ResourceSpec,
};
use crate::{At, Diagnostic, DocumentReader, NodePath, SandboxDoc, SourceText, Strictness};

/// The plugin of a resource with a collection, and the resource of a collection alone.
pub(crate) const NAME: &str = "collection";

/// Texts that replace `{{` and `}}`. YAML reads them as parts of any scalar, and a text next to them forms no other one.
const MARKS: [(&str, &str); 6] = [("^(", ")~"), ("^<", ">~"), ("~(", ")^"), ("~<", ">^"), ("=(", ")+"), ("+<", ">=")];
/// Words that begin a template action without a value.
const STATEMENTS: [&str; 9] = ["if", "else", "end", "range", "with", "define", "template", "block", "include"];
/// Replacements of a quotation mark between them.
const QUOTES: [char; 3] = [';', '%', '!'];

/// The replacements of `{{`, of `}}`, and of a quotation mark between them.
type ActionMarks = (&'static str, &'static str, char);

pub(crate) fn is_document(node: &YamlNode) -> bool {
    let has = |key: &str| node.find(key).is_some();
    match node.find("kind") {
        _ if has("apiVersion") => false,
        Some(kind) => kind.text() == Some("resource") || (has("metadata") && has("properties")),
        None => {
            let resources = node.find("properties").is_some_and(|properties| properties.find("resources").is_some());
            resources || node.get("Resources").is_some() || (has("ID") && has("properties"))
        }
    }
}

/// Returns a document of `Resources` alone with the name of its file as its `ID`. A text without a file has no name.
pub(crate) fn named_by_file(source: &SourceText, node: &YamlNode) -> Option<YamlNode> {
    let YamlValue::Map(entries) = &node.value else { return None };
    let [(key, _)] = entries.as_slice() else { return None };
    let (stem, _) = source.name.rsplit(['/', '\\']).next()?.rsplit_once('.')?;
    let of = |value| YamlNode { value, at: node.at, bytes: None };
    let entry = |name: &str, value| (At { value: name.to_owned(), at: node.at }, of(value));
    let id = YamlValue::String(valid_name(stem, NameSyntax::Signadot));
    let named = vec![entry("ID", id), entry("Properties", node.value.clone())];
    (key.value == "Resources").then(|| of(YamlValue::Map(named)))
}

/// Reads a document of InfraKit as a sandbox. Returns `None` after it has reported an error.
pub(crate) fn document(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<SandboxDoc> {
    let collection = read(reader, node, &NodePath::Root, None)?;
    let name = valid_name(&collection.id.value, NameSyntax::Signadot);
    let name = At { value: name, at: collection.id.at };
    Some(SandboxDoc { name, source: reader.source.clone(), expanded, ..alone(collection) })
}

/// Reads Ebb's `kind: Collection` as a sandbox. Returns `None` after it has reported an error.
pub(crate) fn target(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<SandboxDoc> {
    let CollectionTarget { name, description, cluster, labels, ttl, resources, .. } =
        reader.read_as(Strictness::Infrakit, node, &NodePath::Root)?;
    reader.check_name(&name, "the collection's name", NameSyntax::Signadot, MAX_NAME);
    let collection = CollectionDoc {
        id: name.clone(),
        form: CollectionForm::Controller,
        resources: resources.0,
        text: yaml::write(node.to_json()).unwrap_or_default(),
    };
    warn_of_ignored(reader, &collection.resources, None);
    let source = reader.source.clone();
    Some(SandboxDoc { name, description, cluster, labels, ttl, source, expanded, ..alone(collection) })
}

/// Reads the `collection` of a resource of Ebb's sandbox.
pub(crate) fn embedded(reader: &DocumentReader<'_>, node: &YamlNode, resource: &mut ResourceDoc) {
    let ResourceDoc { name, inner } = resource;
    inner.plugin = At { value: NAME.to_owned(), at: name.at };
    let resources = NodePath::Key(&NodePath::Root, "resources");
    let path = NodePath::Key(&resources, &name.value);
    if let Some(collection) = read(reader, node, &NodePath::Key(&path, NAME), Some(name)) {
        inner.collection = Some(Box::new(collection));
    }
}

/// Returns a sandbox whose only resource has the collection.
fn alone(collection: CollectionDoc) -> SandboxDoc {
    let at = collection.id.at;
    let named = || At { value: NAME.to_owned(), at };
    let inner = ResourceSpec { plugin: named(), collection: Some(Box::new(collection)), ..ResourceSpec::default() };
    SandboxDoc { resources: Entries(vec![Named { name: named(), inner }]), ..SandboxDoc::default() }
}

/// Reads a collection of any form. `name` is the ID of one that consists of `Resources` alone.
fn read(
    reader: &DocumentReader<'_>,
    node: &YamlNode,
    path: &NodePath<'_>,
    name: Option<&At<String>>,
) -> Option<CollectionDoc> {
    let text = yaml::write(node.to_json()).unwrap_or_default();
    if let Some(kind) = node.find("kind").filter(|kind| kind.text() != Some("resource")) {
        let message = format!("the kind {} of InfraKit is not a collection of resources", kind.to_json());
        let wrong = reader.wrong("unknown-kind", kind.at, message);
        reader.note(wrong.help(
            "only `kind: resource` is read; a unit with `infrakit: {plugin: …, interface: controller}` hands such a \
             document to its controller",
        ));
        return None;
    }
    if node.find("kind").is_some() || node.find("metadata").is_some() {
        let ControllerCollection { metadata, options, properties, .. } =
            reader.read_as(Strictness::Infrakit, node, path)?;
        warn_of_ignored(reader, &properties, options.map(|options| options.at));
        let form = CollectionForm::Controller;
        return Some(CollectionDoc { id: metadata.name, form, resources: properties.0, text });
    }
    let properties = node.find("properties");
    if properties.is_none() && name.is_none() {
        let wrong = reader.wrong("missing-key", node.at, "the collection has no `ID`");
        reader.note(
            wrong.help("write `{\"ID\": …, \"Properties\": {\"Resources\": …}}`, or a file of `Resources` alone"),
        );
        return None;
    }
    let name = name.filter(|_| properties.is_none());
    let resources = properties.unwrap_or(node).find("resources");
    let (id, resources) = match resources.map(|resources| &resources.value) {
        Some(YamlValue::List(_)) => plugin_resources(reader, node, path, name, listed_resources)?,
        _ => plugin_resources(reader, node, path, name, keyed_resources)?,
    };
    Some(CollectionDoc { id, form: CollectionForm::Plugin, resources, text })
}

/// Reads the ID and the resources of InfraKit's resource plugin. With a name, the document is `Resources` alone.
fn plugin_resources<'n, R: Deserialize<'n> + Default>(
    reader: &DocumentReader<'_>,
    node: &'n YamlNode,
    path: &NodePath<'_>,
    name: Option<&At<String>>,
    entries: fn(R) -> Vec<Named<CollectionEntry>>,
) -> Option<(At<String>, Vec<Named<CollectionEntry>>)> {
    let (id, PluginResources { resources }) = match name {
        Some(name) => (name.clone(), reader.read_as(Strictness::Infrakit, node, path)?),
        None => {
            let PluginCollection { id, properties } = reader.read_as(Strictness::Infrakit, node, path)?;
            (id, properties)
        }
    };
    Some((id, entries(resources.unwrap_or_default())))
}

fn listed_resources(list: Vec<ListedResource>) -> Vec<Named<CollectionEntry>> {
    let entry = |ListedResource { id, plugin, properties }| Named {
        name: id,
        inner: CollectionEntry { plugin, properties: Some(properties), ..CollectionEntry::default() },
    };
    list.into_iter().map(entry).collect()
}

fn keyed_resources(map: Entries<KeyedResource>) -> Vec<Named<CollectionEntry>> {
    let entry = |Named { name, inner: KeyedResource { mut plugin, instance_type, properties } }| {
        if let Some(instance_type) = instance_type {
            plugin.value = format!("{}/{}", plugin.value, instance_type.value);
        }
        Named { name, inner: CollectionEntry { plugin, properties, ..CollectionEntry::default() } }
    };
    map.0.into_iter().map(entry).collect()
}

/// Warns of the first key that Ebb ignores.
fn warn_of_ignored(reader: &DocumentReader<'_>, resources: &[Named<CollectionEntry>], options: Option<LineColumn>) {
    let ignored = resources.iter().find_map(|resource| {
        let keys = [&resource.observe_interval, &resource.key_selector, &resource.cache_describe_instances];
        keys.into_iter().flatten().map(|value| value.at).next()
    });
    if let Some(at) = options.or(ignored) {
        let message = "`options`, `ObserveInterval`, `KeySelector` and `CacheDescribeInstances` have no effect";
        let warning = Diagnostic::warning("no-effect", reader.source, at, message);
        reader.note(warning.help("Ebb asks a plugin when it makes or destroys a resource, and finds it by its tags"));
    }
}

/// Parses a text that is not YAML because of its template actions. Their braces and quotation marks are replaced by
/// texts of the same length, and restored in the values, so all positions refer to the text.
///
/// # Errors
/// Returns `wrong`, the error of the text itself, if it contains no collection. Returns the error that remains without
/// template actions if it is farther on. A collection with a statement of Go's templates is an error.
pub(crate) fn parse_unrendered(source: &Arc<SourceText>, wrong: Diagnostic) -> Result<Vec<YamlNode>, Diagnostic> {
    let text = &source.text;
    let helm = [".Values.", ".Release.", ".Chart."].iter().find_map(|part| text.find(part));
    if let Some(byte) = helm.filter(|_| text.contains("{{")) {
        let message = "this is a template of Helm, which Ebb does not read";
        let help = "render the chart with `helm template`: a plugin applies its manifests in an `object` unit";
        return Err(Diagnostic::error("foreign-kind", source, source.place(byte), message).help(help));
    }
    let Some(marks) = marks(text).filter(|_| text.contains("{{")) else { return Err(wrong) };
    let (masked, statement) = mask(text, marks);
    let mut nodes = match yaml::parse(&SourceText::new(source.name.as_str(), masked)) {
        Ok(nodes) => nodes,
        Err(other) if other.at > wrong.at => return Err(Diagnostic { source: source.clone(), ..other }),
        Err(_) => return Err(wrong),
    };
    nodes.iter_mut().for_each(|node| restore(node, marks));
    if !nodes.iter().any(|node| has_collection(node) || foreign::kind(node).is_some()) {
        if text.trim_start().starts_with("{{") {
            let message = "this is a template, as InfraKit has them, and has no collection";
            let wrong = Diagnostic::error("foreign-kind", source, wrong.at, message);
            return Err(wrong.help("render it first with `infrakit template`"));
        }
        return Err(wrong.help("quote a text with `{{…}}`; InfraKit's templates are read only in collections"));
    }
    let Some(byte) = statement else { return Ok(nodes) };
    let wrong = Diagnostic::error("reference", source, source.place(byte), "this template statement is not run here");
    Err(wrong.help("render the document first with `infrakit template`"))
}

/// Returns replacements that do not occur in the text or, for quotation marks, in its template actions.
fn marks(text: &str) -> Option<ActionMarks> {
    let is_free = |marks: &(&str, &str)| !text.contains(marks.0) && !text.contains(marks.1);
    let (open, close) = MARKS.into_iter().find(is_free)?;
    let actions = || text.split("{{").skip(1).filter_map(|part| part.split("}}").next());
    let quote = QUOTES.into_iter().find(|&quote| !actions().any(|action| action.contains(quote)))?;
    Some((open, close, quote))
}

fn has_collection(node: &YamlNode) -> bool {
    let is_ours = node.get("kind").is_some_and(|kind| kind.text() == Some("Collection"));
    is_document(node) || is_ours || in_resources(node).next().is_some()
}

/// Returns the collections in the resources of a document, by the name of the resource.
pub(crate) fn in_resources(node: &YamlNode) -> impl Iterator<Item = (&str, &YamlNode)> {
    let resources = match node.get("resources").map(|resources| &resources.value) {
        Some(YamlValue::Map(resources)) => resources.as_slice(),
        _ => &[],
    };
    resources.iter().filter_map(|(key, resource)| Some((key.value.as_str(), resource.get(NAME)?)))
}

/// Returns the text with its template actions replaced, and with blanks for comments and statements. Returns the first
/// byte of the first statement, too.
fn mask(text: &str, (open, close, quote): ActionMarks) -> (String, Option<usize>) {
    let mut masked = String::with_capacity(text.len());
    let mut first = None;
    let mut rest = text;
    while let Some((before, action)) = rest.find("{{").map(|start| rest.split_at(start)) {
        masked.push_str(before);
        let inner = action[2..].trim_start_matches(['-', ' ']);
        let comment = inner.starts_with("/*");
        // A comment that is never closed is searched once.
        let from = if comment { action.find("*/") } else { Some(0) };
        let Some(end) = from.and_then(|from| Some(from + action[from..].find("}}")?)) else {
            rest = action;
            break;
        };
        let assigned = inner.starts_with('$') && action[..end].contains(":=");
        // An action of a template on its own lines before the document is not a part of a value.
        let leads =
            masked.trim().is_empty() && action[end + 2..].lines().next().is_none_or(|rest| rest.trim().is_empty());
        let word = inner.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let statement = assigned || (leads && !comment) || STATEMENTS.contains(&word);
        first = first.or(statement.then_some(masked.len()));
        if comment || statement {
            masked.extend(action.bytes().take(end + 2).map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        } else {
            masked.push_str(open);
            let mut last = ' ';
            for character in action[2..end].chars() {
                masked.push(if character == '"' && last != '\\' { quote } else { character });
                last = character;
            }
            masked.push_str(close);
        }
        rest = &action[end + 2..];
    }
    (masked + rest, first)
}

/// Restores the template actions in all texts of a tree.
fn restore(node: &mut YamlNode, marks: ActionMarks) {
    node.each_mut(&mut |node| match &mut node.value {
        YamlValue::String(text) => *text = unmask(text, marks),
        YamlValue::Map(entries) => entries.iter_mut().for_each(|(key, _)| key.value = unmask(&key.value, marks)),
        _ => {}
    });
}

fn unmask(text: &str, (open, close, quote): ActionMarks) -> String {
    let mut parts = text.split(open);
    let mut restored = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (action, after) = part.split_once(close).unwrap_or((part, ""));
        restored += &format!("{{{{{}}}}}{after}", action.replace(quote, "\""));
    }
    restored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_actions_are_restored_exactly() {
        for text in [r#"a: {{ env "A" }}"#, r#"a: {{ env "A;B" "\"" }} ; "{{ x `%` }}""#] {
            let marks = marks(text).unwrap();
            let (masked, statement) = mask(text, marks);
            assert_eq!((masked.len(), statement), (text.len(), None), "{masked}");
            assert_eq!(unmask(&masked, marks), text);
        }
        assert_eq!(marks(r#"a: {{ env ";%!" }}"#), None);
    }
}
