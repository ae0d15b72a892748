//! Documents from elsewhere, if `EBB_SIGNADOT_CORPUS` names a directory of them.

use std::path::{Path, PathBuf};

use ebb_spec::load::{self, Document, FileError, Files, NoFiles, Vars};

use crate::{expanded, meaning};

/// Stands for the files that such a directory does not have.
struct Made;

impl Files for Made {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let template = path.ends_with(".yaml");
        Ok(if template {
            b"spec: {containers: [{name: main}]}\n".to_vec()
        } else {
            b"#!/bin/sh\ntrue\n".to_vec()
        })
    }
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, found),
            false
                if path.extension().is_some_and(|e| e == "yaml") && !path.ends_with("pod-template.yaml") =>
            {
                found.push(path)
            }
            false => {}
        }
    }
}

#[test]
fn published_documents_load() {
    let Some(folder) = std::env::var_os("EBB_SIGNADOT_CORPUS") else { return };
    let mut paths = Vec::new();
    collect(Path::new(&folder), &mut paths);
    assert!(!paths.is_empty());
    let sets = ["dev", "team", "commit", "name", "cluster", "namespace", "port", "tfstate-bucket"];
    let vars = Vars::parse(sets.map(|name| format!("{name}=x")).into_iter().chain(["ttlDur=2d".to_owned()]))
        .unwrap();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let loaded = load::documents(&path.display().to_string(), &text, &Made, &vars)
            .unwrap_or_else(|e| panic!("{e}"));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        for document in loaded.documents {
            assert_eq!(
                matches!(document, Document::Plugin(_)),
                path.ends_with("plugin.yaml"),
                "{}",
                path.display()
            );
            let again = load::document("again", expanded(&document), &NoFiles, &Vars::none())
                .unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(meaning(&document), meaning(&again));
        }
    }
}
