//! Loads and compiles every document of a folder.
//!
//! Missing embedded files and values of variables are replaced by placeholders. The expanded document must load again.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ebb_documents::compile;
use ebb_documents::load::{self, Document, DocumentVars, FileError, FileSource, FolderFiles, NoFiles};

/// Variables of documents. Their value is `x`, except for durations.
const VARIABLES: [&str; 8] = ["dev", "team", "commit", "name", "cluster", "namespace", "port", "tfstate-bucket"];

/// The files next to a document, or placeholders for missing ones.
struct CorpusFiles(FolderFiles);

impl FileSource for CorpusFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let template: &[u8] = b"spec: {containers: [{name: main}]}\n";
        let script: &[u8] = b"#!/bin/sh\ntrue\n";
        let placeholder = if path.ends_with(".yaml") { template } else { script };
        self.0.read(path).or_else(|_| Ok(placeholder.to_vec()))
    }
}

/// The folder of the documents.
#[derive(clap::Args)]
pub(crate) struct CorpusArgs {
    /// The folder
    folder: PathBuf,
}

/// Checks all documents and returns the errors.
pub(crate) fn check(arguments: &CorpusArgs) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    collect(&arguments.folder, &mut paths)?;
    anyhow::ensure!(!paths.is_empty(), "no document in {}", arguments.folder.display());
    paths.sort();
    let texts = VARIABLES.iter().map(|name| format!("{name}=x"));
    let vars = DocumentVars::parse(texts.chain(["ttlDur=2d".to_owned()]))?;
    let mut wrong = Vec::new();
    for path in &paths {
        match check_document(path, &vars) {
            Ok(kinds) => println!("{}: {kinds}", path.display()),
            Err(error) => wrong.push(format!("{}: {error:#}", path.display())),
        }
    }
    println!("{} documents, {} invalid", paths.len(), wrong.len());
    Ok(wrong)
}

/// Collects all YAML files except pod templates, which are parts of documents.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|end| end == "yaml") && !path.ends_with("pod-template.yaml") {
            found.push(path);
        }
    }
    Ok(())
}

fn check_document(path: &Path, vars: &DocumentVars) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)?;
    let beside = CorpusFiles(FolderFiles::new(path.parent().unwrap_or(Path::new("."))));
    let loaded = load::documents(&path.display().to_string(), &text, &beside, vars)?;
    let mut kinds = Vec::new();
    for document in loaded.documents {
        let (kind, expanded) = match &document {
            Document::Plugin(plugin) => {
                compile::check_plugin(plugin)?;
                ("plugin", &plugin.expanded)
            }
            Document::Sandbox(sandbox) => ("sandbox", &sandbox.expanded),
            Document::RouteGroup(group) => ("route group", &group.target.expanded),
            Document::Connection(connection) => ("connection", &connection.expanded),
            Document::Subscription(subscription) => {
                compile::subscription(subscription)?;
                ("subscription", &subscription.expanded)
            }
            Document::Source(source) => {
                compile::event_source(source)?;
                ("source", &source.expanded)
            }
        };
        load::document("the expanded document", expanded, &NoFiles, &DocumentVars::none())?;
        kinds.push(kind);
    }
    Ok(kinds.join(", "))
}
