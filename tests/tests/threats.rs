//! Checks that every test in the tables of threats and attempts of docs/src/security.md exists and runs.

use std::collections::BTreeSet;

use crate::tree;

const ATTEMPTS: &str = "Attempts on sources, connections and tokens";

/// Returns the rows of the table in a section.
fn rows(title: &str) -> Vec<String> {
    let text = tree::read("docs/src/security.md");
    let section = text.split("\n## ").find(|section| section.lines().next() == Some(title));
    let section = section.unwrap_or_else(|| panic!("no section {title}"));
    section.lines().filter(|line| line.starts_with("| ") && line.contains("::")).map(str::to_owned).collect()
}

/// Returns the tests in rows, as file and function.
fn named(rows: &[String]) -> Vec<(String, String)> {
    let last = rows.iter().filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
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
    mains.iter().filter_map(|main| tree::find(main)).any(|main| lists(&main, "tests", function))
}

/// Returns true if a text defines a macro of tests and has the name of a test.
fn lists(text: &str, tests: &str, function: &str) -> bool {
    text.contains(&format!("macro_rules! {tests}"))
        && text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == function)
}

#[test]
fn every_test_in_the_table_of_threats_runs() {
    let named = named(&rows("Threats"));
    assert!(named.len() > 40, "the table has {} tests", named.len());
    assert_they_run(named);
}

#[test]
fn at_least_forty_attempts_have_a_test() {
    let rows = rows(ATTEMPTS);
    let attempts: BTreeSet<&str> = rows.iter().filter_map(|row| row.split(" | ").next()).collect();
    assert_eq!(attempts.len(), rows.len(), "an attempt is listed twice");
    assert!(attempts.len() >= 40, "the table has {} attempts", attempts.len());
    let named = named(&rows);
    for file in ["source_abuse", "credentials", "api_tokens", "identity_tokens"] {
        assert!(named.iter().any(|(found, _)| found.contains(file)), "no attempt of {file}");
    }
    assert_they_run(named);
}

fn assert_they_run(named: Vec<(String, String)>) {
    let mut wrong = Vec::new();
    for (file, function) in named {
        let found: Vec<&String> = tree::files().iter().filter(|path| path.ends_with(&format!("/{file}"))).collect();
        let [path] = found.as_slice() else {
            wrong.push(format!("{file}: {} files", found.len()));
            continue;
        };
        let text = tree::read(path);
        if path.ends_with(".yaml") {
            // A table that begins with its stack is a test.
            if !text.contains(&format!("\n{function}:\n  stack: ")) {
                wrong.push(format!("{path}: {function} is not a table with a stack"));
            }
            continue;
        }
        if lists(&text, "sessions", &function) {
            continue;
        }
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
