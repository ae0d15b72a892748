//! Identity tokens (JWT) of an OpenID Connect issuer: a local issuer with generated keys, and forgeries.

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use axum::Json;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};

use crate::harness::*;
use crate::lifecycle::documented::block;

const AUDIENCE: &str = "https://ebb.example.com";
/// The bytes before the PKCS #1 key in a PKCS #8 document of an RSA key of 2048 bits.
const PKCS8_HEAD: usize = 26;

pub(super) fn rsa_key() -> EncodingKey {
    let key = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa2048).unwrap();
    let document: Pkcs8V1Der<'_> = key.as_der().unwrap();
    EncodingKey::from_rsa_der(&document.as_ref()[PKCS8_HEAD..])
}

fn ec_key() -> EncodingKey {
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
    EncodingKey::from_ec_der(document.as_ref())
}

/// Returns the public part of a key as in a JWKS.
pub(super) fn public(key: &EncodingKey, algorithm: Algorithm, kid: &str) -> Value {
    let mut jwk = serde_json::to_value(Jwk::from_encoding_key(key, algorithm).unwrap()).unwrap();
    jwk["kid"] = kid.into();
    jwk["use"] = "sig".into();
    jwk
}

/// Serves the discovery document and the keys of an issuer. Returns its URL.
async fn issuer(keys: Vec<Value>, discovery: impl FnOnce(&str) -> Value) -> String {
    serve(|url| {
        let discovery = discovery(url);
        axum::Router::new()
            .route("/.well-known/openid-configuration", get(|| async { Json(discovery) }))
            .route("/keys", get(|| async move { Json(json!({ "keys": keys })) }))
    })
    .await
}

fn discovery(url: &str) -> Value {
    json!({"issuer": url, "jwks_uri": format!("{url}/keys")})
}

/// An issuer with a key of each kind, and a stack that trusts it.
struct TrustedStack {
    harness: Harness,
    issuer: String,
    rsa: EncodingKey,
    ec: EncodingKey,
}

impl TrustedStack {
    async fn new() -> Self {
        let (rsa, ec) = (rsa_key(), ec_key());
        let keys = vec![public(&rsa, Algorithm::RS256, "rsa-1"), public(&ec, Algorithm::ES256, "ec-1")];
        let issuer = issuer(keys, discovery).await;
        // The page has rules for two issuers.
        let issuers: Vec<Value> = serde_json::from_str(&block("tokens.md", "[\n")).unwrap();
        let mut rules: Vec<Value> =
            issuers.iter().flat_map(|issuer| issuer["rules"].as_array().unwrap().clone()).collect();
        rules.push(json!({"when": "claims.user_login", "scopes": ["operate"]}));
        let harness = Harness::with_issuers(&json!([{"issuer": issuer, "audience": AUDIENCE, "rules": rules}])).await;
        Self { harness, issuer, rsa, ec }
    }

    /// Returns the claims of a job of GitHub Actions.
    fn github(&self) -> Value {
        let now = now().0 / 1_000;
        json!({
            "jti": "example-id", "sub": "repo:octo-org/octo-repo:ref:refs/heads/main", "aud": AUDIENCE,
            "ref": "refs/heads/main", "sha": "example-sha", "repository": "octo-org/octo-repo",
            "repository_owner": "octo-org", "actor_id": "12", "repository_visibility": "private",
            "repository_id": "74", "repository_owner_id": "65", "run_id": "example-run-id", "run_number": "10",
            "run_attempt": "2", "runner_environment": "github-hosted", "actor": "octocat",
            "workflow": "example-workflow", "head_ref": "", "base_ref": "", "event_name": "workflow_dispatch",
            "ref_type": "branch", "iss": self.issuer, "nbf": now, "exp": now + 300, "iat": now,
            "job_workflow_ref": "octo-org/octo-automation/.github/workflows/oidc.yml@refs/heads/main",
        })
    }

    fn header(&self, algorithm: Algorithm) -> Header {
        let kid = if algorithm == Algorithm::ES256 { "ec-1" } else { "rsa-1" };
        Header { kid: Some(kid.to_owned()), ..Header::new(algorithm) }
    }

    fn sign(&self, claims: &Value) -> String {
        jsonwebtoken::encode(&self.header(Algorithm::RS256), claims, &self.rsa).unwrap()
    }

    async fn get(&self, token: &str, path: &str) -> ApiReply {
        self.harness.with_token(token, &format!("GET {path}"), None).await
    }

