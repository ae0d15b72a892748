//! The credential of a connection reaches its origin, for permitted plugins, and nothing else.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_engine::AttemptRef;
use ebb_flow::loaded_run::Run;
use ebb_flow::run::attempt::AttemptContext;
use ebb_flow::run::attempt_end::AttemptEnd;
use ebb_flow::run::dispatch;
use ebb_flow::run::dispatch_outcome::DispatchReason;
use ebb_flow::run::invocation_cache::InvocationCache;
use ebb_protocol::api::SourceDetail;

use super::secrets::{GIVEN, assert_has_none, contains, contains_canary, stored};
use crate::harness::*;
use crate::request_table;

const SENDER: &str = "the secret of a sender";

const BEARER: &str = "{bearer: {secret: TOKEN}}";

impl Harness {
    async fn connection(&self, origin: &str, auth: &str, plugins: &str) {
        let rest = format!("origin: {origin}\nauth: {auth}\nplugins: [{plugins}]\n");
        self.put("Connection", "api", &rest).await.is(200);
    }

    /// Starts a stack with a connection to the receiver.
    async fn connected(auth: &str) -> Self {
        let harness = Self::new().await;
        harness.write_secrets(&json!({"TOKEN": GIVEN}));
        harness.connection(harness.receiver.url(), auth, "branch").await;
        harness.publish("branch@0.9.0", include_str!("documents/branch.yaml")).await;
        harness.receiver.always("POST /branches/a", json!({"id": "br-1"}));
        harness
    }

    /// Waits until a unit has failed for a reason with this text.
    async fn failed_because(&self, name: &str, hook: &str, unit: &str, why: &str) {
        until(&format!("{why} of {unit}"), async || {
            let found = find(&self.target(name).await?, hook, unit).filter(|it| it.state == UnitState::Failed)?;
            found.reason.filter(|reason| reason.message.contains(why)).map(drop)
        })
        .await;
    }
}

/// Each scheme authorizes setup and teardown. Only receivers of signed requests get a callback token. 202 of another server
/// is its result. A server repeats the credential wherever it can: in a success, whose body is an output, and in a failure.
pub(crate) async fn schemes_of_connections() {
    let signing = WebhookSecret::from_bytes(&[7; 32]).unwrap().reveal();
    let basic = format!("Basic {}", STANDARD.encode(format!("ebb:{GIVEN}")));
    for (auth, header, value) in [
        (BEARER, "authorization", format!("Bearer {GIVEN}")),
        ("{basic: {username: ebb, secret: TOKEN}}", "authorization", basic),
        ("{header: {name: X-Api-Key, secret: TOKEN, prefix: \"Token \"}}", "x-api-key", format!("Token {GIVEN}")),
        ("{signed: {secret: SIGNING}}", "webhook-signature", "v1,".to_owned()),
    ] {
        let harness = Harness::connected(auth).await;
        harness.write_secrets(&json!({"TOKEN": GIVEN, "SIGNING": signing.as_str()}));
        let signed = auth.contains("signed");
        let repeated = move |call: &ReceivedCall| {
            if signed { String::new() } else { format!("{} {GIVEN}", call.header(header)) }
        };
        harness.receiver.on("POST /branches/a", move |call: &ReceivedCall, _| {
            let reply = CannedReply::status(if signed { 200 } else { 202 }).after(5);
            reply.with(json!({"id": "br-1", "echo": repeated(call)}))
        });
        harness.receiver.on("DELETE /branches/br-1", move |call: &ReceivedCall, _| {
            let reply = CannedReply::status(400).header("x-echo", call.header(header));
            reply.with(json!({"error": format!("no {}", repeated(call))}))
        });
        harness.ready("a", "branch").await;
        harness.delete("a").await;
        harness.failed_because("a", "postStop", "undo", "400").await;
        harness.notification_accepted("a").await;
        for line in ["POST /branches/a", "DELETE /branches/br-1"] {
            let call = &harness.receiver.calls(line)[0];
            assert!(call.header(header).starts_with(&value), "{line} {auth}: {call:?}");
            assert_eq!(call.headers.contains_key("webhook-signature"), signed, "{line} {auth}: {call:?}");
            assert_eq!(!call.token().is_empty(), signed, "{line} {auth}: {call:?}");
            assert!(!call.header("idempotency-key").is_empty(), "{call:?}");
        }
        let encoded = value.split_once(' ').map_or(GIVEN, |(_, encoded)| encoded).as_bytes();
        let leaks = |bytes: &[u8]| contains_canary(bytes) || contains(bytes, encoded);
        assert_has_none(&harness, "a", "br-1", leaks).await;
        for path in ["/v1/connections", "/v1/connections/api"] {
            let response = harness.get(path).await;
            assert!(!leaks(response.is(200).body.as_bytes()), "{response:?}");
        }
    }
}

