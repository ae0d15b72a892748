//! The credential of a connection reaches its origin, for permitted plugins, and nothing else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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

use super::secrets::{GIVEN, MADE, assert_has_none, contains, contains_canary, stored};
use crate::harness::*;
use crate::request_table;

const SENDER: &str = "the secret of a sender";

const BEARER: &str = "{bearer: {secret: TOKEN}}";
const CLIENT: &str = "{oauth: {tokenUrl: /token, clientId: a b, secret: TOKEN, scope: branches}}";

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

/// A token of two seconds is renewed before its end, and after a revocation. The requests keep the identity of the
/// client, so the resource that it has seen is known to be gone. Nothing shows or stores a token.
pub(crate) async fn access_tokens_are_renewed() {
    let harness = Harness::connected(CLIENT).await;
    harness.publish("branch@1.0.0", include_str!("documents/waiting-branch.yaml")).await;
    let (issued, questions) = (Arc::new(Mutex::new(BTreeMap::<String, Instant>::new())), AtomicUsize::new(0));
    let granted = Arc::clone(&issued);
    harness.receiver.on("*", move |call: &ReceivedCall, _| {
        let sent = call.header("authorization");
        let mut issued = issued.lock().unwrap();
        let is_valid = issued.get(sent).is_some_and(|end| *end > Instant::now());
        let number = match (is_valid, call.line.starts_with("GET")) {
            (false, _) => return CannedReply::status(401).with(json!({ "echo": sent })),
            (true, is_question) => questions.fetch_add(usize::from(is_question), Ordering::SeqCst) + 1,
        };
        // In the teardown, each token is valid for one request.
        if number > 3 {
            issued.remove(sent);
        }
        let state = if number < 3 { "creating" } else { "ready" };
        CannedReply::status(if number < 6 { 200 } else { 404 })
            .with(json!({"id": "br-1", "state": state, "echo": sent}))
    });
    harness.receiver.on("POST /token", move |_, number| {
        let (token, life) = (format!("{MADE}-{number}"), if number == 2 { 0 } else { 2 });
        granted.lock().unwrap().insert(format!("Bearer {token}"), Instant::now() + Duration::from_secs(life));
        CannedReply::ok(json!({"access_token": token, "token_type": "Bearer", "expires_in": 2}))
    });
    harness.ready("a", "branch@1.0.0").await;
    let target = harness.tear_down("a").await;
    assert_eq!(target.info.unconfirmed, 0, "another token is not another client");
    let asked = harness.receiver.calls("POST /token");
    assert!((5..=15).contains(&asked.len()), "{asked:?}");
    let basic = STANDARD.encode(format!("a+b:{GIVEN}"));
    assert_eq!(asked[0].header("authorization"), format!("Basic {basic}"));
    assert_eq!(asked[0].body, "grant_type=client_credentials&scope=branches");
    let leaks = |bytes: &[u8]| contains_canary(bytes) || contains(bytes, basic.as_bytes());
    assert_has_none(&harness, "a", "br-1", leaks).await;
}

/// A token endpoint that fails is asked again. One that refuses the client needs an operator.
pub(crate) async fn a_request_without_a_token_is_not_sent() {
    let harness = Harness::connected(CLIENT).await;
    let token = CannedReply::ok(json!({ "access_token": MADE }));
    let replies = [CannedReply::status(503).after(1), token, CannedReply::status(401)];
    harness.receiver.replies("POST /token", &replies);
    let plugin = include_str!("documents/branch.yaml").replace("{attempts: 1}", "{attempts: 5, backoff: 10ms}");
    harness.publish("branch@1.0.0", &plugin).await;
    harness.ready("a", "branch@1.0.0").await;
    let counts = || ["POST /token", "POST /branches/a"].map(|line| harness.receiver.count(line));
    assert_eq!(counts(), [2, 1]);
    // Another scope is another client.
    harness.connection(harness.receiver.url(), &CLIENT.replace("scope: b", "scope: c"), "branch").await;
    harness.create("b", "branch@1.0.0").await;
    harness.failed_because("b", "preStart", "make", "the token endpoint of connection api answered 401").await;
    let failed = harness.unit("b", "preStart", "make", UnitState::Failed).await;
    assert_eq!(json!(failed.reason.unwrap().code), "notStartable");
    assert_eq!(counts(), [3, 1]);
}

/// The answer to one challenge authorizes the next requests, too. A signature is made for each request.
pub(crate) async fn challenges_and_signatures() {
    let harness = Harness::connected("{digest: {username: ebb, secret: TOKEN}}").await;
    harness.receiver.on("*", |call: &ReceivedCall, _| match call.header("authorization") {
        "" => CannedReply::status(401).header("www-authenticate", "Digest realm=\"r\", nonce=\"n\", qop=\"auth\""),
        sent => CannedReply::ok(json!({"id": "br-1", "echo": sent})),
    });
    harness.ready("a", "branch").await;
    harness.tear_down("a").await;
    let calls = harness.receiver.all();
    let counts: Vec<_> = calls.iter().map(|call| call.header("authorization").split(", ").nth(5)).collect();
    assert_eq!(counts, [None, Some("nc=00000001"), Some("nc=00000002")], "{calls:?}");
    let sigv4 = "{sigv4: {accessKeyId: AKIA, secret: TOKEN, region: eu-central-1, service: execute-api}}";
    harness.connection(harness.receiver.url(), sigv4, "branch").await;
    harness.ready("b", "branch").await;
    let calls = harness.receiver.calls("POST /branches/a");
    let signed = calls[2].header("authorization");
    let names = "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date, Signature=";
    let (scope, signature) = signed.split_once(names).unwrap();
    assert!(scope.starts_with("AWS4-HMAC-SHA256 Credential=AKIA/"), "{signed}");
    for (call, name) in calls[1..].iter().zip(["a", "b"]) {
        let proof = call.header("authorization").rsplit("response=").next().unwrap().trim_matches('"');
        assert!(!harness.stores(proof) && !harness.stores(signature), "{name}");
        assert_has_none(&harness, name, "br-1", contains_canary).await;
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
