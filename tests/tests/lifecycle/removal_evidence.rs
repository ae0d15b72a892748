//! The evidence that undone resources are gone: its grades, the grade that a plugin requires, and verifications.

use ebb_protocol::removal::RemovalGrade;

use crate::harness::*;
use crate::request_table;

const TABLE: &str = "lifecycle/removal_evidence.yaml";

/// `drop` is tried twice more after 409 and after missing evidence.
const PLUGIN: &str = include_str!("documents/strange.yaml");

/// Returns a plugin whose undo has this `verify`.
fn verified(verify: &str) -> String {
    let verify = format!("verify:\n      retry: {{attempts: 3, backoff: 10ms}}\n      {verify}");
    format!("runners: {{sh: {{image: \"busybox:1\"}}}}\n{PLUGIN}    {verify}\n")
}

/// Returns the plugin with an undo whose condition is false.
fn skipped() -> String {
    PLUGIN.replace("undoes: make", "undoes: make\n    when: ${target.name == \"other\"}")
}

const QUESTION: &str = r#"webhook: {url: "RECEIVER/things"}"#;
const LIST: &str = r#"webhook: {url: "RECEIVER/things", absent: "${size(response.body.items) == 0}"}"#;

/// A rejected setup has made nothing. Both answers of *not found* show nothing of a thing that may have been made.
pub(crate) async fn earlier_answers_decide_about_not_found() {
    use RemovalGrade::{Confirmed, Reported, Unconfirmed};
    let rows = [(200_u16, 204_u16, Reported), (200, 410, Unconfirmed), (500, 404, Unconfirmed)];
    for (made, undone, grade) in rows.into_iter().chain([(403, 404, Confirmed), (400, 404, Confirmed)]) {
        let harness = Harness::new().await;
        harness.receiver.always("POST /make", made);
        harness.receiver.always("DELETE /thing", undone);
        let phase = if made == 200 { TargetPhase::Ready } else { TargetPhase::Failed };
        harness.run("a", "strange", PLUGIN, phase).await;
        if made == 400 {
            // A sweep records the start of the attempt, and has sent no other request.
            harness.post("/v1/targets/sandbox/a/retry", json!({})).await.is(202);
            harness.receiver.call("POST /make", 2).await;
            harness.phase("a", phase).await;
        }
        let target = harness.tear_down("a").await;
        let why = harness.why("a").await;
        let [removal] = why.removals.as_slice() else { panic!("{why:#?}") };
        let seen = (removal.by.as_deref(), removal.evidence.grade);
        assert_eq!(seen, (Some("r/drop"), grade), "{made} {undone}");
        assert_eq!(harness.receiver.count("DELETE /thing"), 1, "{made} {undone}");
        assert_eq!(target.info.unconfirmed, u32::from(grade == Unconfirmed), "{made} {undone}");
        if undone == 204 {
            assert_eq!(harness.state("a", Hook::PostStop).await.records, [], "the usual evidence costs no record");
        }
    }
}

/// An undo with less evidence than its plugin requires is retried, and the target is stuck. A skipped undo removes nothing.
pub(crate) async fn missing_evidence_stops_the_teardown() {
    let skipped = skipped();
    let reported = "the removal of r/make is reported, but the plugin requires `evidence: confirmed`";
    let not_found = "/thing?token=*** was answered 404), but the plugin requires `evidence: reported`";
    let no_undo = "is unconfirmed (`when` is false), but the plugin requires `evidence: reported`";
    for (required, plugin, answer, requests, expected) in [
        ("confirmed", PLUGIN, 204, "3", reported),
        ("reported", PLUGIN, 404, "3", not_found),
        ("reported", &skipped, 204, "0", no_undo),
    ] {
        let harness = Harness::new().await;
        harness.receiver.always("DELETE /thing", answer);
        harness.run("a", "strict", &format!("evidence: {required}\n{plugin}"), TargetPhase::Ready).await;
        let names = [("EXPECTED", expected), ("REQUESTS", requests)];
        request_table::play(&harness, TABLE, "missing_evidence_stops_the_teardown", &names).await;
    }
}

/// A verification that fails shows that its undo has removed nothing, so a retry repeats both. A list without the thing
/// confirms the removal, because it shows that its credential works.
pub(crate) async fn a_thing_that_still_exists_stops_the_teardown() {
    for (verify, expected) in [
        (LIST, "the resource still exists: the server answered 200"),
        (QUESTION, "the resource still exists: the server answered 200"),
        (r#"webhook: {url: "RECEIVER/things", absent: "${response.body.none}"}"#, "`absent`"),
        (r##"pod: {runner: sh, script: "#!/bin/sh\nexit 7"}"##, "7"),
    ] {
        let harness = Harness::new().await;
        harness.receiver.always("GET /things", json!({"items": [1]}));
        harness.run("a", "verified", &verified(verify), TargetPhase::Ready).await;
        let test = "a_thing_that_still_exists_stops_the_teardown";
        request_table::play(&harness, TABLE, test, &[("EXPECTED", expected)]).await;
        if verify == LIST {
            assert_eq!(harness.receiver.calls("GET /things")[0].token(), "", "the response decides");
            request_table::play(&harness, TABLE, "a_list_without_the_thing_confirms_its_removal", &[]).await;
        }
    }
}
