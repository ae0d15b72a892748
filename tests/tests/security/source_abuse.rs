//! Hostile requests to sources: wrong proofs, malformed bodies, and events that select more than they may.

use ebb_protocol::api::{SourceResponse, SourceResult};
use ebb_protocol::sign::MessageId;
use ebb_protocol::source_signature::{SourceScheme, sign};

use crate::harness::*;
use crate::request_table;

const PLAIN: &str = "a-secret-of-this-source";
const BEARER: &str = "{bearer: {secret: PLAIN}}";

/// A target for each number, deleted by its number. An event names the instance if it has a UID.
const EVENTS: &str = include_str!("documents/events.yaml");

/// A scheme that signs the body, one with a header and one with a parameter. The tests of `source_signature` have all.
fn schemes() -> [(&'static str, &'static str, SourceScheme); 3] {
    [
        ("github", "{github: {secret: PLAIN}}", SourceScheme::github()),
        ("bearer", BEARER, SourceScheme::Bearer),
        ("url", "{url: {secret: PLAIN}}", SourceScheme::Url),
    ]
}

#[derive(Clone, Debug)]
struct SourceRequest {
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl SourceRequest {
    /// Returns a request with the proof of a scheme.
    fn signed(name: &str, scheme: &SourceScheme, id: &str, body: &[u8]) -> Self {
        let proof = sign(scheme, PLAIN, &MessageId::parse(id).unwrap(), body, now()).unwrap();
        let query = proof.url_secret.map(|secret| format!("?secret={}", secret.as_str())).unwrap_or_default();
        Self { path: format!("/v1/sources/{name}{query}"), headers: proof.headers, body: body.to_vec() }
    }

    /// Returns a request with the proof of the source `bearer`.
    fn to(name: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::signed(name, &SourceScheme::Bearer, "1", &body.into())
    }

    fn bearer(body: impl Into<Vec<u8>>) -> Self {
        Self::to("bearer", body)
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

fn event(action: &str, n: usize) -> Vec<u8> {
    json!({"action": action, "n": n}).to_string().into_bytes()
}

impl Harness {
    pub(crate) async fn with_schemes() -> Self {
        let harness = Self::new().await;
        harness.write_secrets(&json!({"PLAIN": PLAIN}));
        for (name, verify, _) in schemes() {
            harness.put_source(name, verify, &EVENTS.replace("NAME", name)).await.is(200);
        }
        harness
    }

    async fn put_source(&self, name: &str, verify: &str, rest: &str) -> ApiReply {
        self.put("Source", name, &format!("verify: {verify}\n{rest}")).await
    }

    async fn sent(&self, request: &SourceRequest) -> ApiReply {
        let mut post = self.http.post(self.url(&request.path)).body(request.body.clone());
        for (name, value) in &request.headers {
            post = post.header(name, value);
        }
        ApiReply::to(post).await
    }

    async fn result(&self, request: &SourceRequest) -> SourceResponse {
        let reply = self.sent(request).await;
        assert!([200, 202].contains(&reply.status), "{reply:?}");
        reply.json()
    }
}

/// A source refuses requests without a proof and the proofs of other schemes.
pub(crate) async fn proofs_of_other_schemes() {
    let harness = Harness::with_schemes().await;
    for (number, (name, _, scheme)) in schemes().iter().enumerate() {
        let body = event("apply", number);
        let right = SourceRequest::signed(name, scheme, "1", &body);
        let unproved = SourceRequest { path: format!("/v1/sources/{name}"), headers: vec![], ..right.clone() };
        let foreign = schemes().into_iter().filter(|(foreign, ..)| foreign != name);
        let foreign = foreign.map(|(.., scheme)| SourceRequest::signed(name, &scheme, "1", &body));
        for request in foreign.chain([unproved]) {
            let reply = harness.sent(&request).await;
            reply.is_problem(401, "invalid-signature");
            assert!(!reply.body.contains(PLAIN), "{reply:?}");
        }
        // The same request with its proof is accepted, and a replay of it changes nothing.
        let target = format!("{name}-{number}");
        assert!(harness.target(&target).await.is_none());
        assert_eq!(harness.result(&right).await.result, SourceResult::Starting, "{name}");
        harness.phase(&target, TargetPhase::Ready).await;
        let end = SourceRequest::signed(name, scheme, "2", &event("delete", number));
        assert_eq!(harness.result(&end).await.result, SourceResult::Stopping, "{name}");
        harness.phase(&target, TargetPhase::Gone).await;
        assert_eq!(harness.result(&right).await.result, SourceResult::Repeated, "{name}");
    }
}

/// Malformed bodies with a valid proof.
pub(crate) async fn malformed_bodies() {
    let harness = Harness::with_schemes().await;
    // An event of GitHub has at most 25 MB. The server may close the connection before it has read all.
    let huge = vec![b' '; 25 << 20];
    let sent = harness.http.post(harness.url("/v1/sources/bearer")).bearer_auth(PLAIN).body(huge).send().await;
    if let Ok(response) = sent {
        assert_eq!(response.status(), 413);
    }
    // Requests that are refused before their body is read: by its declared length, and without a proof.
    for (source, head, status) in [
        ("bearer", format!("authorization: Bearer {PLAIN}\r\ncontent-length: {}", 25 << 20), b"413"),
        ("github", "expect: 100-continue\r\ncontent-length: 4000000".to_owned(), b"401"),
    ] {
        let mut connection = harness.connect().await;
        let head = format!("POST /v1/sources/{source} HTTP/1.1\r\nhost: ebb\r\n{head}\r\n\r\n");
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut line = [0; 12];
        connection.read_exact(&mut line).await.unwrap();
        assert_eq!(&line[9..], status, "{head}");
    }
    // The JSON of an event, compressed by gzip.
    let compressed: &[u8] = &[
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0x4a, 0x4c, 0x2e, 0xc9, 0xcc, 0xcf,
        0x53, 0xb2, 0x52, 0x4a, 0x2c, 0x28, 0xc8, 0xa9, 0x54, 0xd2, 0x51, 0x02, 0xb2, 0x0d, 0x6b, 0x01, 0x09, 0x99,
        0x76, 0xa6, 0x18, 0x00, 0x00, 0x00,
    ];
    let many = |open: &str, close: &str, count| format!("{}0{}", open.repeat(count), close.repeat(count));
    let text = String::from_utf8(event("apply", 1)).unwrap();
    let latin: Vec<u8> = text.replace("apply", "\u{e9}").chars().map(|c| c as u8).collect();
    let twice = format!("url?secret={PLAIN}&secret=another");
    for (request, status, code) in [
        (SourceRequest::bearer(vec![b' '; limits::SOURCE_BODY + 1]), 413, "too-large"),
        (SourceRequest::bearer(format!("[{}0]", "[],".repeat(1_300_000))), 413, "too-large"),
        (SourceRequest::bearer(format!("[{}0]", "{\"a\":0},".repeat(60_000))), 413, "too-large"),
        (SourceRequest::to(&twice, "{}"), 400, "invalid-query"),
        (SourceRequest::bearer(compressed).header("content-encoding", "gzip"), 400, "invalid-json"),
        (SourceRequest::bearer(latin), 400, "invalid-json"),
        (SourceRequest::bearer(format!("\u{feff}{text}")), 400, "invalid-json"),
        (SourceRequest::bearer(many("[", "]", 100_000)), 400, "invalid-json"),
        (SourceRequest::bearer(many("{\"a\":", "}", 100_000)), 400, "invalid-json"),
        (SourceRequest::bearer(""), 400, "invalid-json"),
        (SourceRequest::bearer(format!("{text}{text}")), 400, "invalid-json"),
        (SourceRequest::bearer("payload=%7B%7D"), 400, "invalid-json"),
        (SourceRequest::bearer("{\"action\": \"apply\", \"n\": NaN}"), 400, "invalid-json"),
    ] {
        harness.sent(&request).await.is_problem(status, code);
    }
    // JSON without the fields of an event. The sender is known, so the answer is 200.
    for (body, result) in [
        ("null", SourceResult::Ignored),
        ("7", SourceResult::Rejected),
        ("{}", SourceResult::Ignored),
        (r#"{"action": "apply", "n": null}"#, SourceResult::Rejected),
        (r#"{"action": "apply", "n": {"a": 1}}"#, SourceResult::Rejected),
        (r#"{"action": ["apply"], "n": 1}"#, SourceResult::Ignored),
    ] {
        let outcome = harness.result(&SourceRequest::bearer(body)).await;
        assert_eq!(outcome.result, result, "{body}: {outcome:?}");
    }
    assert_eq!(harness.listed("").await, [""; 0]);
}

pub(crate) async fn names_in_paths() {
    let harness = Harness::with_schemes().await;
    let long = "a".repeat(64);
    let names = "..%2Fsources%2Fbearer bearer%2F bearer%00 Bearer bearer%20 bearer;x bearer%23 %2e%2e x - \
                 bearer%3Fsecret=x b%C3%A9arer source%23bearer";
    for name in names.split(' ').chain([long.as_str()]) {
        let reply = harness.sent(&SourceRequest::to(name, event("apply", 1))).await;
        assert!([400, 404].contains(&reply.status), "{name}: {reply:?}");
        assert_eq!(reply.header("content-type"), "application/problem+json", "{name}: {reply:?}");
    }
    assert_eq!(harness.listed("").await, [""; 0]);
}

pub(crate) async fn targets_of_others() {
    let harness = Harness::with_schemes().await;
    for name in ["bearer", "other"] {
        harness.put_source(name, BEARER, &EVENTS.replace("NAME", "shared")).await.is(200);
    }
    request_table::play(&harness, "security/source_abuse.yaml", "targets_of_others", &[]).await;
}
