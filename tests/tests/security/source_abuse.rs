//! Hostile requests to sources: wrong proofs, malformed bodies, and events that select more than they may.

use ebb_protocol::api::{SourceResponse, SourceResult};
use ebb_protocol::sign::MessageId;
use ebb_protocol::source_signature::{HmacHash, MacEncoding, SourceScheme, sign};

use crate::harness::*;

/// Each scheme as the document has it, with its secret of [`Harness::with_schemes`].
fn schemes() -> Vec<(&'static str, &'static str, &'static str, SourceScheme)> {
    let with_hmac =
        "{hmac: {secret: PLAIN, header: X-Signature, prefix: \"v0=\", algorithm: sha512, encoding: base64}}";
    let hmac = SourceScheme::Hmac {
        header: "x-signature".to_owned(),
        prefix: "v0=".to_owned(),
        algorithm: HmacHash::Sha512,
        encoding: MacEncoding::Base64,
    };
    vec![
        ("github", "{github: {secret: PLAIN}}", PLAIN, SourceScheme::github()),
        ("gitlab", "{gitlab: {secret: PLAIN}}", PLAIN, SourceScheme::Gitlab),
        ("gitlab-signed", "{gitlab: {secret: SIGNING}}", SIGNING, SourceScheme::Gitlab),
        ("gitea", "{gitea: {secret: PLAIN}}", PLAIN, SourceScheme::gitea()),
        ("vercel", "{vercel: {secret: PLAIN}}", PLAIN, SourceScheme::vercel()),
        ("standard", "{standard: {secret: SIGNING}}", SIGNING, SourceScheme::Standard),
        ("hmac", with_hmac, PLAIN, hmac),
        ("e2b", "{e2b: {secret: PLAIN}}", PLAIN, SourceScheme::E2b),
        ("bearer", "{bearer: {secret: PLAIN}}", PLAIN, SourceScheme::Bearer),
        ("basic", "{basic: {user: ebb, secret: PLAIN}}", PLAIN, SourceScheme::Basic { user: "ebb".to_owned() }),
        ("url", "{url: {secret: PLAIN}}", PLAIN, SourceScheme::Url),
    ]
}

const PLAIN: &str = "a-secret-of-this-source";
const OTHER: &str = "the-secret-of-another-source";
const SIGNING: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A target for each number, deleted by its number. An event names the instance if it has a UID.
const EVENTS: &str = r#"
target: {kind: sandbox, name: "NAME-${string(body.n)}"}
document: {labels: {title: "${body.?title}"}, resources: {}}
events:
  - when: ${has(body.uid) && body.action == "delete"}
    uid: ${body.uid}
    delete: {}
  - when: ${body.action == "delete"}
    delete: {}
  - when: ${has(body.uid) && body.action == "apply"}
    uid: ${body.uid}
    apply: {}
  - when: ${body.action == "apply"}
    apply: {}
"#;

