//! Clients that disconnect, and slow receivers. An accepted request is processed to its end, and its response does not
//! wait.

use ebb_tests::platform::SignedRequest;

use crate::harness::*;

/// `next` runs after `make`.
const PAIR: &str = r#"
preStart:
  make: {webhook: {url: "RECEIVER/make"}}
  next: {after: [make], webhook: {url: "RECEIVER/next"}}
"#;

/// Far below the 20 s timeout for responses of receivers.
const IMMEDIATE: Duration = Duration::from_secs(10);

pub(crate) async fn responses_do_not_wait_for_receivers() {
    let harness = Harness::new().await;
    let (make, next) = (harness.receiver.hold("POST /make"), harness.receiver.hold("POST /next"));
    harness.receiver.always("POST /make", 202);
    harness.publish("waits@1.0.0", PAIR).await;
    let begun = Instant::now();
    harness.create("a", "waits").await;
    let call = harness.receiver.call("POST /make", 1).await;
    drop(make);
    harness.callback(call.token(), &done()).await.is(204);
    harness.receiver.call("POST /next", 1).await;
    assert!(begun.elapsed() < IMMEDIATE, "{:?}", begun.elapsed());
    drop(next);
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.order(), ["POST /make", "POST /next"]);
}

pub(crate) async fn responses_do_not_wait_for_the_platform() {
    let harness = Harness::with_platform().await;
    let platform = harness.receiver.hold("POST /platform");
    let call = harness.accepted("ends", "preStart: {make: {webhook: {url: \"RECEIVER/make\"}}}").await;
    let begun = Instant::now();
    harness.callback(call.token(), &done()).await.is(204);
    assert!(begun.elapsed() < IMMEDIATE, "{:?}", begun.elapsed());
    let outcome = harness.receiver.call("POST /platform", 1).await;
    assert_eq!(word(outcome.body["type"].as_str().unwrap()), "ready");
    harness.phase("a", TargetState::Ready).await;
    drop(platform);
    harness.notification_accepted("a").await;
    // A sweep may repeat the notification while the platform hangs.
    let notified = harness.receiver.calls("POST /platform");
    let first = outcome.header("webhook-id");
    assert!(notified.iter().all(|call| call.header("webhook-id") == first), "{notified:?}");
}

pub(crate) async fn a_repeated_callback_repeats_no_request() {
    let harness = Harness::new().await;
    let call = harness.accepted("waits", PAIR).await;
    let next = harness.receiver.hold("POST /next");
    for _ in 0..3 {
        harness.callback(call.token(), &done()).await.is(204);
        harness.receiver.call("POST /next", 1).await;
    }
    drop(next);
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.count("POST /next"), 1);
}

/// How a client disconnects after sending its request.
#[derive(Clone, Copy, Debug)]
enum DisconnectKind {
    Closed,
    Reset,
    HalfClosed,
}

async fn send_and_disconnect(
    harness: &Harness,
    head: &str,
    body: &[u8],
    disconnect: DisconnectKind,
) -> Option<TcpStream> {
    let mut stream = harness.connect().await;
    let head = format!("{head}host: ebb\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    match disconnect {
        DisconnectKind::Closed => None,
        DisconnectKind::Reset => {
            stream.set_zero_linger().unwrap();
            None
        }
        DisconnectKind::HalfClosed => {
            stream.shutdown().await.unwrap();
            Some(stream)
        }
    }
}

pub(crate) async fn a_callback_is_processed_after_its_client_disconnects() {
    for disconnect in [DisconnectKind::Closed, DisconnectKind::HalfClosed, DisconnectKind::Reset] {
        let harness = Harness::new().await;
        let call = harness.accepted("waits", PAIR).await;
        let next = harness.receiver.hold("POST /next");
        let body = done().to_string();
        let head = format!("POST /v1/callbacks HTTP/1.1\r\nauthorization: Bearer {}\r\n", call.token());
        let open = send_and_disconnect(&harness, &head, body.as_bytes(), disconnect).await;
        harness.receiver.call("POST /next", 1).await;
        let heads = harness.state("a", Hook::PreStart).await.heads;
        assert!(heads[0].head.done.contains(&0), "{disconnect:?}: {heads:?}");
        drop((open, next));
        harness.phase("a", TargetState::Ready).await;
        assert_eq!(harness.receiver.count("POST /next"), 1, "{disconnect:?}");
    }
}

pub(crate) async fn an_event_is_processed_after_its_client_disconnects() {
    let harness = Harness::new().await;
    let make = harness.receiver.hold("POST /make");
    harness.publish("waits@1.0.0", PAIR).await;
    let data = sandbox("a", "a-uid", "waits");
    let SignedRequest { headers, body } = SignedRequest::lifecycle(&harness.secret(), LifecycleType::Created, &data);
    let lines = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let head = format!("POST /v1/events HTTP/1.1\r\n{}", lines.collect::<String>());
    send_and_disconnect(&harness, &head, &body, DisconnectKind::Closed).await;
    harness.receiver.call("POST /make", 1).await;
    drop(make);
    until("the sandbox", async || harness.target("a").await).await;
    harness.phase("a", TargetState::Ready).await;
    assert_eq!(harness.receiver.order(), ["POST /make", "POST /next"]);
}