    /// Checks that a token is refused. The reason contains a text and no part of the token.
    async fn refused(&self, token: &str, code: &str, reason: &str) {
        let problem = self.get(token, "/v1/targets").await.is_problem(401, code);
        assert!(problem.detail.contains(reason), "{reason}: {problem:?}");
        let signature = token.rsplit('.').next().unwrap();
        assert!(signature.is_empty() || !problem.detail.contains(signature), "{problem:?}");
    }

    /// Returns the claims of GitHub with a change.
    fn changed(&self, name: &str, value: Value) -> Value {
        let mut claims = self.github();
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value,
        }
        claims
    }
}

fn encoded(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

pub(crate) async fn claims_of_pipelines_grant_scopes() {
    let stack = TrustedStack::new().await;
    let token = stack.sign(&stack.github());
    let body = json!({"kind": "sandbox", "name": "by-pipeline", "document": named("Sandbox", "by-pipeline", "")});
    let post =
        async |path: &str, body: Value| stack.harness.with_token(&token, &format!("POST {path}"), Some(body)).await;
    post("/v1/targets", body).await.is(202);
    stack.get(&token, "/v1/targets/sandbox/by-pipeline").await.is(200);
    let log = std::fs::read_to_string(crate::log_file()).unwrap();
    let history: Value = stack.get(&token, "/v1/targets/sandbox/by-pipeline/history").await.is(200).json();
    let caller = format!("{} repo:octo-org/octo-repo:ref:refs/heads/main", stack.issuer);
    assert_eq!(history["entries"][0]["by"], caller, "{history}");
    assert!(!log.contains(&token[token.len() - 40..]));
    let plugin = |name: &str| {
        let rest =
            "runners: {sh: {image: \"busybox:1\"}}\npreStart: {a: {pod: {runner: sh, script: \"#!/bin/sh\\n\"}}}\n";
        json!({"document": plugin(name, rest)})
    };
    post("/v1/plugins", plugin("tenant-db@1.0.0")).await.is(201);
    post("/v1/plugins", plugin("other@1.0.0")).await.is_problem(403, "forbidden");
    post("/v1/tokens", json!({"name": "more", "scopes": ["read"]})).await.is_problem(403, "forbidden");
    // A job of GitLab, signed with the other algorithm.
    let time = now().0 / 1_000;
    let mut gitlab = json!({
        "namespace_id": "72", "namespace_path": "my-group", "project_id": "20", "project_path": "my-group/my-project",
        "user_id": "1", "user_login": "sample-user", "user_email": "sample-user@example.com", "pipeline_id": "574",
        "pipeline_source": "push", "job_id": "302", "ref": "feature-branch-1", "ref_type": "branch",
        "ref_path": "refs/heads/feature-branch-1", "ref_protected": "true", "runner_id": 1,
        "runner_environment": "self-hosted", "sha": "714a629c0b401fdce83e847fc9589983fc6f46bc",
        "project_visibility": "public", "jti": "235b3a54-b797-45c7-ae9a-f72d7bc6ef5b", "iss": stack.issuer,
        "sub": "project_path:my-group/my-project:ref_type:branch:ref:feature-branch-1",
        "aud": [AUDIENCE, "https://vault.example.com"], "iat": time, "nbf": time - 5, "exp": time + 300,
    });
    let sign = |claims: &Value| jsonwebtoken::encode(&stack.header(Algorithm::ES256), claims, &stack.ec).unwrap();
    stack.get(&sign(&gitlab), "/v1/targets").await.is(200);
    // A rule holds only if it is true: `user_login` is a text. Without a rule that holds, a token has no scope.
    gitlab["ref_protected"] = "false".into();
    let problem = stack.get(&sign(&gitlab), "/v1/targets").await.is_problem(403, "forbidden");
    assert!(problem.detail.contains("no rule of EBB_OIDC grants a scope to"), "{problem:?}");
    let foreign = stack.sign(&stack.changed("repository_owner_id", "66".into()));
    stack.get(&foreign, "/v1/targets").await.is_problem(403, "forbidden");
}

pub(crate) async fn forged_identity_tokens() {
    let stack = TrustedStack::new().await;
    let claims = stack.github();
    let valid = stack.sign(&claims);
    stack.get(&valid, "/v1/targets").await.is(200);
    let parts: Vec<&str> = valid.split('.').collect();
    let none = |algorithm: &str| {
        let header = json!({"alg": algorithm, "typ": "JWT", "kid": "rsa-1"});
        format!("{}.{}.", encoded(&header), encoded(&claims))
    };
    for algorithm in ["none", "None", "NONE", "nOnE", ""] {
        stack.refused(&none(algorithm), "invalid-token", "not a JWT that is signed with RS256 or ES256").await;
    }
    let unsigned = format!("{}.{}.", parts[0], parts[1]);
    stack.refused(&unsigned, "invalid-token", "signature").await;
    // The public key of the issuer, or its parts, as the secret of HMAC.
    let key = public(&stack.rsa, Algorithm::RS256, "rsa-1");
    let modulus = URL_SAFE_NO_PAD.decode(key["n"].as_str().unwrap()).unwrap();
    for secret in [modulus, key["n"].as_str().unwrap().into(), key.to_string().into_bytes(), Vec::new()] {
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let secret = EncodingKey::from_secret(&secret);
            let token = jsonwebtoken::encode(&stack.header(algorithm), &claims, &secret).unwrap();
            stack.refused(&token, "invalid-token", "expected RS256 or ES256").await;
        }
    }
    let (own, other_ec) = (rsa_key(), ec_key());
    let jwk = serde_json::from_value(public(&own, Algorithm::RS256, "rsa-1")).unwrap();
    let header = || stack.header(Algorithm::RS256);
    for (header, key, reason) in [
        (stack.header(Algorithm::RS384), &stack.rsa, "expected RS256 or ES256"),
        (stack.header(Algorithm::RS512), &stack.rsa, "expected RS256 or ES256"),
        (stack.header(Algorithm::PS256), &stack.rsa, "expected RS256 or ES256"),
        // Another key under the id of a known one, and a known key under the id of another one.
        (header(), &own, "signature"),
        (stack.header(Algorithm::ES256), &other_ec, "signature"),
        (
            Header { kid: Some("ec-1".to_owned()), ..header() },
            &stack.rsa,
            "has no key \"ec-1\" for RS256. Keys are fetched once a minute",
        ),
        // The key of the sender, in the header.
        (Header { jwk: Some(jwk), ..header() }, &own, "signature"),
        (Header { jku: Some(format!("{}/keys", stack.issuer)), ..header() }, &own, "signature"),
        (Header { crit: Some(vec!["b64".to_owned()]), ..header() }, &stack.rsa, "`crit`"),
    ] {
        let token = jsonwebtoken::encode(&header, &claims, key).unwrap();
        stack.refused(&token, "invalid-token", reason).await;
    }
    // Other claims, or another header, under the same signature.
    let more = encoded(&stack.changed("repository_owner_id", "1".into()));
    stack.refused(&format!("{}.{more}.{}", parts[0], parts[2]), "invalid-token", "signature").await;
    let header = encoded(&json!({"alg": "RS256", "typ": "JWT", "kid": "rsa-1", "x": "y"}));
    stack.refused(&format!("{header}.{}.{}", parts[1], parts[2]), "invalid-token", "signature").await;
    for token in [format!("{valid}x"), format!("{valid}."), format!(".{valid}"), valid[..valid.len() - 1].to_owned()] {
        let problem = stack.get(&token, "/v1/targets").await.is_problem(401, "invalid-token");
        assert!(!problem.detail.contains(parts[2]), "{problem:?}");
    }
    let huge = stack.sign(&stack.changed("sha", "x".repeat(16 << 10).into()));
    stack.refused(&huge, "invalid-token", "longer than 16384 bytes").await;
    let path = format!("/v1/targets?access_token={valid}");
    ApiReply::to(&stack.harness.http, &stack.harness.url(&path), None, Method::GET, None)
        .await
        .is_problem(401, "missing-token");
}

