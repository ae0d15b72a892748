//! Tests the messages for documents that are rejected or have warnings.
//!
//! `tests/rejections/GROUP.yaml` has the cases of a group, each below a line `#### NAME`. `GROUP.snap` has the
//! messages. The line `---` separates the documents of a case. A sandbox uses the plugins of its case and those of
//! `compiling::fixtures`.
#![allow(clippy::disallowed_methods, reason = "tests read files")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::compiling::fixtures::{SHARED_PG, TENANT_DB, planned, plugins};
use super::loading::folder;
use crate::load::{self, Document, FolderFiles};
use crate::tests::{repeated, rows};
use crate::{ConnectionDoc, Diagnostic, DiagnosticStyle, Diagnostics, DocumentVars, compile};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rejections");

fn golden(name: &str, shown: &str) {
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => FOLDER }, {
        insta::assert_snapshot!(name, shown);
    });
}

fn drawn<'a>(diagnostics: impl IntoIterator<Item = &'a Diagnostic>) -> String {
    let drawn = diagnostics.into_iter().map(|diagnostic| {
        assert!(diagnostic.at.is_none_or(|at| at.line > 0 && at.column > 0), "{diagnostic:?}");
        diagnostic.drawn(DiagnosticStyle::Plain)
    });
    let text = drawn.collect::<Vec<_>>().join("\n");
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Loads and compiles the documents of a case. Returns the errors, or the clusters of the units and the warnings.
fn check(case: &str) -> Result<String, Diagnostics> {
    let vars = DocumentVars::parse(["team=a", "tfstate-bucket=b"]).unwrap();
    let (mut own, mut sandbox, mut connections) = (Vec::new(), None, BTreeMap::new());
    let mut of_sources = Vec::new();
    for text in case.split("\n---\n") {
        let of_sandbox = ["kind: Sandbox", "kind: Target", "\n  cluster: c"].iter().any(|part| text.contains(part));
        let name = match of_sandbox {
            true => "sandbox.yaml",
            false if text.contains("kind: Source") => "source.yaml",
            false if text.contains("kind: Connection") => "connection.yaml",
            false if text.contains("kind: Subscription") => "subscription.yaml",
            false => "plugin.yaml",
        };
        for document in load::documents(name, text, &FolderFiles::new(folder()), &vars)?.0 {
            match document {
                Document::Plugin(plugin) => own.push(plugin),
                Document::Sandbox(document) => sandbox = Some(document),
                Document::Connection(connection) => {
                    connections.insert(connection.name.value.clone(), connection);
                }
                Document::Source(source) => of_sources.extend(compile::event_source(&source)?.1),
                Document::Subscription(subscription) => compile::subscription(&subscription).map(drop)?,
                Document::RouteGroup(group) => {
                    compile::check_route_group(&group)?;
                    sandbox = Some(group.target);
                }
            }
        }
    }
    let (units, warnings) = match (sandbox, own.as_slice()) {
        (Some(sandbox), _) => {
            own.extend(plugins(&[TENANT_DB, SHARED_PG])?);
            let (mut plan, warnings) = planned(&sandbox, &own)?;
            let problem = |connection: &ConnectionDoc| {
                let lacks = connection.auth.secrets().any(|name| name.value == "NOSUCH");
                lacks.then(|| "the deployment has no secret NOSUCH".to_owned())
            };
            compile::connection::bind(&mut plan, &sandbox, (&connections, problem), None)?;
            let units = plan.hooks.iter().flat_map(|hook| &hook.units);
            let place = |cluster: Option<&str>| cluster.map_or(String::new(), |cluster| format!(" in {cluster}"));
            (units.map(|unit| format!("{}{}\n", unit.key, place(plan.cluster(unit)))).collect(), warnings)
        }
        (None, [plugin, ..]) => (String::new(), compile::check_plugin(plugin)?.0),
        (None, []) => Default::default(),
    };
    Ok(format!("accepted\n{units}{}", drawn(warnings.iter().chain(&of_sources))))
}

fn shown(name: &str, case: &str) -> String {
    format!("#### {name}\n{}\n", check(case).unwrap_or_else(|errors| drawn(errors.iter())))
}

#[test]
fn messages_equal_the_snapshots() {
    let mut groups = 0;
    // Other files are those of a reader.
    let listed = Command::new("git").args(["ls-files"]).current_dir(FOLDER).output().unwrap();
    for file in String::from_utf8(listed.stdout).unwrap().lines().map(|name| Path::new(FOLDER).join(name)) {
        if file.extension().is_some_and(|extension| extension == "yaml") {
            groups += 1;
            let text = format!("\n{}", std::fs::read_to_string(&file).unwrap());
            let cases = text.split("\n#### ").skip(1).map(|case| case.split_once('\n').unwrap());
            let shown: String = cases.map(|(name, case)| shown(name, case)).collect();
            golden(file.file_stem().unwrap().to_str().unwrap(), &shown);
        }
    }
    assert_eq!(groups, 22);
}

#[test]
fn limits_of_documents() {
    let cases = rows::<(String, Vec<(String, usize)>)>("limits_of_documents").into_iter();
    golden("limits", &cases.map(|(name, parts)| shown(&name, &repeated(&parts))).collect::<String>());
}

#[test]
fn the_deepest_document_fits_on_a_usual_stack() {
    let deep = |levels: usize| -> String { (0..levels).map(|n| format!("{}a:\n", " ".repeat(n))).collect() };
    let loading = std::thread::Builder::new().stack_size(1536 << 10).spawn(move || {
        for levels in [1, load::MAX_DEPTH - 1, load::MAX_DEPTH, load::MAX_DEPTH + 1, 100, 2000] {
            let wrong = load::documents("f", &deep(levels), &load::NoFiles, &DocumentVars::none()).unwrap_err();
            let deep = wrong.iter().any(|d| d.code == "too-complex");
            assert_eq!(deep, levels > load::MAX_DEPTH, "{levels} {wrong}");
        }
    });
    loading.unwrap().join().unwrap();
}

/// A check of a sandbox without its plugins reports only errors that do not depend on them.
#[test]
fn documents_are_rejected() {
    let (files, vars) = (load::NoFiles, DocumentVars::none());
    for (wanted, text, expected) in rows::<(String, String, String)>("documents_are_rejected") {
        let loaded = match wanted.as_str() {
            "plugin" => load::plugins("f.yaml", &text, &files, &vars).map(drop),
            "sandbox" => load::sandbox("f.yaml", &text, &files, &vars).map(drop),
            _ => load::sandbox("f.yaml", &text, &files, &vars)
                .and_then(|target| compile::check_target(&target).map(drop)),
        };
        assert_eq!(loaded.unwrap_err().plain(), expected);
    }
}

#[test]
fn only_one_style_has_colours() {
    let wrong = load::plugins("p.yaml", "name: 5\nspec: {runner: {image: a}}\n", &load::NoFiles, &DocumentVars::none())
        .unwrap_err();
    assert!(wrong.drawn(DiagnosticStyle::Coloured).contains('\u{1b}'));
    assert!(!wrong.drawn(DiagnosticStyle::Plain).contains('\u{1b}'));
}
