//! The credential of a connection reaches its origin, for permitted plugins, and nothing else.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_engine::AttemptRef;
use ebb_flow::run::{AttemptContext, AttemptEnd, DispatchReason, dispatch};
use ebb_flow::{InvocationCache, Run};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS12;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::secrets::{GIVEN, MADE, assert_has_none, contains, contains_canary};
use crate::harness::*;

const BEARER: &str = "{bearer: {secret: TOKEN}}";
const AUTHORITY: &str = include_str!("documents/authority.pem");
const CLIENT: &str = "{oauth: {tokenUrl: /token, clientId: a b, secret: TOKEN, scope: branches}}";

impl Harness {
    /// Starts a stack with a connection to the receiver.
    async fn connected(auth: &str) -> Self {
        let harness = Self::new().await;
        harness.write_secrets(&json!({"TOKEN": GIVEN}));
        let rest = format!("origin: RECEIVER\nauth: {auth}\nplugins: [branch]\n");
        harness.put("Connection", "api", &rest).await.is(200);
        harness.publish("branch@0.9.0", include_str!("documents/branch.yaml")).await;
        harness.receiver.always("POST /branches/a", json!({"id": "br-1"}));
        harness
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

/// Starts a server whose certificate is from a private authority, and that requires one from it. Returns its origin.
async fn serve_mutual_tls() -> String {
    let certificates =
        |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect::<Vec<_>>();
    let (mut roots, server) = (RootCertStore::empty(), include_str!("documents/server.pem"));
    roots.add(certificates(AUTHORITY).remove(0)).unwrap();
    let clients = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    // With this version, the handshake of a client without a certificate fails.
    let config = ServerConfig::builder_with_protocol_versions(&[&TLS12]).with_client_cert_verifier(clients);
    let key = PrivateKeyDer::from_pem_slice(server.as_bytes()).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(certificates(server), key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let (answer, mut read) = (b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"id\":\"br-1\"}", [0; 4096]);
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                while stream.read(&mut read).await.is_ok_and(|bytes| bytes > 0) {
                    stream.write_all(answer).await.unwrap();
                }
            });
        }
    });
    origin
}

/// Both need the other's certificate. Nothing shows or stores that of the client, or its key.
pub(crate) async fn a_server_requires_a_client_certificate() {
    let (harness, origin) = (Harness::connected(BEARER).await, serve_mutual_tls().await);
    let (pem, ca) = (include_str!("documents/client.pem"), json!(AUTHORITY).to_string());
    harness.write_secrets(&json!({"TOKEN": GIVEN, "PEM": pem}));
    let (table, test) = ("security/credentials.yaml", "a_server_requires_a_client_certificate");
    request_table::play(&harness, table, test, &[("TLS_SERVER", &origin), ("PRIVATE_CA", &ca)]).await;
    let lines: Vec<&str> = pem.lines().filter(|line| line.len() == 64 && !AUTHORITY.contains(line)).collect();
    let leaks = |bytes: &[u8]| contains_canary(bytes) || lines.iter().any(|line| contains(bytes, line.as_bytes()));
    for name in ["without-client", "without-ca", "both"] {
        assert_has_none(&harness, name, "br-1", leaks).await;
    }
}

/// A request may have been sent by a function that ended, before its connection was deleted. The unit is then not one that
/// was never sent.
pub(crate) async fn a_request_that_may_have_been_sent_is_undone() {
    let harness = Harness::connected(BEARER).await;
    let hold = harness.receiver.hold("POST /branches/a");
    harness.create("a", "branch").await;
    harness.receiver.call("POST /branches/a", 1).await;
    harness.request(Method::DELETE, "/v1/connections/api?force=true", None).await.is(204);
    let (env, id) = (harness.stack().env(), run_id("a", Hook::PreStart));
    let run = Run::load(env, &id).await.unwrap().unwrap();
    let attempt = AttemptRef { unit: Unit(0), number: Attempt(1), epoch: Epoch(1) };
    for reason in [DispatchReason::Result, DispatchReason::SweepStart] {
        let cache = InvocationCache::default();
        let context = AttemptContext::new(env, &run, attempt, &cache).unwrap();
        let sent = dispatch::send(context, reason).await.unwrap();
        let Some(AttemptEnd::Failed(failure)) = sent.end else { panic!("{sent:?}") };
        assert_eq!(json!(failure.reason.code), "notStartable", "{failure:?}");
        assert!(!failure.is_unsent, "{reason:?}");
    }
    drop(hold);
    harness.phase("a", TargetPhase::Ready).await;
}
