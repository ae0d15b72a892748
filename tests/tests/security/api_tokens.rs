//! Named API tokens: their secrets, scopes, expiry and revocation.

use ebb_api::ApiTokens;
use ebb_flow::Env;
use ebb_flow::ports::RandomSource;
use ebb_protocol::api::{CreatedToken, TokenList};
use ebb_tests::fakes;
use ebb_tests::virtual_clock::ManualClock;

use super::api::SCRIPT;
use super::secrets::{contains, stored};
use crate::harness::*;

pub(super) async fn create(harness: &Harness, name: &str, scopes: &[&str]) -> CreatedToken {
    harness.post("/v1/tokens", json!({"name": name, "scopes": scopes})).await.is(201).json()
}

pub(crate) async fn a_plugin_scope_covers_one_plugin() {
    let harness = Harness::new().await;
    harness.publish("theirs@1.0.0", SCRIPT).await;
    let token = create(&harness, "own", &["plugins:write:own"]).await.token;
    let publish = async |name: &str| {
        harness.with_token(&token, "POST /v1/plugins", Some(json!({"document": plugin(name, SCRIPT)}))).await
    };
    publish("own@1.0.0").await.is(201);
    for name in ["theirs@2.0.0", "own2@1.0.0", "own-other@1.0.0"] {
        let problem = publish(name).await.is_problem(403, "forbidden");
        let wanted = format!("plugins:write:{}", name.split('@').next().unwrap());
        assert!(problem.detail.contains(&wanted), "{problem:?}");
    }
    for path in
        ["plugins/theirs/signing-secret", "plugins/_target/signing-secret", "sources", "connections", "subscriptions"]
    {
        harness.with_token(&token, &format!("GET /v1/{path}"), None).await.is_problem(403, "forbidden");
    }
    harness.with_token(&token, "DELETE /v1/plugins/theirs/versions/1.0.0", None).await.is_problem(403, "forbidden");
    harness.with_token(&token, "GET /v1/plugins/own/signing-secret", None).await.is(200);
    harness.with_token(&token, "DELETE /v1/plugins/own/versions/1.0.0", None).await.is(204);
    let listed: Value = harness.with_token(&token, "GET /v1/plugins", None).await.is(200).json();
    assert_eq!(listed["plugins"].as_array().unwrap().len(), 1, "{listed}");
}

pub(crate) async fn forged_tokens() {
    let harness = Harness::new().await;
    let token = create(&harness, "a", &["read"]).await.token;
    let other = create(&harness, "b", &["read"]).await.token;
    harness.with_token(&token, "GET /v1/targets", None).await.is(200);
    let (_, secret) = token.strip_prefix("ebbt_").unwrap().split_once('_').unwrap();
    let (id, other_secret) = other.strip_prefix("ebbt_").unwrap().split_once('_').unwrap();
    let digest = ebb_protocol::api_token::token_digest(&token);
    for wrong in [
        format!("ebbt_{id}_{secret}"),
        token.replace(secret, other_secret),
        format!("ebbt_aaaaaaaaaaaaaaaa_{secret}"),
        format!("{token}x"),
        token[..token.len() - 1].to_owned(),
        token.to_uppercase(),
        token.replacen("ebbt_", "EBBT_", 1),
        format!("ebbt__{secret}"),
        format!("ebbt_{id}_"),
        format!("ebbt_{id}"),
        format!("ebbt_{}_{secret}", "a".repeat(4_000)),
        "ebbt_..%2F..%2Ft%23sandbox_x".to_owned(),
        // A reader of the table knows the digest.
        digest.clone(),
        format!("ebbt_{id}_{digest}"),
        secret.to_owned(),
    ] {
        let problem = harness.with_token(&wrong, "GET /v1/targets", None).await.is_problem(401, "invalid-token");
        assert_eq!(problem.detail, "the token is unknown", "{wrong}");
    }
    let huge = harness.with_token(&"x".repeat((16 << 10) + 1), "GET /v1/targets", None).await;
    assert!(huge.is_problem(401, "invalid-token").detail.contains("longer than 16384 bytes"));
    // A token in a URL or another header reaches logs of proxies, so it has no effect.
    for path in [format!("/v1/targets?token={token}"), format!("/v1/targets?access_token={token}")] {
        ApiReply::to(&harness.http, &harness.url(&path), None, Method::GET, None)
            .await
            .is_problem(401, "missing-token");
    }
    let request = harness.http.get(harness.url("/v1/targets")).header("x-api-key", &token);
    ApiReply::of(request.send().await.unwrap()).await.is_problem(401, "missing-token");
}

/// Serves the functions of a harness at a later time. Returns the URL.
pub(super) async fn later(harness: &Harness, by: Duration) -> String {
    let env = harness.stack().env();
    let clock = Arc::new(ManualClock::at(now().0 + u64::try_from(by.as_millis()).unwrap()));
    let settings = fakes::settings("urn:tests", None, Millis(1_000)).unwrap();
    let env = fakes::env(harness.stack().store().clone(), env.egress.clone(), env.queue.clone(), settings);
    let env = Env { clock, ..env };
    serve(|_| ebb_api::all(harness.functions(Arc::new(env), ApiTokens::default()))).await
}

