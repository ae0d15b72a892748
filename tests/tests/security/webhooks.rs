//! `POST /v1/events` from those who may not, cannot, or come out of order.

use axum::http::Method;
use ebb_engine::Timestamp;
use ebb_protocol::api::TargetState;
use ebb_protocol::cloudevents::{self, LifecycleType};
use ebb_protocol::lifecycle::LifecycleData;
use ebb_protocol::limits;
use ebb_protocol::sign::{self, MessageId, WebhookSecret};
use serde_json::{Value, json};

use crate::harness::{CannedReply, LifecycleHarness, LifecycleReply, eventually, now, plugin, sandbox};

const JSON: &str = "application/cloudevents+json";

/// Sets up at once, and takes away at once.
const SIMPLE: &str = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make", body: {uid: "${target.uid}"}}}
postStop:
  drop: {undoes: make, webhook: {url: "RECEIVER/drop", body: {uid: "${target.uid}"}}}
"#;

async fn harness() -> LifecycleHarness {
    let harness = LifecycleHarness::new().await;
    harness.publish(&plugin("simple@1.0.0", SIMPLE)).await;
    harness
}

fn event(data: &Value) -> Value {
    json!({
        "specversion": "1.0", "id": "1", "source": "urn:tests", "type": "dev.ebb.target.created.v1",
        "datacontenttype": "application/json", "data": data,
    })
}

fn data() -> Value {
    serde_json::to_value(sandbox("a", "a-uid", "simple")).unwrap()
}

async fn nothing_began(harness: &LifecycleHarness) {
    let page: Value = harness.get("/v1/targets").await.is(200).json();
    assert_eq!(page["targets"], json!([]));
    assert!(harness.receiver.order().is_empty());
}

/// A request with these headers of a signature.
async fn send(harness: &LifecycleHarness, headers: &[(&str, String)], body: &[u8]) -> LifecycleReply {
    let mut request = harness.http.post(harness.url("/v1/events")).header("content-type", JSON);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    LifecycleReply::of(request.body(body.to_vec()).send().await.unwrap()).await
}

fn signature(secret: &str, time: Timestamp, body: &[u8]) -> Vec<(&'static str, String)> {
    let id = MessageId::parse("msg-1").unwrap();
    let signed = sign::sign(&WebhookSecret::parse(secret).unwrap(), &id, time, body);
    signed.into_iter().map(|(name, value)| (name, value.to_string())).collect()
}

pub(crate) async fn signatures() {
    let harness = harness().await;
    let body = event(&data()).to_string().into_bytes();
    let right = signature(harness.stack().webhook_secret(), now(), &body);
    send(&harness, &[], &body).await.is_problem(401, "invalid-signature");
    let other = WebhookSecret::from_bytes(&[9; 32]).unwrap().reveal();
    send(&harness, &signature(&other, now(), &body), &body).await.is_problem(401, "invalid-signature");
    nothing_began(&harness).await;
    send(&harness, &right, &body).await.is(202);
}

pub(crate) async fn times_and_alterations() {
    let harness = harness().await;
    let body = event(&data()).to_string().into_bytes();
    let secret = harness.stack().webhook_secret().to_owned();
    let tolerance = limits::WEBHOOK_TOLERANCE_SECONDS * 1000;
    for time in [now().0 - tolerance - 2_000, now().0 + tolerance + 60_000, 0, 1_000] {
        let signed = signature(&secret, Timestamp(time), &body);
        send(&harness, &signed, &body).await.is_problem(401, "invalid-signature");
    }
    // An old signature with a fresh time.
    let mut moved = signature(&secret, Timestamp(now().0 - tolerance - 60_000), &body);
    moved[1].1 = (now().0 / 1000).to_string();
    send(&harness, &moved, &body).await.is_problem(401, "invalid-signature");
    let signed = signature(&secret, now(), &body);
    let mut altered = body.clone();
    altered.push(b' ');
    send(&harness, &signed, &altered).await.is_problem(401, "invalid-signature");
    send(&harness, &signed, &body[..body.len() - 1]).await.is_problem(401, "invalid-signature");
    let other = String::from_utf8(body.clone()).unwrap().replace("a-uid", "b-uid");
    send(&harness, &signed, other.as_bytes()).await.is_problem(401, "invalid-signature");
    nothing_began(&harness).await;
}

