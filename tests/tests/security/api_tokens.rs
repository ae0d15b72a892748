//! Named API tokens: their secrets, scopes, expiry and revocation.

use ebb_api::ApiTokens;
use ebb_flow::Env;
use ebb_flow::ports::{Clock, RandomSource};
use ebb_protocol::api::{CreatedToken, TokenList};
use ebb_tests::fakes;
use ebb_tests::virtual_clock::ManualClock;

use crate::harness::*;

/// Serves the functions of a harness at a later time. Returns the URL.
pub(super) async fn later(harness: &Harness, by: Duration) -> String {
    let clock = ManualClock::at(now().0 + u64::try_from(by.as_millis()).unwrap());
    with_clock(harness, Arc::new(clock)).await
}

/// Serves the functions of a harness with another clock. Returns the URL.
pub(super) async fn with_clock(harness: &Harness, clock: Arc<dyn Clock>) -> String {
    let env = harness.stack().env();
    let settings = fakes::settings("urn:tests", None, Millis(1_000));
    let env = fakes::env(harness.stack().store().clone(), env.egress.clone(), env.queue.clone(), settings);
    let env = Env { clock, ..env };
    serve(ebb_api::all(harness.functions(Arc::new(env), ApiTokens::default()))).await
}

pub(crate) async fn expired_tokens() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let harness = Harness::new().await;
    let token = harness.token("ci", &["read"]).await;
    let short = json!({"name": "short", "scopes": ["read"], "ttl": "1h"});
    let short = harness.post("/v1/tokens", short).await.is(201).json::<CreatedToken>().token;
    // Without its secret, the response does not show that a token has expired.
    for (by, token, status, code) in [
        (89 * 24 * HOUR, &token, 200, ""),
        (90 * 24 * HOUR, &token, 401, "token-expired"),
        (HOUR * 99 / 100, &short, 200, ""),
        (HOUR * 101 / 100, &short, 401, "token-expired"),
        (24 * HOUR, &format!("{short}x"), 401, "invalid-token"),
    ] {
        let reply = ApiClient::new(&harness.http, &later(&harness, by).await, token).get("/v1/targets").await;
        assert!(reply.is(status).status == 200 || !reply.is_problem(status, code).detail.is_empty());
    }
}

/// The secret has random bits. It is in one response, and in nothing that is stored, listed or logged.
pub(crate) async fn a_secret_is_shown_once() {
    let harness = Harness::new().await;
    let created = harness.create_token("ci", &["read", "targets:write"]).await;
    assert!(!format!("{created:?}").contains(&created.token));
    let list: TokenList = harness.get("/v1/tokens").await.is(200).json();
    assert_eq!(list.tokens, std::slice::from_ref(&created.info));
    assert_eq!(created.info.created_by, "role operator");
    let secret = &created.token[created.token.len() - 43..];
    harness.with_token(&created.token, "GET /v1/tokens", None).await.is_problem(403, "forbidden");
    let body = Some(request_for("audited", ""));
    harness.with_token(&created.token, "POST /v1/targets", body).await.is(202);
    harness.request(Method::DELETE, "/v1/tokens/ci", None).await.is(204);
    let refused = harness.with_token(&created.token, "GET /v1/targets", None).await;
    assert!(!refused.is_problem(401, "token-revoked").detail.contains(secret));
    assert_ne!(&harness.token("ci", &["read"]).await[22..], secret);
    let log = std::fs::read_to_string(crate::log_file()).unwrap();
    assert!(!log.contains(secret));
    let history: Value = harness.get("/v1/targets/sandbox/audited/history").await.is(200).json();
    assert_eq!(history["entries"][0]["by"], "token ci", "{history}");
    assert!(harness.stores("targets:write") && !harness.stores(secret));
    let bits: BTreeSet<u64> = (0..100).map(|_| ebb_flow::system::SystemRandom.next()).collect();
    assert_eq!(bits.len(), 100);
}
