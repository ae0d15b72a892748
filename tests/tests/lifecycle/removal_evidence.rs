//! The evidence that undone resources are gone: its grades, the grade that a plugin requires, and verifications.

use ebb_protocol::api::TargetDiagnosis;
use ebb_protocol::removal::{RemovalEvidence, RemovalGrade, ResourceRemoval};

use crate::harness::*;

/// `drop` is tried twice more after 409 and after missing evidence.
const PLUGIN: &str = r#"
preStart:
  make: {retry: {attempts: 1}, webhook: {url: "RECEIVER/make"}}
postStop:
  drop:
    undoes: make
    retry: {attempts: 3, backoff: 10ms, on: [409, 423, failed]}
    webhook: {method: DELETE, url: "RECEIVER/thing?token=abc"}
"#;

/// Returns the only removal of a diagnosis.
fn only(why: &TargetDiagnosis) -> ResourceRemoval {
    let [removal] = why.removals.as_slice() else { panic!("{why:#?}") };
    removal.clone()
}

/// Returns the grade of a removal, and the answer to its request.
fn found(removal: &ResourceRemoval) -> (RemovalGrade, Option<&str>) {
    (removal.evidence.grade, removal.evidence.answered.as_deref())
}

/// A server that shows nothing to a credential answers the same as one without the thing.
pub(crate) async fn a_first_not_found_is_unconfirmed() {
    let harness = Harness::new().await;
    harness.receiver.always("DELETE /thing", 404);
    harness.run("a", "strange", PLUGIN, TargetState::Ready).await;
    harness.run("b", "plain", SIMPLE, TargetState::Ready).await;
    for name in ["a", "b"] {
        harness.tear_down(name).await;
        harness.settled(name).await;
    }
    let (target, why) = (harness.target("a").await.unwrap(), harness.why("a").await);
    let removal = only(&why);
    assert_eq!((removal.unit.as_str(), removal.by.as_deref()), ("r/make", Some("r/drop")));
    assert_eq!(found(&removal), (RemovalGrade::Unconfirmed, Some("404")));
    // The values of a query can be secrets.
    let asked = format!("DELETE {}/thing?token=***", harness.receiver.url());
    assert_eq!(removal.evidence.asked, Some(asked));
    assert!(why.summary.ends_with(": 1 resource may remain: r/make"), "{}", why.summary);
    assert_eq!((target.info.unconfirmed, target.removals), (1, vec![removal.clone()]));
    let of_other = harness.why("b").await;
    assert_eq!(only(&of_other).evidence, RemovalEvidence::from(RemovalGrade::Reported));
    assert!(of_other.summary.ends_with(": nothing remains"), "{}", of_other.summary);
    assert_eq!(harness.listed("gone=false").await, [""; 0]);
    assert_eq!(harness.listed("gone=true").await, ["a", "b"]);
    assert_eq!(harness.listed("gone=true&unconfirmed=true").await, ["a"]);
    assert_eq!(harness.listed("unconfirmed=true").await, [""; 0]);
    let [_, gone] = harness.notified("a", &["ready", "gone"]).await.try_into().unwrap();
    assert_eq!(gone["removals"], json!([removal]));
    let [_, gone] = harness.notified("b", &["ready", "gone"]).await.try_into().unwrap();
    assert_eq!(gone["removals"], Value::Null);
}

