//! Each preset with events that are signed as its sender signs them: a target from its creation to its end.

use ebb_documents::presets::PRESETS;
use ebb_tests::preset_lives::{CHANGED, FIRST, LIVES, LifeServer, PresetLife, secrets};
use futures::future::join_all;

use crate::harness::*;

const PLUGIN: &str = r#"
params: {note: {type: string}}
preStart: {make: {webhook: {url: "RECEIVER/make", body: {target: "${target.name}", note: "${params.note}"}}}}
postStop: {drop: {undoes: make, webhook: {url: "RECEIVER/drop", body: {target: "${target.name}", note: "${params.note}"}}}}
"#;
const API_KEY: &str = "an-API-key-of-Daytona";
const PAGE: &str = include_str!("../../../docs/src/source-presets.md");

/// Returns a block of the page that begins with a text.
fn block(start: &str) -> &'static str {
    let mut blocks = PAGE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.starts_with(start)).unwrap_or_else(|| panic!("the page has no block {start}"))
}

fn server(harness: &Harness) -> LifeServer {
    let token = harness.stack().token().to_owned();
    LifeServer { http: harness.http.clone(), url: harness.url(""), token }
}

/// Returns the requests of a target's units, in their order.
fn requests(harness: &Harness, life: &PresetLife) -> Vec<String> {
    let calls = harness.receiver.all().into_iter().filter(|call| call.body["target"] == life.name());
    calls.map(|call| format!("{} {}", call.line, call.body["note"].as_str().unwrap_or_default())).collect()
}

pub(crate) async fn each_preset_has_a_target_from_its_creation_to_its_end() {
    let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    assert_eq!(LIVES.map(|life| life.preset).to_vec(), presets, "a preset has no life");
    let harness = Harness::new().await;
    harness.publish("life@1.0.0", PLUGIN).await;
    let mut secrets = secrets();
    secrets["DAYTONA_API_KEY"] = json!(API_KEY);
    harness.write_secrets(&secrets.to_string());
    let connection = block("apiVersion: ebb.dev/v1\nkind: Connection\nname: daytona\n");
    let connection = connection.replace("https://app.daytona.io", harness.receiver.url());
    harness.request(Method::PUT, "/v1/connections/daytona", Some(json!({"document": connection}))).await.is(200);
    // The creation and its redelivery complete their events before the labels change.
    let labels = |note: &str| json!({"id": "s5", "labels": {"note": note}});
    harness.receiver.replies("GET /api/sandbox/s5", &[labels(FIRST), labels(FIRST), labels(CHANGED)]);
    let server = server(&harness);
    let live = async |life: &PresetLife| {
        let mut source = life.source(&format!("{{r: {{plugin: life@1, params: {{note: \"${{{}}}\"}}}}}}", life.note));
        if life.preset == "daytona" {
            source.push_str(block("fetch:"));
        }
        life.live(&server, &source).await
    };
    let taken = join_all(LIVES.iter().map(live)).await;
    for (life, steps) in LIVES.iter().zip(taken) {
        let place = life.preset;
        assert_eq!(steps.contains(&"update"), life.is_changed, "{place}: {steps:?}");
        let first = [format!("POST /make {FIRST}"), format!("POST /drop {FIRST}")];
        let second = [format!("POST /make {CHANGED}"), format!("POST /drop {CHANGED}")];
        let expected = if life.is_changed { [first, second].concat() } else { first.to_vec() };
        assert_eq!(requests(&harness, life), expected, "{place}");
        let last = server.target(life.target).await.unwrap();
        assert_eq!(last.labels["note"], if life.is_changed { CHANGED } else { FIRST }, "{place}: {:?}", last.labels);
    }
    // An unverified event sends no request with the credential.
    let fetched = harness.receiver.calls("GET /api/sandbox/s5");
    assert!(fetched.iter().all(|call| call.header("authorization") == format!("Bearer {API_KEY}")), "{fetched:?}");
    assert_eq!(fetched.len(), 5, "creation, redelivery, update, older event, event after the end");
}

/// The deployed stack is checked with these sources, too. An update changes a label only, without a run.
pub(crate) async fn targets_without_resources_change_without_a_run() {
    let harness = Harness::new().await;
    harness.write_secrets(&secrets().to_string());
    let server = server(&harness);
    let lives = LIVES.map(PresetLife::without_fetch);
    join_all(lives.iter().map(async |life| life.live(&server, &life.source("{}")).await)).await;
    for life in lives {
        let last = server.target(life.target).await.unwrap();
        assert!(last.runs.iter().all(|run| run.hook != "update"), "{}: {:?}", life.preset, last.runs);
    }
}
