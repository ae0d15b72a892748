//! Compares `tests/model/rules.yaml` with the code and with the page of the state protocol, and the codes of errors with the
//! page of the API.

use ebb_protocol::error_code::ErrorCode;
use serde_json::Value;

use crate::tree;

/// Returns the name of each rule, and its edits.
fn rules() -> Vec<(String, Vec<Value>)> {
    let file: Value = serde_saphyr::from_str(&tree::read("tests/model/rules.yaml")).unwrap();
    let rules = file["rules"].as_array().unwrap().iter();
    rules.map(|rule| (rule["rule"].as_str().unwrap().to_owned(), rule["edits"].as_array().unwrap().clone())).collect()
}

#[test]
fn every_edit_of_a_rule_finds_one_place() {
    for (rule, edits) in rules() {
        assert!(!edits.is_empty(), "{rule} has no edit");
        for edit in edits {
            let [file, find, replace] = ["file", "find", "replace"].map(|field| edit[field].as_str().unwrap());
            let count = tree::read(file).matches(find).count();
            assert_eq!(
                count, 1,
                "rule {rule}: change `find` of tests/model/rules.yaml so that it occurs once in {file}, and `replace` \
                 to the same code without the rule: {find}"
            );
            assert!(replace.contains("HOLDS"), "the edit of {rule} in {file} does not contain HOLDS: {replace}");
        }
    }
}

/// Comments name a rule, as in `(rule PostOnce)`.
#[test]
fn every_rule_of_a_comment_exists() {
    let known: Vec<String> = rules().into_iter().map(|(rule, _)| rule).collect();
    let mut seen = 0;
    for file in tree::sources().filter(|file| file.starts_with("shared/") || file.starts_with("functions/")) {
        for named in tree::read(file).split("(rule ").skip(1) {
            let name = named.split(')').next().unwrap_or_default();
            assert!(known.iter().any(|rule| rule == name), "{file} names the rule {name}, which does not exist");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen} comments");
}

#[test]
fn every_rule_is_on_the_page_of_the_protocol() {
    let page = tree::read("docs/src/internals/state.md");
    for (rule, _) in rules() {
        assert_eq!(page.matches(&format!("\n**{rule}.** ")).count(), 1, "{rule} is not on the page");
    }
    let named = page.lines().filter(|line| line.starts_with("**") && line.contains(".** ")).count();
    assert_eq!(named, rules().len(), "rules of the page are missing in tests/model/rules.yaml");
}

#[test]
fn the_page_of_the_api_has_each_code() {
    let page = tree::read("docs/src/api.md");
    let (_, table) = page.split_once("| code | status | meaning |\n|---|---|---|\n").expect("a table of errors");
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    let row = |code: &ErrorCode| {
        let statuses: Vec<String> = code.statuses().iter().map(u16::to_string).collect();
        format!("| `{}` | {} | {} |", code.name(), statuses.join(", "), code.meaning())
    };
    assert_eq!(rows, ErrorCode::ALL.iter().map(row).collect::<Vec<_>>());
}
