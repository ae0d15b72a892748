//! `POST /v1/events`: signatures, bodies, documents, repetitions and order.

use ebb_protocol::id::TargetKey;
use ebb_protocol::lifecycle::{LifecycleResponse, LifecycleResult};
use ebb_tests::platform::{self, SignedRequest};

use crate::harness::*;

const JSON: &str = "application/cloudevents+json";

/// Returns the event of the sandbox `a`, signed at a time.
fn signed(secret: &WebhookSecret, time: u64) -> SignedRequest {
    let event = json!({
        "specversion": "1.0", "id": "1", "source": "urn:tests", "type": "dev.ebb.target.created.v1",
        "datacontenttype": "application/json", "data": sandbox("a", "a-uid", "simple"),
    });
    of_type(secret, time, event.to_string().into_bytes(), JSON)
}

fn of_type(secret: &WebhookSecret, time: u64, body: Vec<u8>, content_type: &str) -> SignedRequest {
    SignedRequest::new(secret, "msg-1", Timestamp(time), body).header("content-type", content_type)
}

/// What is refused starts nothing.
pub(crate) async fn refused_requests() {
    let harness = Harness::simple().await;
    let (secret, tolerance, time) = (harness.secret(), limits::WEBHOOK_TOLERANCE_SECONDS * 1000, now().0);
    let right = signed(&secret, time);
    let unsigned = SignedRequest { headers: vec![("content-type", JSON.to_owned())], ..right.clone() };
    let other = signed(&WebhookSecret::from_bytes(&[9; 32]).unwrap(), time);
    let altered = SignedRequest { body: [right.body.as_slice(), b" "].concat(), ..right.clone() };
    let (old, future) = (signed(&secret, time - tolerance - 2_000), signed(&secret, time + tolerance + 60_000));
    // An old signature with a new time.
    let mut moved = old.clone();
    moved.headers[1].1 = (time / 1000).to_string();
    // The type of the binary mode is an unsigned header. With it, a creation could be sent as a deletion.
    let data = serde_json::to_vec(&sandbox("a", "a-uid", "simple")).unwrap();
    let attributes = [("ce-id", "1"), ("ce-source", "urn:tests"), ("ce-type", "dev.ebb.target.deleted.v1")];
    let binary = of_type(&secret, time, data, "application/json").header("ce-specversion", "1.0");
    let binary = attributes.iter().fold(binary, |request, (name, value)| request.header(name, value));
    for (request, status, code) in [
        (unsigned, 401, "invalid-signature"),
        (other, 401, "invalid-signature"),
        (altered, 401, "invalid-signature"),
        (old, 401, "invalid-signature"),
        (future, 401, "invalid-signature"),
        (moved, 401, "invalid-signature"),
        (binary, 415, "invalid-event"),
        (of_type(&secret, time, right.body.clone(), "text/plain"), 415, "invalid-event"),
        (of_type(&secret, time, b"\xff".to_vec(), JSON), 400, "invalid-event"),
        (of_type(&secret, time, vec![b' '; limits::WEBHOOK_BODY + 1], JSON), 413, "too-large"),
    ] {
        harness.event(&request).await.is_problem(status, code);
    }
    // The server may close the connection before the client has sent the body.
    let huge = harness.http.post(harness.url("/v1/events")).header("content-type", JSON).body(vec![b' '; 10 << 20]);
    if let Ok(response) = huge.send().await {
        assert_eq!(response.status(), 413);
    }
    assert_eq!(harness.listed("").await, [""; 0]);
    // `ce-` headers do not change a structured event.
    harness.event(&right.header("ce-type", "dev.ebb.target.deleted.v1")).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(harness.receiver.order(), ["POST /make"]);
}

