//! `POST /v1/events`: signatures, bodies, documents, repetitions and order.

use ebb_tests::platform::SignedRequest;

use crate::harness::*;

const JSON: &str = "application/cloudevents+json";

fn event(data: &Value) -> Value {
    json!({
        "specversion": "1.0", "id": "1", "source": "urn:tests", "type": "dev.ebb.target.created.v1",
        "datacontenttype": "application/json", "data": data,
    })
}

fn data() -> Value {
    serde_json::to_value(sandbox("a", "a-uid", "simple")).unwrap()
}

async fn assert_nothing_started(harness: &Harness) {
    assert_eq!(harness.listed("").await, [""; 0]);
    assert!(harness.receiver.order().is_empty());
}

/// Returns the event of the sandbox `a`, signed at a time.
fn signed(secret: &WebhookSecret, time: u64) -> SignedRequest {
    of_type(secret, time, event(&data()).to_string().into_bytes(), JSON)
}

fn of_type(secret: &WebhookSecret, time: u64, body: Vec<u8>, content_type: &str) -> SignedRequest {
    SignedRequest::new(secret, "msg-1", Timestamp(time), body).header("content-type", content_type)
}

pub(crate) async fn signatures() {
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
    for wrong in [unsigned, other, altered, old, future, moved] {
        harness.event(&wrong).await.is_problem(401, "invalid-signature");
    }
    assert_nothing_started(&harness).await;
    harness.event(&right).await.is(202);
}

pub(crate) async fn invalid_bodies() {
    let harness = Harness::simple().await;
    let body = event(&data()).to_string().into_bytes();
    for (content_type, body, status, code) in [
        ("text/plain", body, 415, "invalid-event"),
        (JSON, b"\xff".to_vec(), 400, "invalid-event"),
        (JSON, vec![b' '; limits::WEBHOOK_BODY + 1], 413, "too-large"),
    ] {
        let request = of_type(&harness.secret(), now().0, body, content_type);
        harness.event(&request).await.is_problem(status, code);
    }
    // The server may close the connection before the client has sent the body.
    let huge = harness.http.post(harness.url("/v1/events")).header("content-type", JSON).body(vec![b' '; 10 << 20]);
    if let Ok(response) = huge.send().await {
        assert_eq!(response.status(), 413);
    }
    assert_nothing_started(&harness).await;
}

/// A captured `created` event cannot be sent as `deleted`. The type of the binary mode is an unsigned header.
pub(crate) async fn binary_mode() {
    let harness = Harness::simple().await;
    let body = data().to_string().into_bytes();
    for kind in ["created", "updated", "deleted"] {
        let kind = format!("dev.ebb.target.{kind}.v1");
        let attributes = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "urn:tests"), ("ce-type", &kind)];
        let request = of_type(&harness.secret(), now().0, body.clone(), "application/json");
        let request = attributes.iter().fold(request, |request, (name, value)| request.header(name, value));
        let problem = harness.event(&request).await.is_problem(415, "invalid-event");
        assert!(problem.detail.contains(JSON), "{problem:?}");
    }
    assert_nothing_started(&harness).await;
    // `ce-` headers do not change a structured event.
    let request = signed(&harness.secret(), now().0).header("ce-type", "dev.ebb.target.deleted.v1");
    harness.event(&request).await.is(202);
    harness.phase("a", TargetState::Ready).await;
}

pub(crate) async fn invalid_documents() {
    let harness = Harness::simple().await;
    let document = |text: &str| format!("apiVersion: ebb.dev/v1\nkind: Sandbox\n{text}");
    let several = "name: a\nresources:\n  r: {plugin: simple, parms: {}}\n  s: {plugn: simple}\n";
    let rows: [(String, &[&str], &[u32]); 7] = [
        // Several errors are reported at once.
        (document(several), &["unknown-key", "resource-kind", "unknown-key"], &[5, 6, 6]),
        (document("name: a\nresources: {r: {plugin: simpel}}\n"), &["unknown-plugin"], &[4]),
        (document("name: a\nresources: {r: {plugin: simple@2.0.0}}\n"), &["unknown-version"], &[4]),
        (document("name: b\n"), &["other-name"], &[3]),
        (plugin("a", SIMPLE), &["not-a-target"], &[]),
        (document("name: a\nresources: [\n"), &["yaml"], &[4]),
        (document("name: a\nresources: {r: {plugin: simple, params: {size: 1}}}\n"), &["unknown-param"], &[4]),
    ];
    for (document, codes, lines) in rows {
        let data = LifecycleData { document: Some(document.clone()), ..sandbox("a", "a-uid", "simple") };
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
    assert_nothing_started(&harness).await;
}

/// Requests the deletion of an instance.
async fn delete(harness: &Harness, name: &str, uid: &str) -> ApiReply {
    let data = LifecycleData { document: None, ..sandbox(name, uid, "simple") };
    harness.lifecycle(LifecycleType::Deleted, &data).await
}

async fn create(harness: &Harness, name: &str, uid: &str) -> ApiReply {
    harness.lifecycle(LifecycleType::Created, &sandbox(name, uid, "simple")).await
}

fn result(response: &ApiReply) -> String {
    response.is(202).json::<Value>()["result"].as_str().unwrap().to_owned()
}

pub(crate) async fn events_out_of_order() {
    let harness = Harness::simple().await;
    // `deleted` before `created`.
    assert_eq!(result(&delete(&harness, "early", "e1").await), "stopping");
    create(&harness, "early", "e1").await.is_problem(409, "stale");
    assert!(harness.receiver.order().is_empty());
    assert_eq!(harness.target("early").await.unwrap().info.phase, TargetState::Gone);
    assert_eq!(harness.get("/v1/targets/sandbox/early/why").await.status, 200);
    assert_eq!(result(&delete(&harness, "early", "e1").await), "stopping");
    // Another instance of the name starts normally.
    assert_eq!(result(&create(&harness, "early", "e2").await), "starting");
    harness.phase("early", TargetState::Ready).await;
    // `created` after `deleted`.
    assert_eq!(result(&create(&harness, "a", "u1").await), "starting");
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(result(&delete(&harness, "a", "u1").await), "stopping");
    harness.phase("a", TargetState::Gone).await;
    create(&harness, "a", "u1").await.is_problem(409, "stale");
    assert_eq!(result(&delete(&harness, "a", "u1").await), "stopping");
    // Before the platform has accepted `gone`, the next instance waits.
    harness.notification_accepted("a").await;
    // A deletion of another uid does not end the instance.
    assert_eq!(result(&create(&harness, "a", "u2").await), "starting");
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(result(&delete(&harness, "a", "u3").await), "stopping");
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetState::Ready);
    create(&harness, "a", "u1").await.is_problem(409, "stale");
    assert_eq!(harness.receiver.order(), ["POST /make", "POST /make", "POST /drop", "POST /make"]);
}

