//! Loads and compiles every document of a folder.
//!
//! Files that a document embeds and that are not there are made up, and so are values of its variables: what is tried is
//! the document. A document that is written again has to load.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ebb_documents::compile;
use ebb_documents::load::{self, Document, DocumentVars, FileError, FileSource, FolderFiles, NoFiles};

/// Variables of documents; their value is `x` unless a time is wanted.
const VARIABLES: [&str; 8] = ["dev", "team", "commit", "name", "cluster", "namespace", "port", "tfstate-bucket"];

/// The files beside a document, or what could stand there.
struct CorpusFiles(FolderFiles);

impl FileSource for CorpusFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let template: &[u8] = b"spec: {containers: [{name: main}]}\n";
        let script: &[u8] = b"#!/bin/sh\ntrue\n";
        let made = if path.ends_with(".yaml") { template } else { script };
        self.0.read(path).or_else(|_| Ok(made.to_vec()))
    }
}

/// The place of the documents.
#[derive(clap::Args)]
pub(crate) struct CorpusArgs {
    /// The folder
    folder: PathBuf,
}

/// Tries all documents, and returns those that are wrong.
pub(crate) fn tried(arguments: &CorpusArgs) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    collect(&arguments.folder, &mut paths)?;
    anyhow::ensure!(!paths.is_empty(), "there is no document in {}", arguments.folder.display());
    paths.sort();
    let texts = VARIABLES.iter().map(|name| format!("{name}=x"));
    let vars = DocumentVars::parse(texts.chain(["ttlDur=2d".to_owned()]))?;
    let mut wrong = Vec::new();
    for path in &paths {
        match try_one(path, &vars) {
            Ok(what) => println!("{}: {what}", path.display()),
            Err(error) => wrong.push(format!("{}: {error:#}", path.display())),
        }
    }
    println!("{} documents, {} of them wrong", paths.len(), wrong.len());
    Ok(wrong)
}

/// Every YAML file but pod templates, which are parts of documents.
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

fn try_one(path: &Path, vars: &DocumentVars) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)?;
    let beside = CorpusFiles(FolderFiles::new(path.parent().unwrap_or(Path::new("."))));
    let loaded = load::documents(&path.display().to_string(), &text, &beside, vars)?;
    let mut said = Vec::new();
    for document in loaded.documents {
        let (what, written) = match &document {
            Document::Plugin(plugin) => {
                compile::check_plugin(plugin)?;
                ("plugin", &plugin.expanded)
            }
            Document::Sandbox(sandbox) => ("sandbox", &sandbox.expanded),
            Document::RouteGroup(group) => ("route group", &group.expanded),
        };
        load::document("written again", written, &NoFiles, &DocumentVars::none())?;
        said.push(what);
    }
    Ok(said.join(", "))
}
