//! The commands that publish a source and send it an event, against `ebb dev`.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::workdir::Workdir;

const PLUGIN: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: page@1.0.0
runners: {shell: {image: "busybox:1.36"}}
preStart: {create: {pod: {script: "#!/bin/true"}}}
"##;
const SOURCE: &str = r#"
apiVersion: ebb.dev/v1
kind: Source
name: previews
preset: github
document: {ttl: 9h, resources: {page: {plugin: page@1.0.0}}}
"#;

#[tokio::test]
async fn an_event_is_signed_with_the_secret_of_the_server() {
    let workdir = Workdir::new();
    let dev = workdir.dev().await;
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
    let applied = workdir.ebb(&["source", "apply", "-f", &source]).await.done();
    assert!(applied.stderr.contains("warning: plugin page@1.0.0 is not published"), "{applied:#?}");
    assert!(applied.stderr.contains("The secret GITHUB_WEBHOOK is missing: add it to "), "{applied:#?}");
    let unsigned = send("previews", &[]).await;
    assert_eq!(unsigned.code, Some(1), "{unsigned:#?}");
    assert!(unsigned.stderr.contains("the secret GITHUB_WEBHOOK is not on this machine"), "{unsigned:#?}");

    let secrets = workdir.state().join("secrets.json");
    std::fs::write(&secrets, r#"{"GITHUB_WEBHOOK": "a-secret-of-this-test"}"#).unwrap();
    std::fs::set_permissions(&secrets, std::fs::Permissions::from_mode(0o644)).unwrap();
    let readable = send("previews", &[]).await;
    assert_eq!(readable.code, Some(1), "{readable:#?}");
    assert!(readable.stderr.contains("run `chmod 600 "), "{readable:#?}");
    std::fs::set_permissions(&secrets, std::fs::Permissions::from_mode(0o600)).unwrap();

    let short = r#"{"GITHUB_WEBHOOK": "too-short"}"#;
    std::fs::write(&secrets, short).unwrap();
    let applied = workdir.ebb(&["source", "apply", "-f", &source]).await.done();
    assert!(applied.stderr.contains("store a value of at least 16 characters"), "{applied:#?}");
    std::fs::write(&secrets, r#"{"GITHUB_WEBHOOK": "a-secret-of-this-test"}"#).unwrap();

    let rejected = send("previews", &[]).await;
    assert_eq!(rejected.code, Some(1), "{rejected:#?}");
    assert!(rejected.stdout.starts_with("rejected sandbox/pr-7-1: "), "{rejected:#?}");
    let waits = workdir.ebb(&["sandbox", "wait", "pr-7-1", "--timeout", "100ms"]).await;
    assert_eq!(waits.code, Some(124), "{waits:#?}");
    assert!(waits.stderr.contains("source previews rejected the event "), "{waits:#?}");
    assert!(waits.stderr.contains("ebb why pr-7-1"), "{waits:#?}");
    workdir.apply("plugin", PLUGIN).await;
    let applied = workdir.ebb(&["source", "apply", "-f", &source]).await.done();
    assert_eq!(applied.stderr.lines().count(), 1, "{applied:#?}");
    let sent = send(&source, &["--delivery", "d1", "-o", "json"]).await.done();
    let response: Value = serde_json::from_str(&sent.stdout).unwrap();
    assert_eq!((&response["result"], &response["target"]), (&json!("starting"), &json!("sandbox/pr-7-1")));
    let repeated = send("previews", &["--delivery", "d1"]).await.done();
    assert!(repeated.stdout.starts_with("repeated sandbox/pr-7-1: "), "{repeated:#?}");
    let shown = workdir.ebb(&["sandbox", "get", "pr-7-1"]).await.done();
    let event = "Decided by:  source previews, event d1 of 2026-11-21 09:00:00Z: starts\n";
    assert!(shown.stdout.contains(event), "{shown:#?}");
    let why = workdir.ebb(&["why", "pr-7-1"]).await.done();
    assert!(why.stdout.contains("by source previews, event d1 of 2026-11-21 09:00:00Z: starts\n"), "{why:#?}");
    let unknown = send("nosuch", &[]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:#?}");
    dev.stop().await;
}