pub(crate) async fn events_that_are_none() {
    let harness = harness().await;
    let secret = harness.stack().webhook_secret().to_owned();
    let with = |pointer: &str, value: Value| {
        let mut event = event(&data());
        *event.pointer_mut(pointer).unwrap() = value;
        event
    };
    let rows = [
        (with("/type", json!("dev.ebb.target.renamed.v1")), 422),
        (with("/type", json!("")), 400),
        (with("/data/kind", json!("")), 422),
        (with("/data/uid", json!("")), 422),
        (with("/data/uid", json!("a#b")), 422),
        (json!([event(&data())]), 400),
    ];
    for (event, status) in rows {
        let body = event.to_string();
        let answer = harness.signed(&secret, now(), JSON, body.clone().into_bytes()).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        answer.is_problem(status, "invalid-event");
    }
    nothing_began(&harness).await;
}

pub(crate) async fn bodies() {
    let harness = harness().await;
    let secret = harness.stack().webhook_secret().to_owned();
    let body = event(&data()).to_string().into_bytes();
    harness.signed(&secret, now(), "text/plain", body).await.is_problem(415, "invalid-event");
    harness.signed(&secret, now(), JSON, b"\xff".to_vec()).await.is_problem(400, "invalid-event");
    let large = vec![b' '; limits::WEBHOOK_BODY + 1];
    harness.signed(&secret, now(), JSON, large).await.is_problem(413, "too-large");
    // The connection may be closed while the rest is still being sent.
    let huge = harness.http.post(harness.url("/v1/events")).header("content-type", JSON).body(vec![b' '; 10 << 20]);
    if let Ok(response) = huge.send().await {
        assert_eq!(response.status(), 413);
    }
    nothing_began(&harness).await;
}

/// A captured `created` must not become a `deleted`. In binary mode the type is a header, which is not signed.
pub(crate) async fn binary_mode() {
    let harness = harness().await;
    let body = data().to_string().into_bytes();
    for kind in ["created", "updated", "deleted"] {
        let mut headers = signature(harness.stack().webhook_secret(), now(), &body);
        let kind = format!("dev.ebb.target.{kind}.v1");
        let attributes = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "urn:tests"), ("ce-type", &kind)];
        headers.extend(attributes.map(|(name, value)| (name, value.to_owned())));
        let mut request = harness.http.post(harness.url("/v1/events")).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = LifecycleReply::of(request.body(body.clone()).send().await.unwrap()).await;
        let problem = answer.is_problem(415, "invalid-event");
        assert!(problem.detail.contains("application/cloudevents+json"), "{problem:?}");
    }
    nothing_began(&harness).await;
    // Headers beside a signed event change nothing of it.
    let body = event(&data()).to_string().into_bytes();
    let mut headers = signature(harness.stack().webhook_secret(), now(), &body);
    headers.push(("ce-type", "dev.ebb.target.deleted.v1".to_owned()));
    send(&harness, &headers, &body).await.is(202);
    harness.phase("a", TargetState::Ready).await;
}