/// An answer other than *not found* shows that the credential sees the thing. A rejected setup has made none.
pub(crate) async fn earlier_answers_decide_about_not_found() {
    let rows: [(u16, &[u16], RemovalGrade); 7] = [
        (200, &[204], RemovalGrade::Reported),
        (200, &[404], RemovalGrade::Unconfirmed),
        (200, &[410], RemovalGrade::Unconfirmed),
        (200, &[409, 404], RemovalGrade::Reported),
        (200, &[423, 409, 410], RemovalGrade::Reported),
        (403, &[404], RemovalGrade::Confirmed),
        (500, &[404], RemovalGrade::Unconfirmed),
    ];
    for (made, answers, grade) in rows {
        let harness = Harness::new().await;
        harness.receiver.always("POST /make", made);
        harness.receiver.replies("DELETE /thing", answers);
        let phase = if made == 200 { TargetState::Ready } else { TargetState::Failed };
        harness.run("a", "strange", PLUGIN, phase).await;
        let target = harness.tear_down("a").await;
        let why = harness.why("a").await;
        assert_eq!(only(&why).evidence.grade, grade, "{made} {answers:?}: {why:#?}");
        assert_eq!(harness.receiver.count("DELETE /thing"), answers.len(), "{made} {answers:?}");
        let unconfirmed = u32::from(grade == RemovalGrade::Unconfirmed);
        assert_eq!(target.info.unconfirmed, unconfirmed, "{made} {answers:?}");
        if answers == [204] {
            assert_eq!(harness.state("a", Hook::PostStop).await.records, [], "the usual evidence costs no record");
        }
    }
}

