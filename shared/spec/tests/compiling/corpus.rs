//! Documents from elsewhere, if `EBB_SIGNADOT_CORPUS` names a directory of them: each plugin that loads compiles.
#![allow(clippy::disallowed_methods, reason = "it reads what the variable names")]

use std::path::Path;

use ebb_spec::compile;
use ebb_spec::load::{self, Document, FileError, Files, Vars};

/// Stands for the files that such a directory does not have.
struct Made;

impl Files for Made {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let template: &[u8] = b"spec: {containers: [{name: main}]}\n";
        Ok(if path.ends_with(".yaml") { template } else { b"#!/bin/sh\ntrue\n" }.to_vec())
    }
}

fn visit(dir: &Path, vars: &Vars, seen: &mut usize, wrong: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            visit(&path, vars, seen, wrong);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let Ok(loaded) = load::documents(&path.display().to_string(), &text, &Made, vars) else {
                continue;
            };
            for document in loaded.documents {
                let Document::Plugin(plugin) = document else { continue };
                *seen += 1;
                match compile::check_plugin(&plugin) {
                    Ok(warnings) => wrong.extend(warnings.iter().map(ToString::to_string)),
                    Err(errors) => wrong.push(errors.to_string()),
                }
            }
        }
    }
}

#[test]
fn every_plugin_compiles() {
    let Ok(root) = std::env::var("EBB_SIGNADOT_CORPUS") else { return };
    let sets = ["dev", "team", "commit", "name", "cluster", "namespace", "port", "tfstate-bucket"];
    let vars = Vars::parse(sets.map(|name| format!("{name}=x"))).unwrap();
    let (mut seen, mut wrong) = (0, Vec::new());
    visit(Path::new(&root), &vars, &mut seen, &mut wrong);
    println!("{seen} plugins");
    assert!(seen > 0 && wrong.is_empty(), "{}", wrong.join("\n"));
}
