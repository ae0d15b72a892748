//! Requests as bytes: heads that are refused before the body is read, parts that are too large, and clients that disconnect.
//! An accepted request is processed to its end.

use ebb_protocol::pull::POLL_BODY;

use crate::harness::*;

/// Sends the head of a request and a part of its body. `headers` are lines.
pub(super) async fn send(harness: &Harness, line: &str, headers: &str, length: usize, body: &[u8]) -> TcpStream {
    let mut connection = harness.connect().await;
    let head = format!("{line} HTTP/1.1\r\nhost: ebb\r\n{headers}content-length: {length}\r\n\r\n");
    let bytes = [head.as_bytes(), body].concat();
    // The server may respond and close before it has read everything.
    let sent = tokio::time::timeout(WAIT_TIMEOUT, connection.write_all(&bytes)).await;
    let _ = sent.expect("the server reads no more");
    connection
}

/// Returns the status of the response, or `None` if the connection was closed.
pub(super) async fn status(mut connection: TcpStream) -> Option<u16> {
    let mut line = [0; 12];
    let read = tokio::time::timeout(WAIT_TIMEOUT, connection.read_exact(&mut line)).await;
    read.expect("no response before the timeout").ok()?;
    std::str::from_utf8(&line[9..]).unwrap().parse().ok()
}

/// Returns headers as lines, without one of them.
fn lines(request: &SignedRequest, without: &str) -> String {
    let headers = request.headers.iter().filter(|(name, _)| *name != without);
    headers.map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

pub(crate) async fn headers_are_checked_before_bodies() {
    const MIB: usize = 1 << 20;
    const SENDER: &str = "a-secret-of-this-source";
    let harness = Harness::new().await;
    request_table::play(&harness, "security/source_abuse.yaml", "schemes", &[]).await;
    let forged = |seconds: u64| {
        let secret = WebhookSecret::from_bytes(&[9; 32]).unwrap();
        let request = SignedRequest::new(&secret, "m", Timestamp(now().0 - 1_000 * seconds), Vec::new());
        request.header("content-type", "application/cloudevents+json")
    };
    let [webhook, callback, poll] =
        [limits::WEBHOOK_BODY, limits::CALLBACK_BODY, POLL_BODY].map(|most| (most + 1).to_string());
    let names = [("OVER_WEBHOOK", &*webhook), ("OVER_CALLBACK", &*callback), ("OVER_POLL", &*poll)];
    let rows: Vec<(String, usize, Option<u64>, String, String, u16)> =
        request_table::table("security/raw_requests.yaml", "refused_heads", &names);
    for (path, length, seconds, without, with, expected) in rows {
        let signed = seconds.map(|seconds| lines(&forged(seconds), &without)).unwrap_or_default();
        let headers = signed + &with;
        let connection = send(&harness, &format!("POST /v1/{path}"), &headers, length, b"").await;
        assert_eq!(status(connection).await, Some(expected), "{path} {length} {headers}");
    }
    // An event of GitHub has at most 25 MB. The server may close the connection before it has read all.
    for (path, size) in [("/v1/sources/bearer", 25 * MIB), ("/v1/events", 10 * MIB)] {
        let huge = harness.http.post(harness.url(path)).bearer_auth(SENDER).body(vec![b' '; size]);
        let huge = huge.header("content-type", "application/cloudevents+json").send().await;
        assert!(huge.is_err() || huge.is_ok_and(|response| response.status() == 413), "{path}");
    }
}

pub(crate) async fn large_headers_and_urls() {
    let harness = Harness::new().await;
    let large = "x".repeat(2 << 20);
    let many: String = (0..5_000).map(|number| format!("x-{number}: {number}\r\n")).collect();
    for (line, headers) in [
        ("GET /healthz".to_owned(), format!("x-large: {large}\r\n")),
        ("GET /healthz".to_owned(), many),
        ("GET /healthz".to_owned(), format!("authorization: Bearer {large}\r\n")),
        (format!("GET /v1/targets/sandbox/{large}"), String::new()),
        (format!("GET /v1/targets?nextToken={large}"), String::new()),
        ("\0\x01\x02 not HTTP".to_owned(), String::new()),
    ] {
        let status = status(send(&harness, &line, &headers, 0, b"").await).await;
        assert!(status.is_none_or(|status| (400..500).contains(&status)), "{line:.60}: {status:?}");
    }
    // Tokens of nearly the maximum size of a header.
    for token in ["x".repeat(60_000), format!("ebb1.{}", "a.".repeat(30_000))] {
        harness.callback(&token, &done()).await.is_problem(403, "invalid-token");
        harness.with_token(&token, "GET /v1/targets", None).await.is_problem(401, "invalid-token");
    }
    harness.get("/healthz").await.is(200);
}

pub(crate) async fn a_request_is_processed_after_its_client_disconnects() {
    for disconnect in ["closed", "reset", "half closed"] {
        let harness = Harness::new().await;
        let [make, next] = ["make", "next"].map(|path| harness.receiver.hold(&format!("POST /{path}")));
        harness.receiver.always("POST /make", 202);
        // `next` runs after `make`.
        harness.publish("waits@1.0.0", include_str!("documents/pair.yaml")).await;
        let mut open = Vec::new();
        let mut disconnected = async |line: &str, headers: &str, body: &[u8]| {
            let mut connection = send(&harness, line, headers, body.len(), body).await;
            match disconnect {
                "closed" => {}
                "reset" => connection.set_zero_linger().unwrap(),
                _ => {
                    connection.shutdown().await.unwrap();
                    open.push(connection);
                }
            }
        };
        let data = sandbox("a", "a-uid", "waits");
        let event = SignedRequest::lifecycle(&harness.secret(), LifecycleType::Created, &data);
        disconnected("POST /v1/events", &lines(&event, ""), &event.body).await;
        let call = harness.receiver.call("POST /make", 1).await;
        drop(make);
        let headers = format!("authorization: Bearer {}\r\n", call.token());
        disconnected("POST /v1/callbacks", &headers, done().to_string().as_bytes()).await;
        harness.receiver.call("POST /next", 1).await;
        drop(next);
        until("the sandbox", async || harness.target("a").await).await;
        harness.phase("a", TargetPhase::Ready).await;
        assert_eq!(harness.receiver.order(), ["POST /make", "POST /next"], "{disconnect}");
    }
}
