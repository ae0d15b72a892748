//! The action for GitHub and the template for GitLab, and the script of both.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

const SCRIPT: &str = include_str!("../../../../infra/ci/sandbox.sh");
const ACTION: &str = include_str!("../../../../infra/ci/action.yml");
const TEMPLATE: &str = include_str!("../../../../infra/ci/gitlab.yml");
const PAGE: &str = include_str!("../../../../docs/src/ci.md");

/// Returns the YAML block of the page that begins with a text.
fn block(start: &str) -> Value {
    let mut blocks = PAGE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    serde_saphyr::from_str(blocks.find(|block| block.starts_with(start)).expect(start)).unwrap()
}

/// Returns the table of inputs by the names of column 1, GitHub's, or 2, GitLab's: the other name and the default.
fn documented(column: usize) -> BTreeMap<String, [String; 2]> {
    let (_, table) =
        PAGE.split_once("| input at GitHub | variable at GitLab | meaning | default |\n|---|---|---|---|\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let rows = table.lines().map(|row| {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        (cells[column].to_owned(), [cells[3 - column], cells[4]].map(str::to_owned))
    });
    rows.filter(|(name, _)| name != "–").collect()
}

#[test]
fn the_action_has_the_documented_inputs_and_passes_them_as_variables() {
    let action: Value = serde_saphyr::from_str(ACTION).unwrap();
    let inputs = action["inputs"].as_object().unwrap();
    let rows = documented(1);
    assert_eq!(inputs.keys().collect::<BTreeSet<_>>(), rows.keys().collect());
    let steps = action["runs"]["steps"].as_array().unwrap();
    for step in steps {
        assert!(!step["run"].as_str().unwrap().contains("${{"), "an input becomes a part of a script");
    }
    let [step] = steps.as_slice() else { panic!("{steps:?}") };
    let passed = step["env"].as_object().unwrap();
    assert_eq!(passed.len(), inputs.len());
    for (name, [variable, default]) in rows {
        let variable = if variable == "–" { "EBB_COMMAND".to_owned() } else { variable };
        assert_eq!(passed[&variable], format!("${{{{ inputs.{name} }}}}"));
        let input = &inputs[&name];
        match default.as_str() {
            "required" => assert!(input["required"] == true || input["default"] == "", "{name}"),
            default => assert_eq!(input["default"], default, "{name}"),
        }
    }
}

#[test]
fn the_template_has_the_documented_variables() {
    let template: Value = serde_saphyr::from_str(TEMPLATE).unwrap();
    let rows = documented(2);
    let variables = template[".ebb"]["variables"].as_object().unwrap();
    for (name, value) in variables {
        assert_eq!(value, &rows[name][1], "{name}");
    }
    assert!(variables.contains_key("EBB_ENV_FILE"));
    assert_eq!(template[".ebb-start"]["artifacts"]["reports"]["dotenv"], "$EBB_ENV_FILE");
    for (job, command) in [(".ebb-start", "start"), (".ebb-delete", "delete")] {
        assert_eq!(template[job]["extends"], ".ebb");
        assert_eq!(template[job]["script"], serde_json::json!([format!("sh \"$EBB_SCRIPT\" {command}")]));
    }
    // The script reads these variables and no others.
    let words = SCRIPT.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let read: BTreeSet<&str> = words.filter(|word| word.starts_with("EBB_")).collect();
    let expected = rows.keys().map(String::as_str).filter(|name| *name != "EBB_SCRIPT");
    assert_eq!(read, expected.collect());
}

#[test]
fn the_documented_jobs_have_the_inputs_of_the_action_and_of_the_template() {
    let action: Value = serde_saphyr::from_str(ACTION).unwrap();
    let inputs = action["inputs"].as_object().unwrap();
    let workflow = block("jobs:\n");
    let steps = workflow["jobs"]["test"]["steps"].as_array().unwrap().iter();
    let steps: Vec<&Value> = steps.filter(|step| step["uses"] == "./infra/ci").collect();
    assert_eq!(steps.len(), 2);
    for step in steps {
        let with = step["with"].as_object().unwrap();
        assert!(with.keys().all(|name| inputs.contains_key(name)), "{with:?}");
        let mut required = inputs.iter().filter(|(_, input)| input["required"] == true);
        assert!(required.all(|(name, _)| with.contains_key(name)), "{with:?}");
        let starts = with.get("command").is_none_or(|command| command == "start");
        assert_eq!(with.contains_key("document"), starts, "{with:?}");
    }
    let template: Value = serde_saphyr::from_str(TEMPLATE).unwrap();
    let pipeline = block("include: ");
    for job in ["start", "delete"] {
        assert!(template[pipeline[job]["extends"].as_str().unwrap()].is_object(), "{job}");
    }
    for name in pipeline["variables"].as_object().unwrap().keys() {
        assert!(documented(2).contains_key(name), "{name}");
    }
}
