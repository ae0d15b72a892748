//! Checks that every test in the threat table of docs/src/security.md exists and runs.

use crate::tree;

/// Returns the tests in the table, as file and function.
fn named() -> Vec<(String, String)> {
    let text = tree::read("docs/src/security.md");
    let section = text.split("\n## ").find(|section| section.starts_with("Threats\n")).expect("a section Threats");
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.contains("::"));
    let last = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    let names = last.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`'));
    names
        .map(|name| {
            let (file, function) = name.split_once("::").unwrap_or_else(|| panic!("{name} is not FILE::FUNCTION"));
            (file.to_owned(), function.to_owned())
        })
        .collect()
}

/// Returns true if the `tests!` of a test program lists the function by name. An unlisted function does not run.
fn listed(file: &str, function: &str) -> bool {
    let Some((folder, _)) = file.rsplit_once('/') else { return false };
    let mains = ["tests/tests/functions.rs".to_owned(), format!("{folder}/main.rs")];
    mains.iter().filter_map(|main| tree::find(main)).any(|main| {
        main.contains("macro_rules! tests")
            && main.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == function)
    })
}

#[test]
fn every_test_in_the_table_of_threats_runs() {
    let named = named();
    assert!(named.len() > 40, "the table has {} tests", named.len());
    let mut wrong = Vec::new();
    for (file, function) in named {
        let found: Vec<&String> = tree::files().iter().filter(|path| path.ends_with(&format!("/{file}"))).collect();
        let [path] = found.as_slice() else {
            wrong.push(format!("{file}: {} files", found.len()));
            continue;
        };
        let text = tree::read(path);
        let Some((before, _)) = text.split_once(&format!("fn {function}(")) else {
            wrong.push(format!("{path} has no {function}"));
            continue;
        };
        let attributes = before.rsplit("\n\n").next().unwrap_or_default();
        let is_test = ["#[test]", "::test]", "::test("].iter().any(|text| attributes.contains(text));
        if !(is_test || listed(path, &function)) {
            wrong.push(format!("{path}: {function} is not a test and not in `tests!`"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