/// A platform may use numbers that return, such as those of pull requests.
pub(crate) async fn a_uid_belongs_to_its_kind_and_name() {
    let harness = Harness::simple().await;
    assert_eq!(result(&delete(&harness, "unknown", "7").await), "stopping");
    for name in ["a", "b"] {
        assert_eq!(result(&create(&harness, name, "7").await), "starting");
        harness.phase(name, TargetState::Ready).await;
    }
    let calls = harness.receiver.calls("POST /make");
    let keys: BTreeSet<&str> = calls.iter().map(|call| call.header("idempotency-key")).collect();
    assert_eq!((calls.len(), keys.len()), (2, 2));
    // The end of one, and the next instance of its name, leave the other one and its uid.
    assert_eq!(result(&delete(&harness, "a", "7").await), "stopping");
    harness.settled("a").await;
    assert_eq!(result(&create(&harness, "a", "8").await), "starting");
    create(&harness, "a", "7").await.is_problem(409, "stale");
    assert_eq!(harness.target("b").await.unwrap().info.phase, TargetState::Ready);
    assert_eq!(result(&create(&harness, "c", "7").await), "starting");
    create(&harness, "unknown", "7").await.is_problem(409, "stale");
}

pub(crate) async fn repeated_events() {
    let harness = Harness::simple().await;
    let data = sandbox("a", "u1", "simple");
    let request = SignedRequest::lifecycle(&harness.secret(), LifecycleType::Created, &data);
    let first = harness.event(&request).await;
    harness.phase("a", TargetState::Ready).await;
    for _ in 0..3 {
        let again = harness.event(&request).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
    }
    // Concurrent repetitions.
    let one = || create(&harness, "b", "b1");
    let (one, two, three) = tokio::join!(one(), one(), one());
    assert_eq!([one, two, three].map(|response| result(&response)), ["starting"; 3]);
    harness.phase("b", TargetState::Ready).await;
    assert_eq!(harness.receiver.count("POST /make"), 2);
    let target = harness.target("a").await.unwrap();
    assert_eq!(target.runs.len(), 1);
    delete(&harness, "a", "u1").await.is(202);
    harness.phase("a", TargetState::Gone).await;
    delete(&harness, "a", "u1").await.is(202);
    assert_eq!(harness.receiver.count("POST /drop"), 1);
}

pub(crate) async fn a_second_instance_waits_for_the_name() {
    let harness = Harness::simple().await;
    assert_eq!(result(&create(&harness, "a", "u1").await), "starting");
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(result(&create(&harness, "a", "u2").await), "waiting");
    assert_eq!(result(&create(&harness, "a", "u2").await), "waiting");
    create(&harness, "a", "u3").await.is_problem(409, "name-taken");
    let target = harness.target("a").await.unwrap();
    assert_eq!((target.info.uid.as_str(), target.waiting_uid.as_deref()), ("u1", Some("u2")));
    // A waiting instance that is deleted never starts.
    delete(&harness, "a", "u2").await.is(202);
    create(&harness, "a", "u2").await.is_problem(409, "stale");
    assert_eq!(result(&create(&harness, "a", "u3").await), "waiting");
    delete(&harness, "a", "u1").await.is(202);
    harness.instance_is_ready("a", "u3").await;
    let uids: Vec<String> = ["/make", "/drop"]
        .iter()
        .flat_map(|path| harness.receiver.calls(&format!("POST {path}")))
        .map(|call| call.body["uid"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(uids, ["u1", "u3", "u1"]);
    harness.notified("a", &["ready", "gone", "gone", "ready"]).await;
}

/// The second instance keeps the name while the platform has not accepted the notification `gone` of the first one.
pub(crate) async fn a_third_instance_does_not_displace_the_second() {
    let harness = Harness::with_platform().await;
    harness.publish("simple@1.0.0", SIMPLE).await;
    create(&harness, "a", "u1").await.is(202);
    harness.phase("a", TargetState::Ready).await;
    harness.receiver.on("POST /platform", |_, _| CannedReply::status(503).after(3));
    delete(&harness, "a", "u1").await.is(202);
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(result(&create(&harness, "a", "u2").await), "waiting");
    assert_eq!(result(&create(&harness, "a", "u2").await), "waiting");
    create(&harness, "a", "u3").await.is_problem(409, "name-taken");
    assert_eq!(harness.target("a").await.unwrap().waiting_uid.as_deref(), Some("u2"));
    harness.receiver.always("POST /platform", 204);
    harness.instance_is_ready("a", "u2").await;
}
