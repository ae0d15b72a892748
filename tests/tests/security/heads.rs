//! Requests that are rejected by their headers, before the body is read.

use ebb_protocol::pull::POLL_BODY;
use ebb_tests::platform::SignedRequest;

use crate::harness::*;

const MIB: usize = 1 << 20;
/// Maximum number of concurrent lifecycle webhooks of the maximum size.
const MAX_CONCURRENT: usize = 16;
/// Longer than a request waits for memory for its body.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

type Headers = Vec<(&'static str, String)>;

/// Sends the headers of a request without its body.
async fn begin(harness: &Harness, path: &str, length: usize, headers: &[(&str, String)]) -> TcpStream {
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: ebb\r\ncontent-length: {length}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut connection = harness.connect().await;
    connection.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    connection
}

/// Returns the status of the response, or `None` after a timeout.
async fn status(connection: &mut TcpStream) -> Option<u16> {
    let mut line = [0; 12];
    tokio::time::timeout(RESPONSE_TIMEOUT, connection.read_exact(&mut line)).await.ok()?.unwrap();
    std::str::from_utf8(&line[9..]).unwrap().parse().ok()
}

/// Returns all required headers, with an invalid signature.
fn forged(at: Timestamp) -> Headers {
    let secret = WebhookSecret::from_bytes(&[9; 32]).unwrap();
    let request = SignedRequest::new(&secret, "m", at, Vec::new());
    request.header("content-type", "application/cloudevents+json").headers
}

fn without(name: &str) -> Headers {
    forged(now()).into_iter().filter(|(header, _)| *header != name).collect()
}

pub(crate) async fn headers_are_checked_before_bodies() {
    let harness = Harness::new().await;
    let (events, callbacks, poll) = ("/v1/events", "/v1/callbacks", "/v1/clusters/a/poll");
    let bearer = |token: &str| vec![("authorization", format!("Bearer {token}"))];
    let mut binary = without("content-type");
    binary.push(("content-type", "application/json".to_owned()));
    for (path, length, headers, expected) in [
        (events, limits::WEBHOOK_BODY + 1, forged(now()), 413),
        (events, MIB, without("webhook-signature"), 401),
        (events, MIB, forged(Timestamp(now().0 - 600_000)), 401),
        (events, MIB, without("content-type"), 415),
        (events, MIB, binary, 415),
        (callbacks, limits::CALLBACK_BODY + 1, bearer("x"), 413),
        (callbacks, MIB, vec![], 401),
        (callbacks, MIB, bearer("ebb1.local.w.x"), 403),
        (poll, POLL_BODY + 1, forged(now()), 413),
        (poll, MIB, without("webhook-id"), 401),
        ("/v1/plugins", MIB, bearer("x"), 401),
    ] {
        let mut connection = begin(&harness, path, length, &headers).await;
        assert_eq!(status(&mut connection).await, Some(expected), "{path} {length} {headers:?}");
    }
}

/// The memory for unverified bodies is limited by the bytes that have arrived. A body that stops arriving releases it.
pub(crate) async fn unverified_bodies_are_limited() {
    let harness = Harness::new().await;
    let headers = forged(now());
    let begun = async |sent: usize| {
        let mut connection = begin(&harness, "/v1/events", limits::WEBHOOK_BODY, &headers).await;
        connection.write_all(&vec![b' '; sent]).await.unwrap();
        connection
    };
    // Declared lengths take no memory.
    let mut idle = Vec::new();
    for _ in 0..2 * MAX_CONCURRENT {
        idle.push(begun(0).await);
    }
    let mut complete = begun(limits::WEBHOOK_BODY).await;
    assert_eq!(status(&mut complete).await, Some(401));
    let mut held = Vec::new();
    for _ in 0..MAX_CONCURRENT {
        held.push(begun(limits::WEBHOOK_BODY - 1).await);
    }
    // Small webhooks have a separate limit.
    harness.delete("a").await;
    let mut next = begun(limits::WEBHOOK_BODY).await;
    let answer = status(&mut next).await;
    assert!(matches!(answer, Some(401 | 503)), "{answer:?}");
    for connection in &mut held {
        assert_eq!(status(connection).await, Some(408));
    }
}
