//! Loads documents from text. Loading expands `@{…}`, checks keys, types, names and limits, and records positions.
//!
//! A document is checked in steps, each of which needs a document without the errors of those before it: its syntax, its
//! directives, its structure, its names, and, by [`compile`](crate::compile), its meaning: ranges, contradictions,
//! references, cycles, sensitivity. The first error of the syntax and of each struct is reported, and all of the others.

use std::sync::Arc;

use crate::load::directives::DirectiveExpansion;
use crate::load::reader::{DocumentReader, Strictness};
use crate::load::yaml::{YamlNode, YamlValue};
use crate::{ConnectionDoc, Diagnostic, Diagnostics, PluginDoc, SandboxDoc, SourceDoc, SourceText, SubscriptionDoc};

pub use document::Document;
pub use files::{FileError, FileSource, FolderFiles, MAX_FILE, NoFiles};
pub use names::{MAX_PLUGIN_NAME, MAX_SCRIPT, PluginReference, ReferenceError};
pub use vars::{DocumentVars, VarError};
pub use yaml::{MAX_DEPTH, MAX_DOCUMENT};

pub(crate) use vars::is_variable;

mod bind;
pub(crate) mod collection;
pub(crate) mod directives;
mod document;
mod ebb;
mod files;
mod foreign;
pub(crate) mod lines;
pub(crate) mod names;
mod pod_template;
pub(crate) mod reader;
pub(crate) mod signadot;
mod vars;
pub(crate) mod yaml;

/// Returns all documents of a text in its order, and warnings. `---` separates documents. Empty ones are omitted.
///
/// # Errors
/// Returns the errors of the documents, or an error if the text has none.
pub fn documents(
    source_name: &str,
    text: &str,
    files: &dyn FileSource,
    vars: &DocumentVars,
) -> Result<(Vec<Document>, Diagnostics), Diagnostics> {
    let source = SourceText::new(source_name, text.strip_prefix('\u{feff}').unwrap_or(text));
    let nodes = yaml::parse(&source).or_else(|wrong| collection::parse_unrendered(&source, wrong))?;
    if nodes.is_empty() {
        let empty = Diagnostic::error("empty", &source, None, "the text has no document");
        return Err(empty.help("begin with `apiVersion: ebb.dev/v1`, or with `name:` and `spec:`").into());
    }
    let mut found = Diagnostics::default();
    let mut documents = Vec::new();
    // A single document without `@{…}` is stored unchanged, with its comments and positions.
    let as_written = (nodes.len() == 1 && !source.text.contains("@{")).then(|| source.text.clone());
    for mut node in nodes {
        if DirectiveExpansion::new(&source, files, vars, &mut found).expand(&mut node) {
            let (document, own) = read(&source, &node, as_written.as_deref());
            documents.extend(document);
            found.extend(own);
        }
    }
    found.or(documents)
}

/// Reads a document whose strings are expanded. The stored text is `as_written`, or the document is serialized.
fn read(source: &Arc<SourceText>, node: &YamlNode, as_written: Option<&str>) -> (Option<Document>, Diagnostics) {
    if let Some((noun, help, at)) = foreign::kind(node) {
        let message = format!("this is {noun}, which Ebb does not read");
        return (None, Diagnostic::error("foreign-kind", source, at, message).help(help).into());
    }
    let named = collection::named_by_file(source, node);
    let as_written = as_written.filter(|_| named.is_none());
    let node = named.as_ref().unwrap_or(node);
    let kind = signadot::shape(node);
    let infrakit = kind.is_none() && collection::is_document(node);
    let ours = kind.is_none() && !infrakit && (node.get("apiVersion").is_some() || node.get("kind").is_some());
    let reader = DocumentReader::new(source, if ours { Strictness::Ebb } else { Strictness::Signadot });
    let stored = |node: &YamlNode| as_written.map_or_else(|| written(&reader, node), str::to_owned);
    let document = match kind {
        Some(kind) => signadot::document(&reader, kind, node, stored(&signadot::kept(node))),
        None if infrakit => collection::document(&reader, node, stored(node)).map(Document::Sandbox),
        None if ours => ebb::document(&reader, node, stored(node)),
        None => unknown(&reader, node),
    };
    (document, reader.into_found())
}

fn written(reader: &DocumentReader<'_>, node: &YamlNode) -> String {
    match yaml::write(node.to_json()) {
        Ok(text) => lines::mapped(reader.source, node, text),
        Err(reason) => {
            reader.note(reader.wrong("yaml", node.at, format!("the document cannot be written down again: {reason}")));
            String::new()
        }
    }
}

