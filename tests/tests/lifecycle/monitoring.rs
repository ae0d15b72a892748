//! The metrics of one machine: their values, their documentation, the dashboard, and who may read them.

use std::net::Ipv4Addr;

use crate::harness::*;

const PAGE: &str = include_str!("../../../docs/src/operations/observability.md");
const DASHBOARD: &str = include_str!("../../../infra/grafana/ebb.json");

async fn scrape(harness: &Harness, token: Option<&str>) -> ApiReply {
    token.map_or_else(|| harness.anonymous(), |token| harness.caller(token)).get("/metrics").await
}

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
    let unknown: Vec<&str> = names(DASHBOARD).difference(&names(text)).copied().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
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
        assert!(label.starts_with("phase=") || label.starts_with("le="), "{line}");
    }
}

pub(crate) async fn targets_and_attempts_are_counted() {
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    // The metrics of an invocation follow its writes.
    let text = until("the time of the run", async || {
        let reply = scrape(&harness, None).await;
        assert_eq!(reply.is(200).header("content-type"), "text/plain; version=0.0.4");
        reply.body.contains("ebb_run_time_seconds_count 1\n").then_some(reply.body)
    })
    .await;
    assert_documented(&text);
    for line in [
        "ebb_targets{phase=\"ready\"} 1",
        "ebb_targets{phase=\"stuck\"} 0",
        "ebb_dispatched_total 1",
        "ebb_completed_total 1",
        "ebb_failed_total 0",
        "ebb_attempt_time_seconds_count 1",
        "ebb_cluster_outages 0",
        "ebb_notifications_waiting 0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
}

pub(crate) async fn metrics_need_a_token_outside_of_loopback() {
    let harness = Harness::at(Ipv4Addr::UNSPECIFIED.into()).await;
    scrape(&harness, None).await.is_problem(401, "missing-token");
    scrape(&harness, Some("forged")).await.is_problem(401, "invalid-token");
    let token = async |scope: &str| harness.token(&scope.replace(':', "-"), &[scope]).await;
    for scope in ["targets:write", "plugins:write", "sources:write"] {
        let problem = scrape(&harness, Some(&token(scope).await)).await.is_problem(403, "forbidden");
        assert!(problem.detail.starts_with("the request needs the scope read; "), "{problem:?}");
    }
    for reader in [token("read").await, harness.stack().token().to_owned()] {
        scrape(&harness, Some(&reader)).await.is(200);
    }
}

/// A page in a browser gives its own name the address of this machine, to read what it answers.
pub(crate) async fn metrics_need_a_token_under_another_name() {
    let harness = Harness::new().await;
    let status = async |host: &str, token: Option<&str>| {
        let request = harness.http.get(harness.url("/metrics")).header("host", host);
        let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
        request.send().await.unwrap().status().as_u16()
    };
    for host in ["localhost", "LOCALHOST:7878", "127.0.0.1:1", "127.8.8.8", "[::1]:7878"] {
        assert_eq!(status(host, None).await, 200, "{host}");
    }
    for host in ["page.example.org:7878", "localhost.example.org", "127.0.0.1.example.org", "10.0.0.1", "[::2]:7878"] {
        assert_eq!(status(host, None).await, 401, "{host}");
        assert_eq!(status(host, Some(harness.stack().token())).await, 200, "{host}");
    }
}
