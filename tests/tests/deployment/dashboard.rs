//! Checks the form of the Grafana dashboard and of the alert rules. `cargo xtask verify api` loads the dashboard with Grafana's
//! SDK, and parses all queries. `targets_and_attempts_are_counted` compares their metrics.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::tree;

/// The columns of Grafana's grid.
const COLUMNS: u64 = 24;

#[test]
fn the_dashboard_has_the_parts_that_grafana_needs() {
    let dashboard: Value = serde_json::from_str(&tree::read("infra/grafana/ebb.json")).unwrap();
    let schema: Value = serde_saphyr::from_str(&tree::read("tests/tests/deployment/dashboard.yaml")).unwrap();
    jsonschema::validator_for(&schema).unwrap().validate(&dashboard).unwrap_or_else(|error| panic!("{error}"));
    let mut found = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(found.insert(format!("id {}", panel["id"])), "{panel}");
        assert!(found.insert(format!("title {}", panel["title"])), "{panel}");
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + width <= COLUMNS, "{panel}");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(found.insert(format!("cell {cell:?}")), "{panel} covers another panel");
        }
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert!(found.insert(format!("query {} of {}", target["refId"], panel["id"])), "{panel}");
        }
    }
}

#[test]
fn each_alert_rule_is_documented_and_says_what_to_do() {
    let file: Value = serde_saphyr::from_str(&tree::read("infra/grafana/alerts.yaml")).unwrap();
    let page = tree::read("docs/src/operations/observability.md");
    let mut names = BTreeSet::new();
    for rule in file["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        let name = rule["alert"].as_str().unwrap();
        assert!(names.insert(name) && page.contains(&format!("| `{name}` | ")), "{rule}");
        for part in ["/expr", "/for", "/labels/severity", "/annotations/summary", "/annotations/action"] {
            let text = rule.pointer(part).and_then(Value::as_str);
            assert!(text.is_some_and(|text| !text.is_empty()), "{name} has no {part}");
        }
    }
}
