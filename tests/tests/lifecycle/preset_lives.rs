//! A sender of each scheme with a target from its creation to its end, and the page about the presets of all senders.

use std::mem::discriminant;

use ebb_documents::presets::PRESETS;
use ebb_tests::preset_lives::{CHANGED, FIRST, PresetLife, SENDERS, lives, secrets};
use futures::future::join_all;

use crate::harness::*;
use crate::lifecycle::documented::{block, document, page};

const API_KEY: &str = "an-API-key";
const PAGE: &str = "source-presets.md";

/// Returns the cells of the table of the page with this header, by row.
fn table(header: &str) -> Vec<Vec<String>> {
    let text = page(PAGE);
    let (_, table) = text.split_once(&format!("\n{header}\n")).unwrap_or_else(|| panic!("no table {header}"));
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

fn words(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns the row about a preset. Its first cell has names, or beginnings of names with `*`.
fn row<'a>(rows: &'a [Vec<String>], preset: &str) -> Option<&'a Vec<String>> {
    let is_it = |name: &str| name == preset || name.strip_suffix('*').is_some_and(|start| preset.starts_with(start));
    rows.iter().find(|cells| words(&cells[0]).any(is_it))
}

pub(crate) async fn each_scheme_has_a_target_from_its_creation_to_its_end() {
    let lives = lives();
    for preset in &PRESETS {
        let scheme = discriminant(&preset.document().verify.unwrap());
        assert!(lives.iter().any(|life| discriminant(&life.verify()) == scheme), "no life like {}", preset.name);
    }
    let harness = Harness::new().await;
    harness.publish("life@1.0.0", include_str!("documents/noted.yaml")).await;
    let mut secrets = secrets();
    for name in ["DAYTONA_API_KEY", "ANTHROPIC_API_KEY"] {
        secrets[name] = json!(API_KEY);
    }
    harness.write_secrets(&secrets);
    let server = harness.operator();
    for (name, origin) in [("daytona", "https://app.daytona.io"), ("anthropic", "https://api.anthropic.com")] {
        let connection = document(PAGE, "Connection", name).replace(origin, harness.receiver.url());
        server.put("Connection", name, &connection).await.is(200);
    }
    // The creation and its redelivery complete their events before the labels change.
    let labels = |note: &str| json!({"id": "s5", "labels": {"note": note}});
    harness.receiver.replies("GET /api/sandbox/s5", &[labels(FIRST), labels(FIRST), labels(CHANGED)]);
    let live = async |life: &PresetLife| {
        let mut source = life.source(&format!("{{r: {{plugin: life@1, params: {{note: \"${{{}}}\"}}}}}}", life.note));
        match life.preset.as_str() {
            "daytona" => source.push_str(&block(PAGE, "fetch:\n  when: ${body.event ")),
            "claude-sessions" => source.push_str(&block(PAGE, "fetch:\n  when: ${body.data.type ")),
            _ => {}
        }
        life.live(&server, &source).await;
    };
    join_all(lives.iter().map(live)).await;
    for life in &lives {
        let notes = [FIRST, CHANGED];
        let notes = notes[..=usize::from(life.is_changed())].iter();
        let expected = notes.flat_map(|note| [format!("POST /make {note}"), format!("POST /drop {note}")]);
        assert_eq!(life.requests(&harness.receiver), expected.collect::<Vec<_>>(), "{}", life.preset);
    }
    // An unverified event sends no request with the credential.
    let fetched = harness.receiver.calls("GET /api/sandbox/s5");
    assert!(fetched.iter().all(|call| call.header("authorization") == format!("Bearer {API_KEY}")), "{fetched:?}");
    assert_eq!(fetched.len(), 4, "creation, update and their redeliveries");
    let fetched = harness.receiver.calls("GET /v1/sessions/sesn_5");
    let headers = |call: &ReceivedCall| [call.header("x-api-key"), call.header("anthropic-version")].map(str::to_owned);
    assert!(fetched.iter().all(|call| headers(call) == [API_KEY, "2023-06-01"]), "{fetched:?}");
    assert_eq!(fetched.len(), 2, "creation and redelivery");
}

/// The page has each preset with its secret, its events, its labels and what is known of them.
pub(crate) async fn each_preset_is_documented() {
    let setup = table("| preset | secret | steps |");
    let names = table("| preset | name | labels |");
    let complete =
        ["| preset | a target for | starts or updates it | ends it |", "| preset | payload | limits |"].map(table);
    let senders: Value = serde_saphyr::from_str(SENDERS).unwrap();
    for preset in &PRESETS {
        let cells = row(&setup, preset.name).unwrap_or_else(|| panic!("no setup of {}", preset.name));
        let verify = preset.document().verify.unwrap();
        assert_eq!(words(&cells[1]).collect::<Vec<_>>(), [verify.secret().value.as_str()], "{}", preset.name);
        for rows in &complete {
            assert!(row(rows, preset.name).is_some(), "{} is not in each table", preset.name);
        }
        if let Some(cells) = row(&names, preset.name) {
            let labels = senders[preset.name]["labels"].as_object().unwrap().keys().map(String::as_str);
            // An example of a value has a `/`.
            let documented = words(&cells[2]).filter(|word| !word.contains('/'));
            assert_eq!(documented.collect::<BTreeSet<_>>(), labels.collect(), "{}", preset.name);
        }
    }
}
