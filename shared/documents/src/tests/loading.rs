//! Tests loading: fixtures, schemas and directives.
#![allow(clippy::disallowed_methods, reason = "tests read files")]

mod fixtures;
mod schemas;
mod templates;

use crate::diagnostic::Diagnostics;
use crate::load::{self, Document, DocumentVars, FolderFiles};

pub(super) fn folder() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures").to_owned()
}

fn text(name: &str) -> String {
    std::fs::read_to_string(format!("{}/{name}", folder())).unwrap()
}

/// Returns the variables of the fixtures, and an unused one.
fn vars() -> DocumentVars {
    DocumentVars::parse(["dev=jane", "team=a=b", "image=tool:1", "class=STANDARD", "unused=1"]).unwrap()
}

fn fixture(name: &str) -> Vec<Document> {
    load(name, &text(name)).unwrap_or_else(|e| panic!("{e}"))
}

fn load(name: &str, text: &str) -> Result<Vec<Document>, Diagnostics> {
    load::documents(name, text, &FolderFiles::new(folder()), &vars()).map(|(documents, _)| documents)
}

/// Returns a document as text without positions and source, to compare two documents.
fn meaning(document: &Document) -> String {
    let mut document = document.clone();
    let no_source = crate::model::SourceText::new("", "");
    match &mut document {
        Document::Plugin(plugin) => plugin.source = no_source,
        Document::Sandbox(sandbox) => sandbox.source = no_source,
        Document::RouteGroup(group) => group.target.source = no_source,
        Document::Source(source) => source.source = no_source,
        Document::Connection(connection) => connection.source = no_source,
        Document::Subscription(subscription) => subscription.source = no_source,
    }
    let text = format!("{document:#?}");
    let mut parts = text.split("LineColumn {");
    let head = parts.next().unwrap();
    parts.fold(head.to_owned(), |kept, part| kept + part.split_once('}').unwrap().1)
}

/// The stored text has the name, because the file is not known when it is read again.
#[test]
fn resources_alone_are_named_by_their_file() {
    let (text, none) = ("Resources: {a: {Plugin: net, Properties: {}}}\n", DocumentVars::none());
    let first = load::sandbox("in/Shop Net.yml", text, &load::NoFiles, &none).unwrap();
    assert_eq!(first.name.value, "shop-net");
    let again = load::sandbox("document", &first.expanded, &load::NoFiles, &none).unwrap();
    assert_eq!((again.name.value, again.expanded), (first.name.value, first.expanded));
    let nameless = load::sandbox("<stdin>", text, &load::NoFiles, &none).unwrap_err().plain();
    assert!(nameless.contains("the collection has no `ID`"), "{nameless}");
}

const FIXTURES: &str = "bucket.yaml bucket-sandbox.yaml route-group.yaml small.json tenant-db.yaml pr-1234.yaml \
    everything.yaml wired.yaml collection.yaml unrendered.yaml source.yaml values.yaml";
