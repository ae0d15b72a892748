//! Events of a source: a pull request of GitHub from its creation to its end, and requests that change nothing.

use aws_lc_rs::hmac;
use ebb_protocol::api::{SourceDetail, SourceList, SourceResponse, SourceResult};
use ebb_protocol::time::rfc3339;

use crate::harness::*;

const SECRET: &str = "a secret of the tests";
const SOURCE: &str = r#"
preset: github
document:
  resources: {r: {plugin: db@1, params: {title: "${body.pull_request.title}"}}}
"#;
const PLUGIN: &str = r#"
params: {title: {type: string}}
preStart: {make: {webhook: {url: "RECEIVER/make", body: {title: "${params.title}"}}, outputs: {id: {value: "${response.body.id}"}}}}
postStop: {drop: {undoes: make, webhook: {url: "RECEIVER/drop", body: {id: "${units.make.outputs.id}"}}}}
"#;

/// An event of GitHub.
struct GithubEvent {
    delivery: &'static str,
    body: Value,
}

/// Returns an event of pull request 7 at a minute.
fn pull_request(delivery: &'static str, action: &str, minute: u32) -> GithubEvent {
    let body = json!({
        "action": action,
        "number": 7,
        "repository": {"id": 1, "name": "shop", "full_name": "acme/shop"},
        "pull_request": {
            "title": "Add ${resources.r.outputs.id} and @{file}", "draft": false,
            "updated_at": format!("2026-01-01T00:{minute:02}:00Z"), "head": {"repo": {"id": 1}},
        },
    });
    GithubEvent { delivery, body }
}

