//! `POST /v1/events`: signatures, bodies, documents, repetitions and order.

use ebb_protocol::id::TargetKey;
use ebb_tests::platform::SignedRequest;

use crate::harness::*;
use crate::request_table;

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
    assert_eq!(harness.listed("").await, [""; 0]);
    // `ce-` headers do not change a structured event.
    harness.event(&right.header("ce-type", "dev.ebb.target.deleted.v1")).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    assert_eq!(harness.receiver.order(), ["POST /make"]);
}

/// A creation is sent concurrently, and again.
pub(crate) async fn repeated_events() {
    let harness = Harness::simple().await;
    let data = sandbox("a", "a-uid", "simple");
    let request = SignedRequest::lifecycle(&harness.secret(), LifecycleType::Created, &data);
    let (first, second, third) =
        tokio::join!(harness.event(&request), harness.event(&request), harness.event(&request));
    for reply in [&first, &second, &third] {
        assert_eq!(reply.is(202).json::<Value>()["result"], "starting");
    }
    harness.phase("a", TargetPhase::Ready).await;
    for _ in 0..3 {
        assert_eq!(harness.event(&request).await.is(202).body, first.body);
    }
    assert_eq!(harness.receiver.count("POST /make"), 1);
    let data = LifecycleData { document: None, ..data };
    for _ in 0..2 {
        let reply = harness.lifecycle(LifecycleType::Deleted, &data).await;
        assert_eq!(reply.is(202).json::<Value>()["result"], "stopping");
        harness.phase("a", TargetPhase::Gone).await;
    }
    assert_eq!(harness.receiver.count("POST /drop"), 1);
}

pub(crate) async fn generations_of_documents() {
    let harness = Harness::simple().await;
    request_table::play(&harness, "security/webhooks.yaml", "generations_of_documents", &[]).await;
    let target = harness.stack().store().read_target(TargetKey::new("sandbox", "a")).await.unwrap().unwrap();
    // The removals that were scheduled while it waited name the runs of its first generation.
    let facts = (target.generation, target.routing_key.as_deref(), target.first_generation);
    assert_eq!(facts, (3, Some("key"), 1));
}
