//! Checks the form of the Grafana dashboard. `cargo xtask verify api` loads it with Grafana's SDK.

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