pub(crate) async fn documents() {
    let harness = harness().await;
    let sandbox = |text: &str| format!("apiVersion: ebb.dev/v1\nkind: Sandbox\n{text}");
    let rows: [(String, &[&str], &[u32]); 7] = [
        // Errors of meaning come together.
        (
            sandbox("name: a\nresources:\n  r: {plugin: simple, parms: {}}\n  s: {plugn: simple}\n"),
            &["unknown-key", "missing-key", "unknown-key"],
            &[5, 6, 6],
        ),
        (sandbox("name: a\nresources: {r: {plugin: simpel}}\n"), &["unknown-plugin"], &[4]),
        (sandbox("name: a\nresources: {r: {plugin: simple@2.0.0}}\n"), &["unknown-version"], &[4]),
        (sandbox("name: b\n"), &["other-name"], &[3]),
        (plugin("a", SIMPLE), &["not-a-target"], &[]),
        (sandbox("name: a\nresources: [\n"), &["yaml"], &[4]),
        (sandbox("name: a\nresources: {r: {plugin: simple, params: {size: 1}}}\n"), &["unknown-param"], &[4]),
    ];
    for (document, codes, lines) in rows {
        let data =
            LifecycleData { document: Some(document.clone()), ..crate::harness::sandbox("a", "a-uid", "simple") };
        let problem = harness.lifecycle(LifecycleType::Created, &data).await.is_problem(422, "invalid-document");
        let found: Vec<&str> = problem.errors.iter().map(|error| error.code.as_str()).collect();
        assert_eq!(found.len(), codes.len(), "{document}: {:?}", problem.errors);
        for code in codes {
            assert!(found.contains(code), "{code} in {document}: {:?}", problem.errors);
        }
        for line in lines {
            let placed = problem.errors.iter().any(|error| error.line == Some(*line) && error.column > Some(0));
            assert!(placed, "line {line} of {document}: {:?}", problem.errors);
        }
    }
    nothing_began(&harness).await;
}

/// Asks for the end of a life.
async fn delete(harness: &LifecycleHarness, name: &str, uid: &str) -> LifecycleReply {
    let data = LifecycleData { document: None, ..sandbox(name, uid, "simple") };
    harness.lifecycle(LifecycleType::Deleted, &data).await
}

async fn create(harness: &LifecycleHarness, name: &str, uid: &str) -> LifecycleReply {
    harness.lifecycle(LifecycleType::Created, &sandbox(name, uid, "simple")).await
}

fn result(answer: &LifecycleReply) -> String {
    answer.is(202).json::<Value>()["result"].as_str().unwrap().to_owned()
}

pub(crate) async fn lives_out_of_order() {
    let harness = harness().await;
    // The end before the beginning.
    assert_eq!(result(&delete(&harness, "early", "e1").await), "stopping");
    create(&harness, "early", "e1").await.is_problem(409, "stale");
    assert!(harness.receiver.order().is_empty());
    assert_eq!(harness.target("early").await.unwrap().info.phase, TargetState::Gone);
    assert_eq!(harness.get("/v1/targets/sandbox/early/why").await.status, 200);
    assert_eq!(result(&delete(&harness, "early", "e1").await), "stopping");
    // Another life of that name begins as if nothing had been.
    assert_eq!(result(&create(&harness, "early", "e2").await), "starting");
    harness.phase("early", TargetState::Ready).await;
    // The beginning after the end.
    assert_eq!(result(&create(&harness, "a", "u1").await), "starting");
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(result(&delete(&harness, "a", "u1").await), "stopping");
    harness.phase("a", TargetState::Gone).await;
    create(&harness, "a", "u1").await.is_problem(409, "stale");
    assert_eq!(result(&delete(&harness, "a", "u1").await), "stopping");
    // A foreign uid ends nothing.
    assert_eq!(result(&create(&harness, "a", "u2").await), "starting");
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(result(&delete(&harness, "a", "u3").await), "stopping");
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetState::Ready);
    create(&harness, "a", "u1").await.is_problem(409, "stale");
    assert_eq!(harness.receiver.order(), ["POST /make", "POST /make", "POST /drop", "POST /make"]);
}