/// A redirect to another origin is not followed, and the guard applies. `ebb dev` opens loopback only.
pub(crate) async fn a_redirect_or_an_internal_address_gets_no_credential() {
    let harness = Harness::connected(BEARER).await;
    let other = TestReceiver::start().await;
    for status in [302, 307, 308] {
        let name = format!("s{status}");
        let reply = CannedReply::status(status).header("location", &format!("{}/stolen", other.url()));
        harness.receiver.always("POST /branches/a", reply);
        harness.create(&name, "branch").await;
        harness.failed_because(&name, "preStart", "make", &format!("the server answered {status}")).await;
    }
    let sent = harness.receiver.all().len();
    for (number, origin) in ["https://169.254.169.254", "https://10.0.0.1", "https://[fd00::1]"].iter().enumerate() {
        harness.connection(origin, BEARER, "branch").await;
        let name = format!("i{number}");
        harness.create(&name, "branch").await;
        harness.failed_because(&name, "preStart", "make", "is not allowed").await;
    }
    assert!(other.all().is_empty() && harness.receiver.all().len() == sent, "{:?}", other.all());
}

/// Values of users cannot leave the path of the plugin.
pub(crate) async fn values_stay_in_the_path() {
    let harness = Harness::connected(BEARER).await;
    let create = async |name: &str, value: &str| {
        let rest = json!({"r": {"plugin": "branch", "params": {"v": value}}});
        let data = ebb_tests::platform::sandbox(name, &format!("{name}-uid"), &format!("resources: {rest}\n"));
        harness.lifecycle(LifecycleType::Created, &data).await.is(202);
    };
    let values = [
        "a\r\nx-injected: 1",
        "//evil.example/",
        "@evil.example",
        "\\\\evil.example\\",
        "%2e%2e%2fadmin",
        "a?admin=1#b",
    ];
    for (number, value) in values.into_iter().enumerate() {
        create(&format!("v{number}"), value).await;
        // The receiver has no such path: it answers 200 without an `id`.
        harness.unit(&format!("v{number}"), "preStart", "make", UnitState::Failed).await;
    }
    for value in ["..", "."] {
        let name = format!("d{}", value.len());
        create(&name, value).await;
        harness.failed_because(&name, "preStart", "make", "a path without").await;
    }
    assert_stays_in(&harness, "POST /branches/", values.len());
}

/// Checks that all requests have a path below this one, and no header of a value.
fn assert_stays_in(harness: &Harness, line: &str, count: usize) {
    let calls = harness.receiver.all();
    for call in &calls {
        let rest = call.line.strip_prefix(line).unwrap_or_else(|| panic!("{call:?}"));
        assert!(rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"%-._~".contains(&b)), "{call:?}");
        assert!(!call.headers.contains_key("x-injected"), "{call:?}");
    }
    assert_eq!(calls.len(), count);
}

/// A request may have been sent by a function that ended, before its connection was deleted. The unit is then not one that
/// was never sent.
pub(crate) async fn a_request_that_may_have_been_sent_is_undone() {
    let harness = Harness::connected(BEARER).await;
    let hold = harness.receiver.hold("POST /branches/a");
    harness.create("a", "branch").await;
    harness.receiver.call("POST /branches/a", 1).await;
    harness.request(Method::DELETE, "/v1/connections/api", None).await.is(204);
    let (env, id) = (harness.stack().env(), run_id("a", Hook::PreStart));
    let run = Run::load(env, &id).await.unwrap().unwrap();
    let attempt = AttemptRef { unit: Unit(0), number: Attempt(1), epoch: Epoch(1) };
    for (reason, is_started) in [(DispatchReason::Result, false), (DispatchReason::SweepStart, true)] {
        let cache = InvocationCache::default();
        let context = AttemptContext::new(env, &run, attempt, &cache).unwrap();
        let sent = dispatch::send(context, reason).await.unwrap();
        let Some(AttemptEnd::Failed(failure)) = sent.end else { panic!("{sent:?}") };
        assert_eq!(json!(failure.reason.code), "notStartable", "{failure:?}");
        let records = harness.stack().store().read_all_records(&id).await.unwrap();
        assert_eq!(records.iter().any(|(.., record)| record.started.is_some()), is_started, "{reason:?}");
    }
    drop(hold);
    harness.phase("a", TargetPhase::Ready).await;
}