pub(crate) async fn times_and_names_of_identity_tokens() {
    let stack = TrustedStack::new().await;
    let time = now().0 / 1_000;
    for (name, value) in [("exp", time - 30), ("nbf", time + 30)] {
        stack.get(&stack.sign(&stack.changed(name, value.into())), "/v1/targets").await.is(200);
    }
    let expired = stack.changed("exp", (time - 90).into());
    stack.refused(&stack.sign(&expired), "token-expired", "the token has expired").await;
    for (name, value, reason) in [
        ("nbf", json!(time + 90), "its claim `nbf` is in the future"),
        ("exp", Value::Null, "the claim `exp` of the token is missing"),
        ("exp", json!("tomorrow"), "`exp`"),
        ("aud", json!("https://github.com/octo-org"), "expected \"https://ebb.example.com\""),
        ("aud", json!(["https://github.com/octo-org"]), "expected \"https://ebb.example.com\""),
        ("aud", json!(format!("{AUDIENCE}/")), "expected \"https://ebb.example.com\""),
        ("aud", Value::Null, "the claim `aud` of the token is missing"),
        ("sub", Value::Null, "the claim `sub` of the token is missing"),
        ("sub", json!(""), "the claim `sub` of the token is not a text"),
        ("sub", json!("a\u{202e}b"), "has a character that cannot be printed"),
        ("sub", json!("a\nb"), "has a character that cannot be printed"),
        ("sub", json!("x".repeat(1_024)), "is too long"),
        ("iss", json!("https://token.actions.githubusercontent.com"), "is not in EBB_OIDC"),
        ("iss", json!(format!("{}/", stack.issuer)), "is not in EBB_OIDC"),
        ("iss", Value::Null, "is not in EBB_OIDC"),
        ("iss", json!([stack.issuer]), "is not in EBB_OIDC"),
    ] {
        stack.refused(&stack.sign(&stack.changed(name, value)), "invalid-token", reason).await;
    }
    for kid in [Some("rsa-2".to_owned()), Some(String::new()), None] {
        let header = Header { kid: kid.clone(), ..Header::new(Algorithm::RS256) };
        let token = jsonwebtoken::encode(&header, &stack.github(), &stack.rsa).unwrap();
        let reason = if kid.is_some() { "has no key" } else { "has no `kid`" };
        stack.refused(&token, "invalid-token", reason).await;
    }
}