pub(crate) async fn invalid_documents() {
    let harness = Harness::simple().await;
    let document = |text: &str| format!("apiVersion: ebb.dev/v1\nkind: Sandbox\n{text}");
    // Each resource reports its first error.
    let several = "name: a\nresources:\n  r: {plugin: simple, parms: {}}\n  s: {plugn: simple}\n";
    for (document, errors) in [
        (document(several), &[("unknown-key", 5), ("unknown-key", 6)][..]),
        (document("name: a\nresources: {r: {plugin: simple@2.0.0}}\n"), &[("unknown-version", 4)]),
        (document("name: b\n"), &[("other-name", 3)]),
        (document("name: a\nresources: [\n"), &[("yaml", 4)]),
        (plugin("a", SIMPLE), &[("not-a-target", 0)]),
    ] {
        let data = LifecycleData { document: Some(document), ..sandbox("a", "a-uid", "simple") };
        let problem = harness.lifecycle(LifecycleType::Created, &data).await.is_problem(422, "invalid-document");
        let found = problem.errors.iter().map(|error| (error.code.as_str(), error.line.unwrap_or_default()));
        let (found, expected): (BTreeSet<_>, BTreeSet<_>) = (found.collect(), errors.iter().copied().collect());
        assert_eq!((found, problem.errors.len()), (expected, errors.len()), "{problem:?}");
    }
    assert!(harness.listed("").await.is_empty() && harness.receiver.order().is_empty());
}

/// Sends an event of an instance. Returns its result, or the code of its refusal.
async fn sent(harness: &Harness, event_type: LifecycleType, name: &str, uid: &str) -> String {
    let mut data = sandbox(name, uid, "simple");
    data.document = data.document.filter(|_| event_type != LifecycleType::Deleted);
    let reply = harness.lifecycle(event_type, &data).await;
    let body: Value = reply.json();
    body[if reply.status == 202 { "result" } else { "code" }].as_str().unwrap().to_owned()
}

/// A name has one instance, and one that waits for it. An instance that has ended does not start again.
pub(crate) async fn events_out_of_order() {
    use LifecycleType::{Created, Deleted};
    let harness = Harness::simple().await;
    for (event_type, name, uid, expected, phase) in [
        (Deleted, "early", "e1", "stopping", TargetPhase::Gone),
        (Created, "early", "e1", "stale", TargetPhase::Gone),
        (Created, "early", "e2", "starting", TargetPhase::Ready),
        (Deleted, "early", "none", "stopping", TargetPhase::Ready),
        (Created, "early", "e1", "stale", TargetPhase::Ready),
        (Created, "a", "u1", "starting", TargetPhase::Ready),
        (Created, "a", "u2", "waiting", TargetPhase::Ready),
        (Created, "a", "u2", "waiting", TargetPhase::Ready),
        (Created, "a", "u3", "name-taken", TargetPhase::Ready),
        // A waiting instance that is deleted never starts.
        (Deleted, "a", "u2", "stopping", TargetPhase::Ready),
        (Created, "a", "u2", "stale", TargetPhase::Ready),
        (Created, "a", "u3", "waiting", TargetPhase::Ready),
    ] {
        assert_eq!(sent(&harness, event_type, name, uid).await, expected, "{event_type:?} {uid}");
        harness.phase(name, phase).await;
    }
    let target = harness.target("a").await.unwrap();
    assert_eq!((target.info.uid.as_str(), target.waiting_uid.as_deref()), ("u1", Some("u3")));
    assert_eq!(sent(&harness, Deleted, "a", "u1").await, "stopping");
    harness.instance_is_ready("a", "u3").await;
    let uids = |line: &str| harness.receiver.calls(line).iter().map(|call| call.body["uid"].clone()).collect::<Value>();
    assert_eq!((uids("POST /make"), uids("POST /drop")), (json!(["e2", "u1", "u3"]), json!(["u1"])));
    harness.notified("a", &["ready", "gone", "gone", "ready"]).await;
}