impl Harness {
    /// Starts a stack with a source that completes its events with the connection.
    async fn with_builds() -> Self {
        let harness = Self::connected(BEARER).await;
        harness.write_secrets(&json!({"TOKEN": GIVEN, "SENDER": SENDER}));
        harness.connection(harness.receiver.url(), BEARER, "branch]\nsources: [builds").await;
        // Its events have the number of a build only.
        harness.put("Source", "builds", include_str!("documents/builds.yaml")).await.is(200);
        harness
    }

    async fn build(&self, secret: &str, id: &Value) -> ApiReply {
        let body = json!({"kind": "build", "id": id, "full": "a&admin=1"});
        self.with_token(secret, "POST /v1/sources/builds", Some(body)).await
    }
}

/// A source reads what its events do not have. Nothing is sent before the sender is verified.
pub(crate) async fn a_source_completes_its_events() {
    let harness = Harness::with_builds().await;
    harness.build("another secret of a sender", &json!(7)).await.is_problem(401, "invalid-signature");
    assert!(harness.receiver.all().is_empty(), "an unverified event sent a request");
    // The server repeats the credential.
    harness.receiver.on("GET /builds/7", |call: &ReceivedCall, _| {
        let author = format!("me {}", call.header("authorization"));
        CannedReply::ok(json!({"state": "running", "branch": "a", "author": author}))
    });
    harness.build(SENDER, &json!(7)).await.is(202);
    let target = harness.phase("b-7", TargetPhase::Ready).await;
    let call = &harness.receiver.calls("GET /builds/7")[0];
    assert_eq!(call.header("authorization"), format!("Bearer {GIVEN}"));
    assert_eq!((call.token(), call.header("webhook-signature")), ("", ""), "{call:?}");
    assert_eq!(call.header("api-version"), "2");
    let shown = harness.get("/v1/targets/sandbox/b-7").await.body;
    assert!(!contains_canary(shown.as_bytes()) && target.runs.len() == 1, "{shown}");
    let state = harness.folder().join("state");
    let leaks = stored(&state).into_iter().filter(|(_, bytes)| contains_canary(bytes)).map(|(file, _)| file);
    assert_eq!(leaks.collect::<Vec<_>>(), [""; 0].map(PathBuf::from));
    // The build is gone.
    harness.receiver.always("GET /builds/7", 404);
    harness.build(SENDER, &json!(7)).await.is(202);
    harness.phase("b-7", TargetPhase::Gone).await;
    // An event that needs no completion.
    let reply = harness.with_token(SENDER, "POST /v1/sources/builds", Some(json!({"kind": "ping"}))).await;
    assert_eq!(reply.is(200).json::<Value>()["result"], "ignored");
    assert_eq!(harness.receiver.count("GET /builds/7"), 2);
}

/// An event that cannot be completed is not accepted, and its values stay in the path.
pub(crate) async fn events_that_cannot_be_completed() {
    let harness = Harness::with_builds().await;
    request_table::play(&harness, "security/credentials.yaml", "events_that_cannot_be_completed", &[]).await;
    let source = harness.get("/v1/sources/builds").await;
    assert_eq!(source.json::<SourceDetail>().rejected.len(), 9, "{source:?}");
    assert!(!contains_canary(source.body.as_bytes()), "{source:?}");
    for id in ["../admin", "//evil.example", "@evil.example", "a\\b", "a\r\nx-injected: 1", "a?b#c"] {
        harness.build(SENDER, &json!(id)).await.is(200);
    }
    assert_stays_in(&harness, "GET /builds/", 6);
}