/// Reports the keys that a document of unknown kind needs. Returns no document.
fn unknown(reader: &DocumentReader<'_>, node: &YamlNode) -> Option<Document> {
    let (at, message) = match (&node.value, node.get("spec")) {
        (YamlValue::Map(_), Some(spec)) if node.get("name").is_some() => {
            (spec.at, "`spec` is neither that of a plugin nor that of a sandbox")
        }
        (YamlValue::Map(_), Some(_)) => (node.at, "missing name beside `spec`"),
        (YamlValue::Map(_), None) => (node.at, "missing name or spec fields"),
        (value, _) => {
            let message = format!("the document is {}; expected a mapping", value.noun());
            reader.note(reader.wrong("wrong-type", node.at, message));
            return None;
        }
    };
    reader.note(reader.wrong("unknown-document", at, message).help(
        "those of Ebb begin with `apiVersion: ebb.dev/v1` and `kind:`; Signadot's have `name:` and `spec:`, with \
         `runner`, `create`, `delete` in a plugin's and `cluster`, `resources`, `forks` in a sandbox's; InfraKit's have \
         `ID:` and `Properties:`, or `kind: resource`",
    ));
    None
}

/// Returns the only document of a text, of any kind.
///
/// # Errors
/// Returns the errors of the document, or an error if the text has no document or several documents.
pub fn document(
    source_name: &str,
    text: &str,
    files: &dyn FileSource,
    vars: &DocumentVars,
) -> Result<Document, Diagnostics> {
    let (mut documents, _) = documents(source_name, text, files, vars)?;
    match (documents.pop(), documents.len()) {
        (Some(document), 0) => Ok(document),
        (last, more) => {
            let message = format!("expected one document, found {}", more + 1);
            let wrong = match last.as_ref().map(Document::parts) {
                Some((_, name, source, _)) => Diagnostic::error("several-documents", source, name.at, message),
                None => Diagnostic::error("several-documents", &SourceText::new(source_name, text), None, message),
            };
            Err(wrong.help("give them one by one").into())
        }
    }
}

/// Returns the plugins of a text. `---` separates plugins.
///
/// # Errors
/// Returns the errors of the documents, or an error for each document that is not a plugin.
pub fn plugins(
    source_name: &str,
    text: &str,
    files: &dyn FileSource,
    vars: &DocumentVars,
) -> Result<Vec<PluginDoc>, Diagnostics> {
    let mut found = Diagnostics::default();
    let mut plugins = Vec::new();
    for document in documents(source_name, text, files, vars)?.0 {
        match document {
            Document::Plugin(plugin) => plugins.push(plugin),
            other => found.push(unwanted(&other, "not-a-plugin", "a plugin")),
        }
    }
    found.or(plugins).map(|(plugins, _)| plugins)
}

macro_rules! loaders_of_one_document {
    ($($function:ident -> $doc:ty = $kind:ident, $noun:literal;)+) => {$(
        #[doc = concat!("Returns the only ", $noun, " of a text.")]
        ///
        /// # Errors
        #[doc = concat!("Returns the errors of the document, or an error if the text is not exactly one ", $noun, ".")]
        pub fn $function(
            source_name: &str,
            text: &str,
            files: &dyn FileSource,
            vars: &DocumentVars,
        ) -> Result<$doc, Diagnostics> {
            match document(source_name, text, files, vars)? {
                Document::$kind(document) => Ok(document),
                other => Err(unwanted(&other, concat!("not-a-", $noun), concat!("a ", $noun)).into()),
            }
        }
    )+};
}

loaders_of_one_document! {
    sandbox -> SandboxDoc = Sandbox, "sandbox";
    event_source -> SourceDoc = Source, "source";
    connection -> ConnectionDoc = Connection, "connection";
    subscription -> SubscriptionDoc = Subscription, "subscription";
}

fn unwanted(document: &Document, code: &'static str, wanted: &str) -> Diagnostic {
    let (noun, name, source, _) = document.parts();
    Diagnostic::error(code, source, name.at, format!("this is {noun}; expected {wanted}"))
}

/// Returns the value of the only document of a text, with all `@{…}` expanded that need no file and no variable. Returns
/// `None` for an invalid text.
pub(crate) fn expanded_tree(text: &str) -> Option<serde_json::Value> {
    let source = SourceText::new("document", text);
    let mut nodes = yaml::parse(&source).ok()?;
    let [node] = nodes.as_mut_slice() else { return None };
    let (vars, mut found) = (DocumentVars::none(), Diagnostics::default());
    DirectiveExpansion::new(&source, &NoFiles, &vars, &mut found).expand(node).then(|| node.to_json())
}

/// Returns the digest of a plugin: `sha256:` and 64 hexadecimal digits over [`PluginDoc::expanded`], without the header
/// line that maps its lines to those of its author's file.
pub fn digest(plugin: &PluginDoc) -> String {
    crate::canonical::digest(crate::source::body(&plugin.expanded))
}