pub(crate) async fn repeated_events() {
    let harness = Harness::simple().await;
    let data = sandbox("b", "u1", "simple");
    let request = SignedRequest::lifecycle(&harness.secret(), LifecycleType::Created, &data);
    let first = harness.event(&request).await;
    harness.phase("b", TargetPhase::Ready).await;
    for _ in 0..3 {
        let again = harness.event(&request).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
    }
    // Concurrent repetitions.
    let one = || sent(&harness, LifecycleType::Created, "a", "a1");
    let (one, two, three) = tokio::join!(one(), one(), one());
    assert_eq!([one, two, three], ["starting"; 3]);
    harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(harness.receiver.count("POST /make"), 2);
    for _ in 0..2 {
        assert_eq!(sent(&harness, LifecycleType::Deleted, "a", "a1").await, "stopping");
        harness.phase("a", TargetPhase::Gone).await;
    }
    assert_eq!(harness.receiver.count("POST /drop"), 1);
}

/// Documents are ordered by their generations. One that is like the present one changes nothing, also if a newer version
/// of a plugin was published.
pub(crate) async fn generations_of_documents() {
    const BOTH: &str = "resources: {r: {plugin: simple}, s: {plugin: second@1.0.0}}\n";
    const REORDERED: &str = "# A comment.\nresources:\n  s: {plugin: second@1.0.0}\n  r: {plugin: simple}\n";
    const ONE: &str = "resources: {r: {plugin: simple}}\n";
    let harness = Harness::simple().await;
    let event = |uid: &str, generation: u64, rest: &str| LifecycleData {
        generation,
        routing_key: (uid == "v" && generation == 1).then(|| "key".to_owned()),
        ..platform::sandbox("a", uid, rest)
    };
    let send = async |event_type: LifecycleType, uid: &str, generation: u64, rest: &str| {
        let response: LifecycleResponse =
            harness.lifecycle(event_type, &event(uid, generation, rest)).await.is(202).json();
        (response.result, response.generation)
    };
    harness.publish("second@1.0.0", &SIMPLE.replace("/make", "/second")).await;
    assert_eq!(send(LifecycleType::Created, "u", 1, BOTH).await, (LifecycleResult::Starting, 1));
    harness.phase("a", TargetPhase::Ready).await;
    harness.publish("simple@1.1.0", &SIMPLE.replace("/make", "/other")).await;
    // An instance that waits keeps its routing key.
    for (event_type, uid, generation, rest, expected) in [
        (LifecycleType::Updated, "u", 2, BOTH, (LifecycleResult::Unchanged, 2)),
        (LifecycleType::Updated, "u", 7, REORDERED, (LifecycleResult::Unchanged, 7)),
        (LifecycleType::Updated, "u", 3, BOTH, (LifecycleResult::Unchanged, 7)),
        (LifecycleType::Created, "v", 1, BOTH, (LifecycleResult::Waiting, 1)),
        (LifecycleType::Updated, "v", 2, BOTH, (LifecycleResult::Unchanged, 2)),
        (LifecycleType::Updated, "v", 3, ONE, (LifecycleResult::Waiting, 3)),
    ] {
        let sent = send(event_type, uid, generation, rest).await;
        assert_eq!(sent, expected, "{uid} {generation}");
    }
    for (uid, generation, rest) in [("u", 6, ONE), ("v", 2, BOTH), ("v", 3, BOTH)] {
        let response = harness.lifecycle(LifecycleType::Updated, &event(uid, generation, rest)).await;
        response.is_problem(409, "outdated");
    }
    let target = harness.target("a").await.unwrap().info;
    assert_eq!((target.generation, &target.plugins[..]), (7, &["second@1.0.0", "simple@1.0.0"].map(str::to_owned)[..]));
    let counts = ["make", "second", "other"].map(|path| harness.receiver.count(&format!("POST /{path}")));
    assert_eq!(counts, [1, 1, 0]);
    harness.lifecycle(LifecycleType::Deleted, &event("u", 7, BOTH)).await.is(202);
    harness.instance_is_ready("a", "v").await;
    let target = harness.stack().store().read_target(TargetKey::new("sandbox", "a")).await.unwrap().unwrap();
    // The removals that were scheduled while it waited name the runs of its first generation.
    let facts = (target.generation, target.routing_key.as_deref(), target.first_generation);
    assert_eq!(facts, (3, Some("key"), 1));
}
