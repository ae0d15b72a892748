//! The metrics of one machine: their values, documentation, dashboard and alert rules. The table has who may read them.

use crate::harness::*;

const PAGE: &str = include_str!("../../../docs/src/operations/observability.md");
const DASHBOARD: &str = include_str!("../../../infra/grafana/ebb.json");
const ALERTS: &str = include_str!("../../../infra/grafana/alerts.yaml");

/// Returns the names of metrics in a text, without those of relays.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("ebb_") && !word.starts_with("ebb_relay_")).collect()
}

/// Returns the names of the metrics that a text of Prometheus describes.
fn exposed(text: &str) -> BTreeSet<&str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).collect()
}

/// Each metric is documented and on the dashboard. The rules of `promtool check metrics` that concern names, and labels with
/// few values only.
fn assert_documented(text: &str) {
    assert_eq!(names(PAGE), exposed(text));
    for queries in [DASHBOARD, ALERTS] {
        let unknown: Vec<&str> = names(queries).difference(&names(text)).copied().collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
    for name in exposed(text) {
        // Queries name the buckets of a histogram.
        let is_shown = names(DASHBOARD).iter().any(|shown| shown.trim_end_matches("_bucket") == name);
        assert!(is_shown && text.contains(&format!("# HELP {name} ")), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        let has_type = |kind: &str| text.contains(&format!("# TYPE {name} {kind}\n"));
        assert_eq!(name.ends_with("_total"), has_type("counter"), "{name}");
        assert!(name.ends_with("_seconds") || !has_type("histogram"), "{name}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((_, label)) = line.split_once('{') else { continue };
        let is_bounded = ["phase=", "le=", "plugin=", "state="].iter().any(|name| label.starts_with(name));
        assert!(is_bounded, "{line}");
    }
}

pub(crate) async fn targets_and_attempts_are_counted() {
    let harness = Harness::simple().await;
    request_table::play(&harness, "lifecycle/monitoring.yaml", "targets_and_attempts_are_counted", &[]).await;
    let anonymous = ApiClient { authorization: None, ..harness.operator() };
    assert_documented(&anonymous.get("/metrics").await.is(200).body);
}
