//! The commands that publish a source and send it an event, against `ebb dev`.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::workdir::Workdir;

const PLUGIN: &str = include_str!("documents/page.yaml");
const SOURCE: &str = include_str!("documents/previews.yaml");

#[tokio::test]
async fn an_event_is_signed_with_the_secret_of_the_server() {
    let (workdir, dev) = Workdir::running().await;
    let source = workdir.write("previews.yaml", SOURCE);
    let opened = json!({
        "action": "opened", "number": 7, "repository": {"id": 1, "name": "shop", "full_name": "o/shop"},
        "pull_request": {"draft": false, "updated_at": "2026-11-21T09:00:00Z", "head": {"repo": {"id": 1}}},
    });
    let payload = workdir.write("opened.json", &opened.to_string());
    let send = async |source: &str, more: &[&str]| {
        let header = "X-GitHub-Event: pull_request";
        let arguments = ["source", "send", source, "--payload", &payload, "--header", header];
        workdir.ebb(&[&arguments[..], more].concat()).await
    };

    // The command reports what is missing, as far as it can know.
    let apply = async || workdir.ebb(&["apply", "-f", &source]).await;
    let applied = apply().await.ends_with(0, "warning: plugin page@1.0.0 is not published");
    applied.ends_with(0, "The secret GITHUB_WEBHOOK is missing: add it to ");
    send("previews", &[]).await.ends_with(1, "the secret GITHUB_WEBHOOK is not on this machine");

    let store = |secret: &str| workdir.write_secrets(&json!({"GITHUB_WEBHOOK": secret}));
    store("a-secret-of-this-test");
    let (secrets, open) = (workdir.state().join("secrets.json"), std::fs::Permissions::from_mode(0o644));
    std::fs::set_permissions(secrets, open).unwrap();
    send("previews", &[]).await.ends_with(1, "run `chmod 600 ");
    store("too-short");
    apply().await.ends_with(0, "store a value of at least 16 characters");
    store("a-secret-of-this-test");

    let rejected = send("previews", &[]).await.ends_with(1, "");
    assert!(rejected.stdout.starts_with("rejected sandbox/pr-7-1: "), "{rejected:#?}");
    let waits = workdir.ebb(&["wait", "pr-7-1", "--timeout", "100ms"]).await;
    waits.ends_with(124, "source previews rejected the event ").ends_with(124, "ebb why pr-7-1");
    workdir.publish("page@1.0.0", PLUGIN).await;
    assert_eq!(apply().await.done().stderr.lines().count(), 1);
    let response: Value = send(&source, &["--delivery", "d1", "-o", "json"]).await.done().json();
    assert_eq!((&response["result"], &response["target"]), (&json!("starting"), &json!("sandbox/pr-7-1")));
    let repeated = send("previews", &["--delivery", "d1"]).await.done();
    assert!(repeated.stdout.starts_with("repeated sandbox/pr-7-1: "), "{repeated:#?}");
    let shown = workdir.ebb(&["get", "sandbox", "pr-7-1"]).await.done();
    let event = "Decided by:  source previews, event d1 of 2026-11-21 09:00:00Z: starts\n";
    assert!(shown.stdout.contains(event), "{shown:#?}");
    let why = workdir.ebb(&["why", "pr-7-1"]).await.done();
    assert!(why.stdout.contains("by source previews, event d1 of 2026-11-21 09:00:00Z: starts\n"), "{why:#?}");
    send("nosuch", &[]).await.ends_with(1, "");
    dev.stop().await;
}