/// A request to a source.
#[derive(Clone, Debug)]
struct SourceRequest {
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl SourceRequest {
    /// Returns a request with the proof of a scheme.
    fn signed(name: &str, scheme: &SourceScheme, secret: &str, id: &str, at: Timestamp, body: &[u8]) -> Self {
        let proof = sign(scheme, secret, &MessageId::parse(id).unwrap(), body, at).unwrap();
        let query = proof.url_secret.map(|secret| format!("?secret={}", secret.as_str())).unwrap_or_default();
        Self { path: format!("/v1/sources/{name}{query}"), headers: proof.headers, body: body.to_vec() }
    }

    /// Returns a request to the source `bearer`.
    fn bearer(body: impl Into<Vec<u8>>) -> Self {
        Self::signed("bearer", &SourceScheme::Bearer, PLAIN, "1", now(), &body.into())
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
    /// Starts a stack with a source for each scheme.
    async fn with_schemes() -> Self {
        let harness = Self::new().await;
        harness.write_secrets(&json!({"PLAIN": PLAIN, "SIGNING": SIGNING, "OTHER": OTHER}).to_string());
        for (name, verify, ..) in schemes() {
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
        ApiReply::of(post.send().await.unwrap()).await
    }

    async fn result(&self, request: &SourceRequest) -> SourceResponse {
        let reply = self.sent(request).await;
        assert!([200, 202].contains(&reply.status), "{reply:?}");
        reply.json()
    }
}

/// Each scheme refuses requests without a proof and the proofs of all others.
pub(crate) async fn proofs_of_each_scheme() {
    let harness = Harness::with_schemes().await;
    let all = schemes();
    for (number, (name, _, secret, scheme)) in all.iter().enumerate() {
        let body = event("apply", number);
        let right = SourceRequest::signed(name, scheme, secret, "1", now(), &body);
        let unproved = SourceRequest { path: format!("/v1/sources/{name}"), headers: vec![], body: body.clone() };
        let mut wrong = vec![("no proof", unproved)];
        for (foreign, _, foreign_secret, foreign_scheme) in &all {
            let mut request = SourceRequest::signed(name, foreign_scheme, foreign_secret, "1", now(), &body);
            if (&request.headers, &request.path) == (&right.headers, &right.path) || foreign == name {
                continue;
            }
            // A signature of GitLab is one of Standard Webhooks.
            if ["gitlab-signed", "standard"].contains(name) && ["gitlab-signed", "standard"].contains(foreign) {
                continue;
            }
            request.headers.retain(|(header, _)| header != "idempotency-key");
            wrong.push((*foreign, request));
        }
        for (proof, request) in wrong {
            let reply = harness.sent(&request).await;
            let problem = reply.is_problem(401, "invalid-signature");
            assert!(!reply.body.contains(PLAIN) && !reply.body.contains(SIGNING), "{name}: {proof}: {problem:?}");
        }
        assert_eq!(harness.listed("").await, [""; 0]);
        // The same request with its proof is accepted, and a replay of it changes nothing.
        assert_eq!(harness.result(&right).await.result, SourceResult::Starting, "{name}");
        let target = format!("{name}-{number}");
        harness.phase(&target, TargetState::Ready).await;
        let end = SourceRequest::signed(name, scheme, secret, "2", now(), &event("delete", number));
        assert_eq!(harness.result(&end).await.result, SourceResult::Stopping, "{name}");
        harness.phase(&target, TargetState::Gone).await;
        assert_eq!(harness.result(&right).await.result, SourceResult::Repeated, "{name}");
        assert_eq!(harness.target(&target).await.unwrap().info.phase, TargetState::Gone, "{name}");
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
    let large = SourceRequest::bearer(vec![b' '; limits::SOURCE_BODY + 1]);
    harness.sent(&large).await.is_problem(413, "too-large");
    for (unit, values) in [("[],", 1_300_000), ("{\"a\":0},", 60_000)] {
        let many = SourceRequest::bearer(format!("[{}0]", unit.repeat(values)));
        harness.sent(&many).await.is_problem(413, "too-large");
    }
    let mut declared = harness.connect().await;
    let head = format!("POST /v1/sources/bearer HTTP/1.1\r\nhost: ebb\r\nauthorization: Bearer {PLAIN}\r\n");
    declared.write_all(format!("{head}content-length: {}\r\n\r\n", 25 << 20).as_bytes()).await.unwrap();
    let mut line = [0; 12];
    declared.read_exact(&mut line).await.unwrap();
    assert_eq!(&line[9..], b"413", "a declared length is refused before the body is read");

    let mut unsigned = harness.connect().await;
    let head =
        "POST /v1/sources/github HTTP/1.1\r\nhost: ebb\r\nexpect: 100-continue\r\ncontent-length: 4000000\r\n\r\n";
    unsigned.write_all(head.as_bytes()).await.unwrap();
    unsigned.read_exact(&mut line).await.unwrap();
    assert_eq!(&line[9..], b"401", "a request without a proof is refused before the body is read");
    let twice =
        SourceRequest { path: format!("/v1/sources/url?secret={PLAIN}&secret={OTHER}"), ..SourceRequest::bearer("{}") };
    harness.sent(&twice).await.is_problem(400, "invalid-query");

    // The JSON of an event, compressed by gzip.
    let compressed: &[u8] = &[
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0x4a, 0x4c, 0x2e, 0xc9, 0xcc, 0xcf,
        0x53, 0xb2, 0x52, 0x4a, 0x2c, 0x28, 0xc8, 0xa9, 0x54, 0xd2, 0x51, 0x02, 0xb2, 0x0d, 0x6b, 0x01, 0x09, 0x99,
        0x76, 0xa6, 0x18, 0x00, 0x00, 0x00,
    ];
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let text = String::from_utf8(event("apply", 1)).unwrap();
    let latin: Vec<u8> = text.replace("apply", "\u{e9}").chars().map(|c| c as u8).collect();
    for (attempt, request) in [
        ("compressed", SourceRequest::bearer(compressed).header("content-encoding", "gzip")),
        ("not UTF-8", SourceRequest::bearer(latin)),
        ("UTF-16", SourceRequest::bearer(text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>())),
        ("a byte order mark", SourceRequest::bearer(format!("\u{feff}{text}"))),
        ("nested lists", SourceRequest::bearer(nested("[", "]"))),
        ("nested mappings", SourceRequest::bearer(nested("{\"a\":", "}"))),
        ("empty", SourceRequest::bearer("")),
        ("two documents", SourceRequest::bearer(format!("{text}{text}"))),
        ("a form", SourceRequest::bearer("payload=%7B%7D").header("content-type", "application/x-www-form-urlencoded")),
        ("not a number", SourceRequest::bearer("{\"action\": \"apply\", \"n\": NaN}")),
    ] {
        let reply = harness.sent(&request).await;
        assert_eq!((attempt, reply.status), (attempt, 400), "{reply:?}");
        reply.is_problem(400, "invalid-json");
    }
    // JSON without the fields of an event. The sender is known, so the answer is 200.
    for (body, result) in [
        ("null", SourceResult::Ignored),
        ("7", SourceResult::Rejected),
        ("[]", SourceResult::Rejected),
        ("{}", SourceResult::Ignored),
        (r#"{"action": "apply"}"#, SourceResult::Rejected),
        (r#"{"action": "apply", "n": null}"#, SourceResult::Rejected),
        (r#"{"action": "apply", "n": {"a": 1}}"#, SourceResult::Rejected),
        (r#"{"action": ["apply"], "n": 1}"#, SourceResult::Ignored),
    ] {
        let outcome = harness.result(&SourceRequest::bearer(body)).await;
        assert_eq!(outcome.result, result, "{body}: {outcome:?}");
    }
    assert_eq!(harness.listed("").await, [""; 0]);
}

/// A source in which an event would choose more than values is refused. An event that tries has values only.
pub(crate) async fn contents_that_select() {
    let harness = Harness::with_schemes().await;
    let target = "target: {kind: sandbox, name: \"s-${body.n}\"}\n";
    let apply = "events: [{when: \"${true}\", apply: {}}]\n";
    let with = |document: &str| format!("{target}document: {{{document}}}\n{apply}");
    for (attempt, rest) in [
        ("plugin", with("resources: {r: {plugin: \"${body.x}\"}}")),
        ("version of a plugin", with("resources: {r: {plugin: \"db@${body.x}\"}}")),
        ("name of a resource", with("resources: {\"${body.x}\": {plugin: db}}")),
        ("cluster", with("resources: {}, cluster: \"${body.x}\"")),
        ("namespace", with("resources: {}, namespace: \"${body.x}\"")),
        ("image", with("preStart: {u: {pod: {image: \"${body.x}\", script: \"#!/bin/sh\"}, cleanup: none}}")),
        ("URL", with("preStart: {u: {webhook: {url: \"${body.x}\"}, cleanup: none}}")),
        ("connection of a unit", with("preStart: {u: {webhook: {connection: \"${body.x}\", path: /}, cleanup: none}}")),
        ("Secret of a param", with("resources: {r: {plugin: db, params: {p: {secret: \"${body.x}\", key: k}}}}")),
        ("kind", format!("target: {{kind: \"${{body.x}}\", name: a}}\ndocument: {{resources: {{}}}}\n{apply}")),
        ("connection", format!("fetch: {{connection: \"${{body.x}}\", path: /}}\n{}", with("resources: {}"))),
        ("origin", format!("fetch: {{connection: a, path: \"${{body.x}}\"}}\n{}", with("resources: {}"))),
    ] {
        let reply = harness.put_source("selecting", "{bearer: {secret: PLAIN}}", &rest).await;
        assert_eq!((attempt, reply.status), (attempt, 422), "{reply:?}");
        reply.is_problem(422, "invalid-document");
    }
    let secret = harness.put_source("selecting", "{bearer: {secret: \"${body.x}\"}}", &with("resources: {}")).await;
    secret.is_problem(422, "invalid-document");

    // Keys and texts of an event that look like parts of a document.
    let hostile = json!({
        "action": "apply", "n": 1, "cluster": "other", "namespace": "kube-system", "preStart": {}, "ttl": "1s",
        "resources": {"r": {"plugin": "other"}}, "verify": {"url": {"secret": "OTHER"}}, "source": "other",
        "title": "a\ncluster: other\n${resources.r.outputs.x} @{embed: /etc/passwd}",
    });
    let outcome = harness.result(&SourceRequest::bearer(hostile.to_string())).await;
    assert_eq!(outcome.result, SourceResult::Starting, "{outcome:?}");
    let ready = harness.phase("bearer-1", TargetState::Ready).await;
    assert_eq!((ready.resources.len(), ready.info.expires), (0, None));
    assert_eq!(ready.info.labels["title"], hostile["title"].as_str().unwrap());
    // A value of an event that would name a Secret.
    harness.publish("db@1.0.0", "params: {p: {type: object, required: false}}\npreStart: {make: {webhook: {url: \"RECEIVER/make\"}, cleanup: none}}\n").await;
    let given = with("resources: {r: {plugin: db, params: {p: \"${body.x}\"}}}");
    harness.put_source("selecting", "{bearer: {secret: PLAIN}}", &given).await.is(200);
    let body = json!({"n": "1", "x": {"secret": "admin", "key": "password"}}).to_string();
    let request = SourceRequest { path: "/v1/sources/selecting".to_owned(), ..SourceRequest::bearer(body) };
    let outcome = harness.result(&request).await;
    assert_eq!(outcome.result, SourceResult::Rejected, "{outcome:?}");
    assert!(harness.target("s-1").await.is_none() && harness.receiver.all().is_empty());
}

/// A source gives no value to a sensitive param, because its documents are stored.
pub(crate) async fn values_of_sensitive_params() {
    let harness = Harness::with_schemes().await;
    let plugin = r#"
params: {p: {type: string, sensitive: true}}
preStart: {make: {webhook: {url: "RECEIVER/make", body: {p: "${params.p}"}}, cleanup: none}}
"#;
    harness.publish("db@1.0.0", plugin).await;
    let source = r#"
target: {kind: sandbox, name: "s-${body.n}"}
document: {resources: {r: {plugin: db, params: {p: "${body.x}"}}}}
events: [{when: "${true}", apply: {}}]
"#;
    harness.put_source("giving", "{bearer: {secret: PLAIN}}", source).await.is(200);
    let body = json!({"n": "1", "x": "a-value-of-an-event"}).to_string();
    let request = SourceRequest { path: "/v1/sources/giving".to_owned(), ..SourceRequest::bearer(body) };
    let outcome = harness.result(&request).await;
    assert_eq!(outcome.result, SourceResult::Rejected, "{outcome:?}");
    assert!(outcome.detail.contains("the sensitive param `p` of resource `r`"), "{outcome:?}");
    assert!(!outcome.detail.contains("a-value-of-an-event"), "{outcome:?}");
    assert!(harness.target("s-1").await.is_none() && harness.receiver.all().is_empty());
}

/// Names of sources that are none, and names of targets that an event cannot have.
pub(crate) async fn names_in_events_and_paths() {
    let harness = Harness::with_schemes().await;
    let long = "a".repeat(64);
    let names = "..%2Fsources%2Fbearer bearer%2F bearer%00 Bearer bearer%20 bearer;x bearer%23 %2e%2e x - \
                 bearer%3Fsecret=x b%C3%A9arer source%23bearer";
    for name in names.split(' ').chain([long.as_str()]) {
        let request = SourceRequest { path: format!("/v1/sources/{name}"), ..SourceRequest::bearer(event("apply", 1)) };
        let reply = harness.sent(&request).await;
        assert!([400, 404].contains(&reply.status), "{name}: {reply:?}");
        assert_eq!(reply.content_type, "application/problem+json", "{name}: {reply:?}");
    }
    assert_eq!(harness.listed("").await, [""; 0]);
    // Two texts never get one name, and each name is one.
    let rest = EVENTS.replace("NAME-${string(body.n)}", "${body.n}");
    harness.put_source("bearer", "{bearer: {secret: PLAIN}}", &rest).await.is(200);
    let mut names = BTreeSet::new();
    let texts = ["../a", "a/b", "a-b", "a%2Fb", "a#b", "a?b", "..", "a\nb", "a\u{0}b", "\u{202e}a", "A", &long];
    for (number, text) in texts.iter().enumerate() {
        let body = json!({"action": "apply", "n": text}).to_string();
        let outcome = harness.result(&SourceRequest::bearer(body)).await;
        let target = outcome.target.unwrap_or_else(|| panic!("{text}: {}", outcome.detail));
        let name = target.strip_prefix("sandbox/").unwrap();
        assert!(name.len() <= 63 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{text}: {name}");
        names.insert(name.to_owned());
        assert_eq!(names.len(), number + 1, "{text}: {name}");
    }
}

/// An event concerns the targets of its source only, also if it names the instance of another one.
pub(crate) async fn targets_of_others() {
    let harness = Harness::with_schemes().await;
    harness.publish("none@1.0.0", "preStart: {make: {webhook: {url: \"RECEIVER/make\"}, cleanup: none}}\n").await;
    assert_eq!(harness.ready("shared-1", "none").await.decided_by, None);
    let rest = EVENTS.replace("NAME", "shared");
    for name in ["bearer", "other"] {
        harness.put_source(name, "{bearer: {secret: PLAIN}}", &rest).await.is(200);
    }
    // Without a UID, the event has none.
    let of = |action: &str, n: u32, uid: Option<&str>| match uid {
        Some(uid) => json!({"action": action, "n": n, "uid": uid}),
        None => json!({"action": action, "n": n}),
    };
    let send = async |source: &str, id: &str, body: &Value| {
        let body = body.to_string();
        let request = SourceRequest { path: format!("/v1/sources/{source}"), ..SourceRequest::bearer(body) };
        let outcome = harness.result(&request.header("x-request", id)).await;
        (outcome.result, outcome.detail)
    };
    let refused = async |source: &str, id: &str, body: Value| {
        let (result, detail) = send(source, id, &body).await;
        assert_eq!(result, SourceResult::Rejected, "{source} {body}: {detail}");
        // No sender begins an instance with a UID of Ebb.
        let is_known = ["another sender", "Ebb uses for its own UIDs"].iter().any(|reason| detail.contains(reason));
        assert!(is_known && !detail.contains("bearer"), "{source} {body}: {detail}");
    };
    // The platform has created shared-1 with the UID shared-1-uid.
    for (action, uid) in [
        ("apply", None),
        ("delete", None),
        ("apply", Some("shared-1-uid")),
        ("delete", Some("shared-1-uid")),
        ("apply", Some("u2")),
    ] {
        refused("bearer", "1", of(action, 1, uid)).await;
    }
    // The source has had shared-4 before the platform.
    for (id, action, result, phase) in [
        ("6", "apply", SourceResult::Starting, TargetState::Ready),
        ("7", "delete", SourceResult::Stopping, TargetState::Gone),
    ] {
        assert_eq!(send("bearer", id, &json!({"action": action, "n": 4})).await.0, result);
        harness.phase("shared-4", phase).await;
    }
    harness.create("shared-4", "none").await;
    harness.instance_is_ready("shared-4", "shared-4-uid").await;
    for (id, action) in [("8", "apply"), ("9", "delete")] {
        refused("bearer", id, json!({"action": action, "n": 4, "more": id})).await;
    }
    // The source `bearer` has created shared-2 with a derived UID, and shared-3 with the UID u3.
    for (id, body) in [("2", of("apply", 2, None)), ("3", of("apply", 3, Some("u3")))] {
        let (result, detail) = send("bearer", id, &body).await;
        assert_eq!(result, SourceResult::Starting, "{detail}");
    }
    let second = harness.phase("shared-2", TargetState::Ready).await.info.uid;
    harness.phase("shared-3", TargetState::Ready).await;
    // An instance of the platform waits for shared-2.
    let waiting = LifecycleData { uid: "p2".to_owned(), ..sandbox("shared-2", "p2", "none") };
    harness.lifecycle(LifecycleType::Created, &waiting).await.is(202);
    refused("bearer", "10", of("delete", 2, Some("p2"))).await;
    assert_eq!(harness.target("shared-2").await.unwrap().waiting_uid.as_deref(), Some("p2"));
    let data = LifecycleData { document: None, ..waiting };
    harness.lifecycle(LifecycleType::Deleted, &data).await.is(202);
    for (n, uid) in [(2, None), (2, Some(second.as_str())), (3, None), (3, Some("u3")), (3, Some("u4"))] {
        for action in ["apply", "delete"] {
            refused("other", "4", of(action, n, uid)).await;
        }
    }
    for name in ["shared-1", "shared-2", "shared-3", "shared-4"] {
        let target = harness.target(name).await.unwrap();
        let seen = (target.info.phase, target.info.generation, target.waiting_uid);
        assert_eq!(seen, (TargetState::Ready, 1, None), "{name}");
    }
    // Its own source ends each of them, by its UID or without it.
    for body in [json!({"action": "delete", "n": 2}), json!({"action": "delete", "n": 3, "uid": "u3"})] {
        assert_eq!(send("bearer", "5", &body).await.0, SourceResult::Stopping);
    }
    // The name is free when the instance of the platform is gone.
    harness.tear_down("shared-1").await;
    assert_eq!(send("bearer", "11", &json!({"action": "apply", "n": 1, "more": 11})).await.0, SourceResult::Starting);
}

/// A sender cannot name a UID that Ebb makes before the instance exists, and so block or take over that of another sender.
pub(crate) async fn reserved_identities() {
    let harness = Harness::with_schemes().await;
    harness.publish("none@1.0.0", "preStart: {make: {webhook: {url: \"RECEIVER/make\"}, cleanup: none}}\n").await;
    assert_eq!(harness.result(&SourceRequest::bearer(event("apply", 1))).await.result, SourceResult::Starting);
    let own = harness.phase("bearer-1", TargetState::Ready).await.info.uid;
    let named = |name: &str, uid: &str| sandbox(name, uid, "none");
    let deleted = |name: &str, uid: &str| LifecycleData { document: None, ..named(name, uid) };
    for uid in ["event-x", "api-x"] {
        for name in ["bearer-1", "bearer-2"] {
            for event_type in [LifecycleType::Created, LifecycleType::Updated] {
                harness.lifecycle(event_type, &named(name, uid)).await.is_problem(422, "invalid-field");
            }
            harness.lifecycle(LifecycleType::Deleted, &deleted(name, uid)).await.is_problem(422, "invalid-field");
        }
        let path = format!("/v1/targets/sandbox/bearer-1?uid={uid}");
        harness.request(Method::DELETE, &path, None).await.is_problem(422, "invalid-field");
    }
    // The platform names an instance of the source, and does not change it. It may send events to it.
    harness.lifecycle(LifecycleType::Updated, &named("bearer-1", &own)).await.is_problem(409, "other-owner");
    harness.lifecycle(LifecycleType::Deleted, &deleted("bearer-1", &own)).await.is_problem(409, "other-owner");
    let sleep = LifecycleData { event: Some("sleep".to_owned()), ..deleted("bearer-1", &own) };
    harness.lifecycle(LifecycleType::Event, &sleep).await.is(202);
    let document = named("bearer-1", "").document.unwrap();
    for path in ["/v1/targets", "/v1/targets?dryRun=true"] {
        let request = json!({"kind": "sandbox", "name": "bearer-1", "document": document});
        harness.post(path, request).await.is_problem(409, "other-owner");
    }
    // The platform and the API are one sender. A caller with `targets:write` deletes every instance.
    let document = named("made", "").document.unwrap();
    let request = json!({"kind": "sandbox", "name": "made", "document": document});
    let made: Value = harness.post("/v1/targets", request).await.is(202).json();
    let uid = made["uid"].as_str().unwrap();
    harness.phase("made", TargetState::Ready).await;
    for _ in 0..2 {
        harness.lifecycle(LifecycleType::Deleted, &deleted("made", uid)).await.is(202);
        harness.phase("made", TargetState::Gone).await;
    }
    harness.request(Method::DELETE, &format!("/v1/targets/sandbox/bearer-1?uid={own}"), None).await.is(202);
    harness.phase("bearer-1", TargetState::Gone).await;
}

/// The ID of a delivery that was received before hides no other event, and an event cannot take the ID of another source.
pub(crate) async fn reused_delivery_ids() {
    let harness = Harness::with_schemes().await;
    let github = SourceScheme::github();
    let send = async |id: &str, body: &[u8]| {
        harness.result(&SourceRequest::signed("github", &github, PLAIN, id, now(), body)).await.result
    };
    assert_eq!(send("1", &event("apply", 1)).await, SourceResult::Starting);
    harness.phase("github-1", TargetState::Ready).await;
    // The ID is not signed by GitHub. A captured body with another ID is a repetition.
    assert_eq!(send("2", &event("apply", 1)).await, SourceResult::Repeated);
    // IDs belong to a target, so the ID of one does not hide the event of another one.
    assert_eq!(send("1", &event("apply", 2)).await, SourceResult::Starting);
    let gitea = SourceRequest::signed("gitea", &SourceScheme::gitea(), PLAIN, "1", now(), &event("apply", 1));
    assert_eq!(harness.result(&gitea).await.result, SourceResult::Starting);
    for id in ["a b", "", &"x".repeat(129)] {
        let mut request = SourceRequest::signed("github", &github, PLAIN, "2", now(), &event("delete", 1));
        for (header, value) in &mut request.headers {
            if header == "x-github-delivery" {
                id.clone_into(value);
            }
        }
        harness.sent(&request).await.is_problem(401, "invalid-signature");
    }
    harness.phase("github-1", TargetState::Ready).await;
    // Another body with the ID of an earlier event is another event.
    assert_eq!(send("1", &event("delete", 1)).await, SourceResult::Stopping);
    harness.phase("github-1", TargetState::Gone).await;
    assert_eq!(send("4", &event("apply", 1)).await, SourceResult::Repeated);
}
