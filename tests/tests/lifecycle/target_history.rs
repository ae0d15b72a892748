//! The history of a target: who changed it, when and why.

use ebb_protocol::api::{AwaitedParty, RetryResponse, RunState};
use ebb_protocol::history::{HistoryDetail, HistoryPage, RunPage};

use crate::harness::*;

async fn history(harness: &Harness) -> HistoryPage {
    harness.get("/v1/targets/sandbox/a/history").await.is(200).json()
}

pub(crate) async fn each_change_has_an_entry_with_its_caller() {
    let harness = Harness::simple().await;
    let token = harness.token("ann", &["read:own", "targets:write:own"]).await;
    let ann = async |line: &str, body: Option<Value>| harness.with_token(&token, line, body).await;
    ann("POST /v1/targets", Some(simple_request("a", "labels: {team: x}\n"))).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    // Labels change without a run.
    harness.post("/v1/targets", simple_request("a", "labels: {team: y}\n")).await.is(202);
    harness.generation("a", 2).await;
    let own: HistoryPage = ann("GET /v1/targets/sandbox/a/history", None).await.is(200).json();
    assert_eq!(own.entries.len(), 2, "{own:?}");
    ann("DELETE /v1/targets/sandbox/a", None).await.is(202);
    harness.settled("a").await;
    harness.ready("a", "simple").await;

    let page = history(&harness).await;
    let rows = page.entries.iter().map(|entry| {
        let hook = entry.run.as_ref().map_or("", |run| run.hook.as_str());
        (entry.change.words(), entry.by.as_deref().unwrap_or_default(), hook, entry.document.is_some())
    });
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            ("created", "platform", "preStart", true),
            ("deleted", "token ann", "postStop", false),
            ("updated", "role operator", "", true),
            ("created", "token ann", "preStart", true),
        ]
    );
    assert!(page.entries.windows(2).all(|two| two[0].time >= two[1].time && two[0].id < two[1].id), "{page:?}");
    let first = &page.entries[3];
    assert_eq!(first.run.as_ref().map(|run| run.state), Some(RunState::Succeeded));
    let path = format!("/v1/targets/sandbox/a/history/{}", first.id);
    let detail: HistoryDetail = harness.get(&path).await.is(200).json();
    assert_eq!(detail.text.as_deref(), simple_request("a", "labels: {team: x}\n")["document"].as_str());
    // The next instance of the name belongs to another owner.
    ann(&format!("GET {path}"), None).await.is_problem(404, "not-found");
}

pub(crate) async fn runs_are_listed_by_state_and_hook() {
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    harness.receiver.always("POST /make", 500);
    harness.create("b", "simple").await;
    harness.phase("b", TargetPhase::Failed).await;
    for (query, expected) in [
        ("", "a b"),
        ("state=failed", "b"),
        ("kind=sandbox&name=a", "a"),
        ("hook=postStop", ""),
        ("since=2000-01-01T00:00:00Z&hook=preStart", "a b"),
        ("since=9000-01-01T00:00:00Z", ""),
        ("gone=true", ""),
        ("kind=route-group", ""),
    ] {
        let page: RunPage = harness.get(&format!("/v1/runs?{query}")).await.is(200).json();
        let names: Vec<&str> = page.runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names.join(" "), expected, "{query}");
        assert!(page.runs.iter().all(|run| run.by.as_deref() == Some("platform")), "{page:?}");
    }
}

/// The history shows nothing of a sensitive literal, and cannot apply that document again.
pub(crate) async fn a_document_with_a_sensitive_literal_is_not_stored() {
    let harness = Harness::simple().await;
    let plugin =
        "params: {password: {type: string, sensitive: true}}\npreStart:\n  make: {webhook: {url: \"RECEIVER/make\"}}\n";
    harness.publish("secret@1.0.0", plugin).await;
    let rest = "resources: {r: {plugin: secret, params: {password: hunter2}}}\n";
    harness.post("/v1/targets", request_for("a", rest)).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    let page = history(&harness).await;
    assert_eq!(page.entries.iter().filter(|entry| entry.document.is_some()).count(), 0, "{page:?}");
    assert_eq!(page.entries.len(), 1);
}

