//! Checks the form of the Grafana dashboard and of the alert rules. `cargo xtask verify api` loads the dashboard with Grafana's
//! SDK, and parses all queries. `targets_and_attempts_are_counted` compares their metrics.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::tree;

/// The columns of Grafana's grid.
const COLUMNS: u64 = 24;

#[track_caller]
fn text(value: &Value) -> &str {
    value.as_str().filter(|text| !text.is_empty()).unwrap_or_else(|| panic!("{value} is not a text"))
}

#[track_caller]
fn list(value: &Value) -> &[Value] {
    value.as_array().filter(|list| !list.is_empty()).unwrap_or_else(|| panic!("{value} is not a list"))
}

#[test]
fn the_dashboard_has_the_parts_that_grafana_needs() {
    let dashboard: Value = serde_json::from_str(&tree::read("infra/grafana/ebb.json")).unwrap();
    assert!(dashboard["schemaVersion"].is_u64());
    for part in ["/uid", "/title", "/time/from", "/time/to", "/refresh"] {
        text(dashboard.pointer(part).unwrap_or_else(|| panic!("{part} is missing")));
    }
    let variable = json!({"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus"});
    assert_eq!(dashboard["templating"], json!({"list": [variable]}));
    let (mut ids, mut titles, mut cells) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in list(&dashboard["panels"]) {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(titles.insert(text(&panel["title"])), "{panel}");
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(width > 0 && height > 0 && x + width <= COLUMNS, "{panel}");
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{panel} covers another panel");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["type"], "timeseries");
        assert_eq!(panel["datasource"], json!({"type": "prometheus", "uid": "${datasource}"}));
        text(&panel["fieldConfig"]["defaults"]["unit"]);
        let mut queries = BTreeSet::new();
        for target in list(&panel["targets"]) {
            assert!(queries.insert(text(&target["refId"])), "{panel}");
            text(&target["legendFormat"]);
            assert!(text(&target["expr"]).contains("ebb_"), "{target}");
        }
    }
}

#[test]
fn each_alert_rule_is_documented_and_says_what_to_do() {
    let file: Value = serde_saphyr::from_str(&tree::read("infra/grafana/alerts.yaml")).unwrap();
    let page = tree::read("docs/src/operations/observability.md");
    let mut names = BTreeSet::new();
    for rule in list(&file["groups"]).iter().flat_map(|group| list(&group["rules"])) {
        let name = text(&rule["alert"]);
        assert!(names.insert(name) && page.contains(&format!("| `{name}` | ")), "{rule}");
        for part in ["/expr", "/for", "/labels/severity", "/annotations/summary", "/annotations/action"] {
            text(rule.pointer(part).unwrap_or_else(|| panic!("{name} has no {part}")));
        }
    }
}
