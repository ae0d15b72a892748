//! Loading, from the outside: fixtures, random values, schemas.
#![allow(clippy::disallowed_methods, reason = "tests read files")]

mod fixtures;
mod random;
mod schemas;
mod templates;

use crate::diagnostic::Diagnostics;
use crate::load::{self, Document, DocumentVars, FolderFiles};

/// The folder of the fixtures.
pub(super) fn folder() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures").to_owned()
}

/// A fixture's text.
fn text(name: &str) -> String {
    std::fs::read_to_string(format!("{}/{name}", folder())).unwrap()
}

/// The variables that the fixtures use, and one that none does.
fn vars() -> DocumentVars {
    DocumentVars::parse(["dev=jane", "team=a=b", "image=tool:1", "class=STANDARD", "unused=1"]).unwrap()
}

/// All documents of a fixture.
fn fixture(name: &str) -> Vec<Document> {
    load(name, &text(name)).unwrap_or_else(|e| panic!("{e}"))
}

fn load(name: &str, text: &str) -> Result<Vec<Document>, Diagnostics> {
    load::documents(name, text, &FolderFiles::new(folder()), &vars()).map(|loaded| loaded.documents)
}

/// A document as text without places and source, to compare what two texts mean.
fn meaning(document: &Document) -> String {
    let mut document = document.clone();
    let nowhere = crate::model::SourceText::new("", "");
    match &mut document {
        Document::Plugin(plugin) => plugin.source = nowhere,
        Document::Sandbox(sandbox) => sandbox.source = nowhere,
        Document::RouteGroup(group) => group.source = nowhere,
    }
    let text = format!("{document:#?}");
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_end().ends_with("LineColumn {") {
            // Two lines of numbers and the closing one.
            lines.nth(2);
        } else {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

const FIXTURES: [&str; 8] = [
    "bucket.yaml",
    "bucket-sandbox.yaml",
    "route-group.yaml",
    "small.json",
    "tenant-db.yaml",
    "pr-1234.yaml",
    "everything.yaml",
    "wired.yaml",
];