/// Returns the MAC of a body in hexadecimal digits, without the code that verifies it.
pub(crate) fn hex_mac(algorithm: hmac::Algorithm, secret: &str, body: &[u8]) -> String {
    let mac = hmac::sign(&hmac::Key::new(algorithm, secret.as_bytes()), body);
    mac.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn signature(secret: &str, body: &[u8]) -> String {
    format!("sha256={}", hex_mac(hmac::HMAC_SHA256, secret, body))
}

impl Harness {
    async fn with_source() -> Self {
        let harness = Self::new().await;
        harness.write_secrets(&json!({"GITHUB_WEBHOOK": SECRET}).to_string());
        harness.publish("db@1.0.0", PLUGIN).await;
        harness.put("Source", "prs", SOURCE).await.is(200);
        harness
    }

    async fn send(&self, path: &str, secret: &str, event: &GithubEvent, body: Vec<u8>) -> ApiReply {
        let request = self.http.post(self.url(path)).header("x-github-event", "pull_request");
        let request = request.header("x-github-delivery", event.delivery).header("content-type", "application/json");
        let request = request.header("x-hub-signature-256", signature(secret, &body));
        ApiReply::to(request.body(body)).await
    }

    async fn github(&self, event: &GithubEvent, expected: (u16, SourceResult)) -> SourceResponse {
        let reply = self.send("/v1/sources/prs", SECRET, event, event.body.to_string().into_bytes()).await;
        let outcome: SourceResponse = reply.json();
        assert_eq!((reply.status, outcome.result), expected, "{outcome:?}");
        outcome
    }
}

pub(crate) async fn a_pull_request_has_a_target_until_it_is_closed() {
    let harness = Harness::with_source().await;
    harness.receiver.always("POST /make", CannedReply::ok(json!({"id": "one"})));
    harness.receiver.always("POST /drop", CannedReply::ok(json!({})));
    let opened = harness.github(&pull_request("1", "opened", 1), (202, SourceResult::Starting)).await;
    assert_eq!(opened.target.as_deref(), Some("sandbox/pr-7-1"));
    let ready = harness.phase("pr-7-1", TargetPhase::Ready).await;
    let event = ready.decided_by.unwrap();
    assert_eq!((event.source.as_str(), event.delivery.as_str(), event.outcome), ("prs", "1", Some(opened.clone())));
    assert_eq!(harness.why("pr-7-1").await.decided_by.unwrap().delivery, "1");
    assert_eq!(Some(ready.info.uid), opened.uid);
    // Content of the event is text.
    let call = harness.receiver.call("POST /make", 1).await;
    assert_eq!(call.body["title"], "Add ${resources.r.outputs.id} and @{file}");
    harness.github(&pull_request("3", "closed", 4), (202, SourceResult::Stopping)).await;
    harness.phase("pr-7-1", TargetPhase::Gone).await;
    // An event that was sent before the end arrives after it.
    harness.github(&pull_request("4", "synchronize", 3), (200, SourceResult::Outdated)).await;
    let again = harness.github(&pull_request("5", "reopened", 5), (202, SourceResult::Starting)).await;
    assert_ne!(again.uid, opened.uid);
    harness.phase("pr-7-1", TargetPhase::Ready).await;
    harness.github(&pull_request("6", "closed", 6), (202, SourceResult::Stopping)).await;
    harness.phase("pr-7-1", TargetPhase::Gone).await;
    let nothing = harness.github(&pull_request("7", "closed", 7), (200, SourceResult::Ignored)).await;
    assert_eq!(nothing.detail, "does not exist: nothing to delete");
    assert_eq!(harness.receiver.calls("POST /make").len(), 2);
    assert_eq!(harness.receiver.calls("POST /drop").len(), 2);
}

/// A person cannot apply a document to the target of a source.
pub(crate) async fn the_next_event_completes_a_failed_target() {
    let harness = Harness::with_source().await;
    harness.receiver.always("POST /make", 422);
    harness.github(&pull_request("1", "opened", 1), (202, SourceResult::Starting)).await;
    harness.phase("pr-7-1", TargetPhase::Failed).await;
    let steps = harness.why("pr-7-1").await.next_steps;
    let next = "the next event of the source prs then completes the target";
    assert!(steps.iter().any(|step| step.contains(next)), "{steps:?}");
    harness.receiver.always("POST /make", CannedReply::ok(json!({"id": "one"})));
    harness.github(&pull_request("2", "synchronize", 2), (202, SourceResult::Unchanged)).await;
    harness.phase("pr-7-1", TargetPhase::Ready).await;
}

pub(crate) async fn events_that_concern_no_target_change_nothing() {
    let harness = Harness::with_source().await;
    let event = || pull_request("1", "opened", 1);
    let body = || event().body.to_string().into_bytes();
    let prs = "/v1/sources/prs";
    harness.send(prs, "another secret", &event(), body()).await.is_problem(401, "invalid-signature");
    harness.send("/v1/sources/other", SECRET, &event(), body()).await.is_problem(404, "not-found");
    // GitHub does not sign its headers, so an event of another kind has another body.
    let mut unknown = event();
    unknown.body.as_object_mut().unwrap().remove("pull_request");
    let ignored = harness.github(&unknown, (200, SourceResult::Ignored)).await;
    assert_eq!(ignored.detail, "only pull_request events have an effect");
    let mut fork = event();
    fork.body["pull_request"]["head"]["repo"]["id"] = json!(2);
    let ignored = harness.github(&fork, (200, SourceResult::Ignored)).await;
    assert_eq!(ignored.detail, "pull requests of forks are not accepted");
    // A field that the document reads is missing.
    let mut incomplete = event();
    incomplete.body["pull_request"].as_object_mut().unwrap().remove("title");
    let rejected = harness.github(&incomplete, (200, SourceResult::Rejected)).await;
    assert!(rejected.detail.contains("body.pull_request.title"), "{}", rejected.detail);
    assert!(harness.target("pr-7-1").await.is_none());
    let form = harness.http.post(harness.url(prs)).header("content-type", "application/x-www-form-urlencoded");
    let payload = format!("payload={}", event().body);
    let form = form.header("x-hub-signature-256", signature(SECRET, payload.as_bytes())).body(payload);
    let problem = ApiReply::to(form).await.is_problem(400, "invalid-json");
    assert!(problem.detail.contains("choose the content type application/json"), "{}", problem.detail);
    harness.write_secrets("{}");
    let problem = harness.send(prs, SECRET, &event(), body()).await.is_problem(503, "missing-secret");
    assert!(problem.detail.contains("GITHUB_WEBHOOK"), "{}", problem.detail);
    harness.write_secrets("{");
    harness.send(prs, SECRET, &event(), body()).await.is_problem(503, "invalid-secrets");
}

/// Each rejected event is listed, also one without a target. A missing target shows its rejected event.
pub(crate) async fn rejected_events_are_listed() {
    let harness = Harness::with_source().await;
    harness.receiver.always("POST /make", CannedReply::ok(json!({"id": "one"})));
    harness.get("/v1/targets/sandbox/pr-7-1").await.is_problem(404, "not-found");
    let mut nameless = pull_request("1", "opened", 1);
    nameless.body["number"] = json!(null);
    let mut timeless = pull_request("2", "opened", 1);
    timeless.body["pull_request"]["updated_at"] = json!("yesterday");
    let unpublished = pull_request("3", "opened", 1);
    harness.request(Method::DELETE, "/v1/plugins/db/versions/1.0.0", None).await.is(204);
    let mut expected = Vec::new();
    for event in [nameless, timeless, unpublished] {
        let rejected = harness.github(&event, (200, SourceResult::Rejected)).await;
        expected.insert(0, (event.delivery.to_owned(), rejected.target, rejected.uid, rejected.detail));
    }
    let target = || Some("sandbox/pr-7-1".to_owned());
    assert_eq!(expected.iter().map(|event| event.1.clone()).collect::<Vec<_>>(), [target(), target(), None]);
    let listed = harness.get("/v1/sources/prs").await.json::<SourceDetail>().rejected;
    let shown = listed.iter().cloned().map(|event| (event.delivery, event.target, event.uid, event.detail));
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    let sources = || async { harness.get("/v1/sources").await.json::<SourceList>().sources };
    let summary = sources().await[0].rejected.clone().unwrap();
    assert_eq!((summary.count, &summary.since, &summary.last), (3, &rfc3339(listed[2].time), &listed[0]));
    for path in ["/v1/targets/sandbox/pr-7-1", "/v1/targets/sandbox/pr-7-1/why"] {
        let problem = harness.get(path).await.is_problem(404, "event-rejected");
        let event = format!("source prs rejected the event 3 at {}: {}", rfc3339(listed[0].time), listed[0].detail);
        assert!(problem.detail.contains(&event), "{}", problem.detail);
    }
    harness.publish("db@1.0.0", PLUGIN).await;
    harness.github(&pull_request("3", "opened", 1), (202, SourceResult::Starting)).await;
    harness.phase("pr-7-1", TargetPhase::Ready).await;
}