/// Connects the plugin `branch` to the receiver.
async fn connect(harness: &Harness) {
    harness.write_secrets(r#"{"TOKEN": "a-token-of-the-provider"}"#);
    let rest = "origin: RECEIVER\nauth: {bearer: {secret: TOKEN}}\nplugins: [branch]\n";
    harness.put("Connection", "api", rest).await.is(200);
}

/// The token of another project gets 404, or a list without the thing.
pub(crate) async fn the_answers_to_another_token_confirm_no_removal() {
    let question = |query: &str| format!("verify: {{webhook: {{connection: api, path: /branches{query}}}, RETRY}}");
    let list = question("?name=a, absent: \"${size(response.body.items) == 0}\"");
    let empty = || CannedReply::ok(json!({"items": []}));
    let wait = "until: {path: /branches/1, gone: true, every: 1s}".to_owned();
    let (shown, hidden) = (RemovalGrade::Confirmed, RemovalGrade::Unconfirmed);
    for (deletion, rest, line, end, same, other) in [
        (202, question("/1"), "GET /branches/1", CannedReply::status(404), shown, hidden),
        (204, question("/1"), "GET /branches/1", CannedReply::status(404), shown, RemovalGrade::Reported),
        (202, list.clone(), "GET /branches", empty(), shown, hidden),
        // The token that made the thing would see it in the list.
        (404, list, "GET /branches", empty(), shown, hidden),
        (202, wait, "GET /branches/1", CannedReply::status(404), shown, hidden),
    ] {
        for (is_changed, expected) in [(false, same), (true, other)] {
            let harness = Harness::new().await;
            connect(&harness).await;
            let retry = "retry: {attempts: 5, backoff: 1s, maxBackoff: 1s, on: [5xx]}";
            let plugin = format!(
                "\npreStart:\n  make: {{webhook: {{connection: api, method: PUT, path: /branches/1}}}}\npostStop:\n  drop:\n    \
                 undoes: make\n    webhook: {{connection: api, method: DELETE, path: /branches/1}}\n    {}\n",
                rest.replace("RETRY", retry)
            );
            harness.receiver.always("DELETE /branches/1", deletion);
            harness.receiver.always(line, 503);
            harness.run("a", "branch", &plugin, TargetState::Ready).await;
            harness.delete("a").await;
            harness.receiver.call(line, 1).await;
            if is_changed {
                harness.write_secrets(r#"{"TOKEN": "a-token-of-another-project"}"#);
            }
            harness.receiver.always(line, end.clone());
            harness.phase("a", TargetState::Gone).await;
            let grade = only(&harness.why("a").await).evidence.grade;
            assert_eq!(grade, expected, "{deletion} {rest} {is_changed}");
        }
    }
}

/// 202 of a server that does not call back says nothing about the end of the removal.
pub(crate) async fn an_accepted_removal_without_a_callback_is_unconfirmed() {
    let harness = Harness::new().await;
    connect(&harness).await;
    let rest = r#"
preStart:
  make: {webhook: {connection: api, path: /branches}}
postStop:
  drop: {undoes: make, webhook: {connection: api, method: DELETE, path: /branches/1}}
"#;
    harness.receiver.always("DELETE /branches/1", 202);
    harness.run("a", "branch", rest, TargetState::Ready).await;
    harness.tear_down("a").await;
    assert_eq!(found(&only(&harness.why("a").await)), (RemovalGrade::Unconfirmed, Some("202")));
}

/// An undo with less evidence than its plugin requires is retried, and the target is stuck.
pub(crate) async fn missing_evidence_stops_the_teardown() {
    for (required, answer, expected) in [
        ("confirmed", 204, "the removal of r/make is reported, but the plugin requires `evidence: confirmed`"),
        ("reported", 404, "/thing?token=*** was answered 404), but the plugin requires `evidence: reported`"),
    ] {
        let harness = Harness::new().await;
        harness.receiver.always("DELETE /thing", answer);
        harness.run("a", "strict", &format!("evidence: {required}{PLUGIN}"), TargetState::Ready).await;
        harness.stuck("a").await;
        assert_eq!(harness.receiver.count("DELETE /thing"), 3);
        let why = harness.why("a").await;
        let reason = why.cause.unwrap().reason.message;
        assert!(reason.contains(expected) && reason.contains("force-complete the unit"), "{reason}");
        assert_eq!((why.remaining.len(), why.removals), (1, vec![]), "the removal is open");
        let request = json!({"unit": "r/drop", "reason": "removed by hand", "by": "ada"});
        harness.post("/v1/targets/sandbox/a/force-complete", request).await.is(202);
        let target = harness.phase("a", TargetState::Gone).await;
        assert_eq!(target.info.unconfirmed, 1);
        let why = harness.why("a").await;
        let overridden = Some("overridden by ada: removed by hand");
        assert_eq!(found(&only(&why)), (RemovalGrade::Unconfirmed, overridden));
        assert!(why.summary.contains("1 resource may remain: r/make; r/drop: overridden by ada"), "{}", why.summary);
    }
}

/// A skipped undo has removed nothing.
pub(crate) async fn a_skipped_undo_is_no_evidence() {
    let skipped = PLUGIN.replace("undoes: make", "undoes: make\n    when: ${target.name == \"other\"}");
    let harness = Harness::new().await;
    harness.run("a", "kept", &skipped, TargetState::Ready).await;
    let target = harness.tear_down("a").await;
    assert_eq!(found(&only(&harness.why("a").await)), (RemovalGrade::Unconfirmed, Some("`when` is false")));
    assert_eq!(target.info.unconfirmed, 1);
    harness.run("b", "strict", &format!("evidence: reported{skipped}"), TargetState::Ready).await;
    harness.stuck("b").await;
    let reason = harness.why("b").await.cause.unwrap().reason.message;
    let expected = "is unconfirmed (`when` is false), but the plugin requires `evidence: reported`";
    assert!(reason.contains(expected), "{reason}");
    assert_eq!(harness.receiver.count("DELETE /thing"), 0);
}

/// Returns a plugin whose undo has this `verify`.
fn verified(verify: &str) -> String {
    format!(
        "runners: {{sh: {{image: \"busybox:1\"}}}}{PLUGIN}    verify:\n      retry: {{attempts: 3, backoff: 10ms}}\n      {verify}\n"
    )
}

const LIST: &str = r#"webhook: {url: "RECEIVER/things", absent: "${size(response.body.items) == 0}"}"#;

/// A list shows that its credential works.
pub(crate) async fn a_list_without_the_thing_confirms_its_removal() {
    let harness = Harness::new().await;
    harness.receiver.always("DELETE /thing", 404);
    harness.receiver.replies("GET /things", &[json!({"items": [1]}), json!({"items": []})]);
    harness.run("a", "verified", &format!("evidence: confirmed\n{}", verified(LIST)), TargetState::Ready).await;
    let target = harness.tear_down("a").await;
    assert_eq!(states(&target, "postStop", ["drop", "drop-verify"]), [UnitState::Succeeded; 2]);
    assert_eq!((harness.receiver.count("DELETE /thing"), harness.receiver.count("GET /things")), (1, 2));
    assert_eq!(harness.receiver.calls("GET /things")[0].token(), "", "the response decides");
    let why = harness.why("a").await;
    let removal = only(&why);
    assert_eq!(removal.by.as_deref(), Some("r/drop-verify"));
    assert_eq!(found(&removal), (RemovalGrade::Confirmed, Some("200")));
    assert!(why.summary.ends_with("nothing remains"), "{}", why.summary);
    assert_eq!(target.info.unconfirmed, 0);
}

pub(crate) async fn a_thing_that_still_exists_stops_the_teardown() {
    for (verify, expected) in [
        (LIST, "the resource still exists: the server answered 200"),
        (r#"webhook: {url: "RECEIVER/things"}"#, "the resource still exists: the server answered 200"),
        (r#"webhook: {url: "RECEIVER/things", absent: "${response.body.none}"}"#, "`absent`"),
        (r##"pod: {runner: sh, script: "#!/bin/sh\nexit 7"}"##, "7"),
    ] {
        let harness = Harness::new().await;
        harness.receiver.always("GET /things", json!({"items": [1]}));
        harness.run("a", "verified", &verified(verify), TargetState::Ready).await;
        harness.stuck("a").await;
        let why = harness.why("a").await;
        let cause = why.cause.unwrap();
        assert_eq!((cause.unit.as_str(), cause.attempt), ("r/drop-verify", 3), "{verify}");
        assert!(cause.reason.message.contains(expected), "{verify}: {}", cause.reason.message);
        assert_eq!(harness.remaining("a").await, [("r/make".to_owned(), Certainty::Exists)], "{verify}");
        assert_eq!(harness.receiver.count("DELETE /thing"), 1, "the undo is done");
    }
}

/// A verification that fails shows that its undo has removed nothing.
pub(crate) async fn a_retry_of_a_verification_repeats_its_undo() {
    let harness = Harness::new().await;
    harness.receiver.always("GET /things", json!({"items": [1]}));
    harness.run("a", "verified", &verified(LIST), TargetState::Ready).await;
    harness.stuck("a").await;
    harness.receiver.always("GET /things", json!({"items": []}));
    let retried = harness.post("/v1/targets/sandbox/a/retry", json!({})).await;
    assert_eq!(retried.is(202).json::<Value>()["units"], json!(["r/drop", "r/drop-verify"]), "{retried:?}");
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(harness.receiver.count("DELETE /thing"), 2);
    assert_eq!(only(&harness.why("a").await).evidence.grade, RemovalGrade::Confirmed);
}

/// Not found as the answer to a question is as ambiguous as the answer to the undo.
pub(crate) async fn not_found_confirms_what_an_undo_has_seen() {
    let question = r#"webhook: {url: "RECEIVER/things"}"#;
    let script = r##"pod: {runner: sh, script: "#!/bin/sh\ntrue"}"##;
    for (verify, answer, grade) in [
        (question, 204, RemovalGrade::Confirmed),
        (question, 404, RemovalGrade::Unconfirmed),
        (script, 404, RemovalGrade::Confirmed),
    ] {
        let harness = Harness::new().await;
        harness.receiver.always("DELETE /thing", answer);
        harness.receiver.always("GET /things", 404);
        harness.run("a", "verified", &verified(verify), TargetState::Ready).await;
        harness.tear_down("a").await;
        let removal = only(&harness.why("a").await);
        let seen = (removal.by.as_deref(), removal.evidence.grade);
        assert_eq!(seen, (Some("r/drop-verify"), grade), "{verify} {answer}");
    }
}