pub(crate) async fn keys_that_are_not_accepted() {
    let (encryption, wrong, shared) = (rsa_key(), rsa_key(), EncodingKey::from_secret(b"secret"));
    let valid = rsa_key();
    let mut keys = vec![
        public(&encryption, Algorithm::RS256, "encryption"),
        public(&wrong, Algorithm::RS512, "rs512"),
        public(&shared, Algorithm::HS256, "shared"),
        public(&valid, Algorithm::RS256, "valid"),
    ];
    keys[0]["use"] = "enc".into();
    let issuer = issuer(keys, discovery).await;
    let rules = json!([{"when": "true", "scopes": ["operate"]}]);
    let harness = Harness::with_issuers(&json!([{"issuer": issuer, "audience": AUDIENCE, "rules": rules}])).await;
    let time = now().0 / 1_000;
    let claims = json!({"iss": issuer, "aud": AUDIENCE, "sub": "a", "exp": time + 300});
    for (kid, key, algorithm, status) in [
        ("valid", &valid, Algorithm::RS256, 200),
        ("encryption", &encryption, Algorithm::RS256, 401),
        ("rs512", &wrong, Algorithm::RS256, 401),
        ("rs512", &wrong, Algorithm::RS512, 401),
        ("shared", &shared, Algorithm::HS256, 401),
    ] {
        let header = Header { kid: Some(kid.to_owned()), ..Header::new(algorithm) };
        let token = jsonwebtoken::encode(&header, &claims, key).unwrap();
        let reply = harness.with_token(&token, "GET /v1/targets", None).await;
        reply.is(status);
        assert!(status == 200 || reply.is_problem(401, "invalid-token").detail.contains("RS"), "{reply:?}");
    }
}

pub(crate) async fn issuers_that_cannot_be_trusted() {
    let key = rsa_key();
    let mut issuers = Vec::new();
    for (keys, reason) in [
        ("https://other.test/keys", "names another issuer"),
        ("http://issuer.test/keys", "has the scheme http; expected https"),
        ("https://10.0.0.1/keys", "is not allowed"),
        ("https://169.254.169.254/keys", "is not allowed"),
        ("", "missing field `jwks_uri`"),
    ] {
        let discovery = |url: &str| match keys {
            "" => json!({ "issuer": url }),
            "https://other.test/keys" => json!({"issuer": "https://other.test", "jwks_uri": keys}),
            _ => json!({"issuer": url, "jwks_uri": keys}),
        };
        issuers.push((issuer(vec![public(&key, Algorithm::RS256, "rsa-1")], discovery).await, reason));
    }
    let rules = json!([{"when": "true", "scopes": ["operate"]}]);
    let list = issuers.iter().map(|(issuer, _)| json!({"issuer": issuer, "audience": AUDIENCE, "rules": rules}));
    let harness = Harness::with_issuers(&list.collect()).await;
    let time = now().0 / 1_000;
    for (issuer, reason) in &issuers {
        let claims = json!({"iss": issuer, "aud": AUDIENCE, "sub": "a", "exp": time + 300});
        let header = Header { kid: Some("rsa-1".to_owned()), ..Header::new(Algorithm::RS256) };
        let token = jsonwebtoken::encode(&header, &claims, &key).unwrap();
        let reply = harness.with_token(&token, "GET /v1/targets", None).await;
        let problem = reply.is_problem(503, "issuer-unavailable");
        assert!(problem.detail.contains(reason), "{problem:?}");
    }
}