pub(crate) async fn expired_and_revoked_tokens() {
    const DAY: Duration = Duration::from_secs(86_400);
    let harness = Harness::new().await;
    let token = create(&harness, "ci", &["read"]).await.token;
    let short: CreatedToken =
        harness.post("/v1/tokens", json!({"name": "short", "scopes": ["read"], "ttl": "1h"})).await.is(201).json();
    let at = async |by: Duration, token: &str| {
        let url = format!("{}/v1/targets", later(&harness, by).await);
        ApiReply::to(&harness.http, &url, Some(&format!("Bearer {token}")), Method::GET, None).await
    };
    at(89 * DAY, &token).await.is(200);
    let problem = at(90 * DAY, &token).await.is_problem(401, "token-expired");
    assert!(problem.detail.starts_with("the token ci has expired at "), "{problem:?}");
    at(Duration::from_secs(3_599), &short.token).await.is(200);
    at(Duration::from_secs(3_601), &short.token).await.is_problem(401, "token-expired");
    // Without its secret, the response does not show that a token has expired.
    let unknown = format!("{}x", short.token);
    assert_eq!(at(DAY, &unknown).await.is_problem(401, "invalid-token").detail, "the token is unknown");
    for _ in 0..2 {
        harness.request(Method::DELETE, "/v1/tokens/ci", None).await.is(204);
    }
    let problem = harness.with_token(&token, "GET /v1/targets", None).await.is_problem(401, "token-revoked");
    assert!(problem.detail.starts_with("the token ci was revoked at "), "{problem:?}");
    // The name can be used again. The first token stays invalid.
    let second = create(&harness, "ci", &["read"]).await.token;
    harness.with_token(&second, "GET /v1/targets", None).await.is(200);
    harness.with_token(&token, "GET /v1/targets", None).await.is_problem(401, "invalid-token");
    harness.request(Method::DELETE, "/v1/tokens/none", None).await.is_problem(404, "not-found");
}

pub(crate) async fn invalid_requests_for_tokens() {
    let harness = Harness::new().await;
    let valid = json!({"name": "a", "scopes": ["read"], "ttl": "1h"});
    for (field, wrong) in [
        ("name", json!(["", "a b", "a/b", "..", "a".repeat(64)])),
        ("scopes", json!([[], ["admin"], ["read", "plugins:write:"], ["plugins:write:a b"], ["plugins:write:*"]])),
        ("scopes", json!([["plugins:write:a/b"], ["plugins:write:_target"]])),
        ("scopes", json!([["read:"], ["read:label:team"], ["targets:write:label:=x"], ["operate:own"]])),
        ("ttl", json!(["0s", "367d", "forever"])),
    ] {
        for value in wrong.as_array().unwrap() {
            let mut body = valid.clone();
            body[field] = value.clone();
            harness.post("/v1/tokens", body).await.is_problem(422, "invalid-field");
        }
    }
    harness.post("/v1/tokens", json!({"name": "a", "scopes": "read"})).await.is_problem(400, "invalid-json");
    create(&harness, "a", &["read"]).await;
    let again = json!({"name": "a", "scopes": ["operate"]});
    harness.post("/v1/tokens", again).await.is_problem(409, "already-exists");
}

/// The secret is in one response, and in nothing that is stored, listed or logged.
pub(crate) async fn a_secret_is_shown_once() {
    let harness = Harness::new().await;
    let created = create(&harness, "ci", &["read", "targets:write"]).await;
    assert!(!format!("{created:?}").contains(&created.token));
    let list: TokenList = harness.get("/v1/tokens").await.is(200).json();
    assert_eq!(list.tokens, std::slice::from_ref(&created.info));
    assert_eq!(created.info.created_by, "role operator");
    let secret = &created.token[created.token.len() - 43..];
    harness.with_token(&created.token, "GET /v1/tokens", None).await.is_problem(403, "forbidden");
    let document = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: audited\n";
    let body = json!({"kind": "sandbox", "name": "audited", "document": document});
    harness.with_token(&created.token, "POST /v1/targets", Some(body)).await.is(202);
    harness.request(Method::DELETE, "/v1/tokens/ci", None).await.is(204);
    let refused = harness.with_token(&created.token, "GET /v1/targets", None).await;
    assert!(!refused.is_problem(401, "token-revoked").detail.contains(secret));
    let log = std::fs::read_to_string(crate::log_file()).unwrap();
    assert!(!log.contains(secret));
    let history: Value = harness.get("/v1/targets/sandbox/audited/history").await.is(200).json();
    assert_eq!(history["entries"][0]["by"], "token ci", "{history}");
    let stored = stored(&harness.folder().join("state"));
    let has = |text: &str| stored.values().any(|bytes| contains(bytes, text.as_bytes()));
    assert!(has("targets:write") && !has(secret));
}

/// The random bits of a token are those of the operating system.
pub(crate) async fn secrets_differ() {
    let harness = Harness::new().await;
    let mut secrets = BTreeSet::new();
    for number in 0..20 {
        secrets.insert(create(&harness, &format!("t{number}"), &["read"]).await.token[22..].to_owned());
    }
    assert_eq!(secrets.len(), 20);
    let bits: BTreeSet<u64> = (0..100).map(|_| ebb_flow::system::SystemRandom.next()).collect();
    assert_eq!(bits.len(), 100);
}