pub(crate) async fn repetitions() {
    let harness = harness().await;
    let secret = harness.stack().webhook_secret().to_owned();
    let time = now();
    let (content_type, body) =
        cloudevents::lifecycle("evt-1", "urn:tests", LifecycleType::Created, time, &sandbox("a", "u1", "simple"));
    let first = harness.signed(&secret, time, content_type, body.clone()).await;
    harness.phase("a", TargetState::Ready).await;
    for _ in 0..3 {
        let again = harness.signed(&secret, time, content_type, body.clone()).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
    }
    // At the same time.
    let one = || create(&harness, "b", "b1");
    let (one, two, three) = tokio::join!(one(), one(), one());
    assert_eq!([one, two, three].map(|answer| result(&answer)), ["starting"; 3]);
    harness.phase("b", TargetState::Ready).await;
    assert_eq!(harness.receiver.calls("POST /make").len(), 2);
    let target = harness.target("a").await.unwrap();
    assert_eq!(target.runs.len(), 1);
    // A higher generation with the same document is the same life; with another document it is refused.
    let mut higher = sandbox("a", "u1", "simple");
    higher.generation = 2;
    assert_eq!(result(&harness.lifecycle(LifecycleType::Updated, &higher).await), "unchanged");
    higher.document = higher.document.map(|text| text.replace("resources: {r:", "resources: {s:"));
    harness.lifecycle(LifecycleType::Updated, &higher).await.is_problem(409, "changed");
    delete(&harness, "a", "u1").await.is(202);
    harness.phase("a", TargetState::Gone).await;
    delete(&harness, "a", "u1").await.is(202);
    assert_eq!(harness.receiver.calls("POST /drop").len(), 1);
}

pub(crate) async fn one_name_two_lives() {
    let harness = harness().await;
    assert_eq!(result(&create(&harness, "a", "u1").await), "starting");
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(result(&create(&harness, "a", "u2").await), "waiting");
    assert_eq!(result(&create(&harness, "a", "u2").await), "waiting");
    create(&harness, "a", "u3").await.is_problem(409, "name-taken");
    let target = harness.target("a").await.unwrap();
    assert_eq!((target.info.uid.as_str(), target.waiting_uid.as_deref()), ("u1", Some("u2")));
    // One that gives up waiting never begins.
    delete(&harness, "a", "u2").await.is(202);
    create(&harness, "a", "u2").await.is_problem(409, "stale");
    assert_eq!(result(&create(&harness, "a", "u3").await), "waiting");
    delete(&harness, "a", "u1").await.is(202);
    eventually("u3 is ready", async || {
        let target = harness.target("a").await?;
        (target.info.uid == "u3" && target.info.phase == TargetState::Ready).then_some(())
    })
    .await;
    let uids: Vec<String> = ["/make", "/drop"]
        .iter()
        .flat_map(|path| harness.receiver.calls(&format!("{} {path}", Method::POST)))
        .map(|call| call.body["uid"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(uids, ["u1", "u3", "u1"]);
    harness.told("a", &["ready", "gone", "ready"]).await;
}

/// While the platform has not taken that the first life is gone, the second waits: it was promised the name.
pub(crate) async fn a_third_life_does_not_displace_the_second() {
    let harness = LifecycleHarness::with_platform().await;
    harness.publish(&plugin("simple@1.0.0", SIMPLE)).await;
    create(&harness, "a", "u1").await.is(202);
    harness.phase("a", TargetState::Ready).await;
    harness.receiver.on("POST /platform", |_, _| CannedReply::status(503).after(3));
    delete(&harness, "a", "u1").await.is(202);
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(result(&create(&harness, "a", "u2").await), "waiting");
    assert_eq!(result(&create(&harness, "a", "u2").await), "waiting");
    create(&harness, "a", "u3").await.is_problem(409, "name-taken");
    assert_eq!(harness.target("a").await.unwrap().waiting_uid.as_deref(), Some("u2"));
    harness.receiver.on("POST /platform", |_, _| CannedReply::status(204));
    eventually("u2 is ready", async || {
        let target = harness.target("a").await?;
        (target.info.uid == "u2" && target.info.phase == TargetState::Ready).then_some(())
    })
    .await;
}