/// A resource that an update with another size replaces.
const SIZED: &str = r#"
params: {size: {type: integer, default: 1}}
preStart:
  make: {webhook: {url: "RECEIVER/make", body: {size: "${params.size}"}}, retry: {attempts: 1}}
postStop:
  drop: {undoes: make, webhook: {url: "RECEIVER/drop"}, retry: {attempts: 1}}
"#;

/// The history only grows, in the order of time. The state of the target is always the present one: its phase, that of its
/// resource, the first cause and the waits agree after each change.
pub(crate) async fn the_history_is_in_order_and_the_state_is_current() {
    let harness = Harness::new().await;
    harness.publish("sized@1.0.0", SIZED).await;
    let mut seen: Vec<String> = Vec::new();
    let mut last_since = String::new();
    for (request, make, drop, phase, change) in [
        ("size 1", 200_u16, 200_u16, TargetPhase::Ready, "created"),
        ("size 2", 200, 200, TargetPhase::Ready, "updated"),
        ("size 3", 400, 200, TargetPhase::Failed, "updated"),
        ("retry", 200, 200, TargetPhase::Ready, "retried"),
        ("delete", 200, 400, TargetPhase::Stuck, "deleted"),
        ("retry", 200, 200, TargetPhase::Gone, "retried"),
    ] {
        harness.receiver.always("POST /make", make);
        harness.receiver.always("POST /drop", drop);
        match request.split_once(' ') {
            Some((_, size)) => {
                let rest = format!("resources: {{r: {{plugin: sized, params: {{size: {size}}}}}}}\n");
                harness.post("/v1/targets", request_for("a", &rest)).await.is(202);
                harness.generation("a", size.parse().unwrap()).await;
            }
            None if request == "delete" => {
                harness.request(Method::DELETE, "/v1/targets/sandbox/a", None).await.is(202);
            }
            None => {
                let uid = harness.target("a").await.unwrap().info.uid;
                let retried: RetryResponse =
                    harness.post("/v1/targets/sandbox/a/retry", json!({})).await.is(202).json();
                assert_eq!(retried.uid, Some(uid));
            }
        }
        let target = harness.phase("a", phase).await;
        let has_cause = matches!(phase, TargetPhase::Failed | TargetPhase::Stuck);
        assert_eq!(target.resources["r"].phase, phase, "{request}: {target:#?}");
        assert_eq!(target.info.first_cause.is_some(), has_cause, "{request}: {target:#?}");
        // A notification can be on its way.
        let waits = target.info.waits.iter().filter(|wait| wait.awaits != AwaitedParty::Platform);
        let waits = waits.map(|wait| (wait.awaits, wait.since.as_ref()));
        let operator = (AwaitedParty::Operator, Some(&target.info.since));
        assert_eq!(waits.collect::<Vec<_>>(), Vec::from_iter((phase == TargetPhase::Stuck).then_some(operator)));
        let why = harness.why("a").await;
        assert_eq!((why.phase, why.cause.is_some()), (phase, has_cause), "{request}: {why:#?}");
        assert!(target.info.since > last_since, "{request}: {target:#?}");

        let entries = history(&harness).await.entries;
        let newest = &entries[0];
        assert_eq!((newest.change.words(), entries.len()), (change, seen.len() + 1), "{request}: {entries:#?}");
        assert!(newest.time >= last_since && newest.time <= target.info.since, "{request}: {entries:#?}");
        assert!(entries[1..].iter().map(|entry| &entry.id).eq(seen.iter().rev()), "{request}: {entries:#?}");
        seen.push(newest.id.clone());
        last_since = target.info.since;
    }
}
