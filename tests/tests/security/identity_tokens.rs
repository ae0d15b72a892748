//! Identity tokens (JWT) of an OpenID Connect issuer: a local issuer with generated keys, and forgeries.

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};

use super::api::SCRIPT;
use crate::harness::*;
use crate::lifecycle::documented::block;

const AUDIENCE: &str = "https://ebb.example.com";
const EXPIRED: &str = "the token has expired";
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

pub(super) fn rsa_token(key: &EncodingKey, claims: &Value) -> String {
    let header = Header { kid: Some("rsa-1".to_owned()), ..Header::new(Algorithm::RS256) };
    jsonwebtoken::encode(&header, claims, key).unwrap()
}

/// Starts an issuer with a discovery document, which is a function of its URL, and keys.
pub(super) async fn issuer(keys: Vec<Value>, discovery: impl FnOnce(&str) -> Value) -> TestReceiver {
    let server = TestReceiver::start().await;
    server.always("GET /.well-known/openid-configuration", discovery(server.url()));
    server.always("GET /keys", json!({ "keys": keys }));
    server
}

fn discovery(url: &str) -> Value {
    json!({"issuer": url, "jwks_uri": format!("{url}/keys")})
}

/// An issuer with a key of each kind, and a stack that trusts it.
struct TrustedStack {
    harness: Harness,
    issuer: TestReceiver,
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
        let harness =
            Harness::with_issuers(&json!([{"issuer": issuer.url(), "audience": AUDIENCE, "rules": rules}])).await;
        Self { harness, issuer, rsa, ec }
    }

    /// Returns the claims of a job of GitHub Actions that the rules read.
    fn github(&self) -> Value {
        let now = now().0 / 1_000;
        json!({
            "sub": "repo:octo-org/octo-repo:ref:refs/heads/main", "aud": AUDIENCE, "iss": self.issuer.url(), "iat": now,
            "nbf": now, "exp": now + 300, "ref": "refs/heads/main", "repository_id": "74", "repository_owner_id": "65",
        })
    }

    fn gitlab(&self, ref_protected: &str) -> Value {
        let time = now().0 / 1_000;
        json!({
            "project_id": "20", "user_login": "sample-user", "ref_protected": ref_protected, "iss": self.issuer.url(),
            "sub": "project_path:my-group/my-project:ref_type:branch:ref:feature-branch-1", "iat": time,
            "aud": [AUDIENCE, "https://vault.example.com"], "nbf": time - 5, "exp": time + 300,
        })
    }

    fn header(&self, algorithm: Algorithm) -> Header {
        let kid = if algorithm == Algorithm::ES256 { "ec-1" } else { "rsa-1" };
        Header { kid: Some(kid.to_owned()), ..Header::new(algorithm) }
    }

    fn sign(&self, claims: &Value) -> String {
        rsa_token(&self.rsa, claims)
    }

    async fn get(&self, token: &str, path: &str) -> ApiReply {
        self.harness.caller(token).get(path).await
    }

    /// Checks that a token is refused. The reason contains a text and no part of the token.
    async fn refused(&self, token: &str, reason: &str) {
        let reply = self.get(token, "/v1/targets").await;
        let code = if reason == EXPIRED { "token-expired" } else { "invalid-token" };
        let problem = reply.is_problem(401, code);
        assert!(problem.detail.contains(reason), "{reason}: {problem:?}");
        let signature = token.rsplit('.').next().unwrap();
        assert!(signature.is_empty() || !problem.detail.contains(signature), "{problem:?}");
    }

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
    let target = request_for("by-pipeline", "");
    let plugin = |name: &str| json!({"document": named("Plugin", name, SCRIPT)});
    for (path, body, status) in [
        ("/v1/targets", target, 202),
        ("/v1/plugins", plugin("tenant-db@1.0.0"), 201),
        ("/v1/plugins", plugin("other@1.0.0"), 403),
        ("/v1/tokens", json!({"name": "more", "scopes": ["read"]}), 403),
    ] {
        stack.harness.with_token(&token, &format!("POST {path}"), Some(body)).await.is(status);
    }
    let history: Value = stack.harness.get("/v1/targets/sandbox/by-pipeline/history").await.is(200).json();
    let caller = format!("{} repo:octo-org/octo-repo:ref:refs/heads/main", stack.issuer.url());
    assert_eq!(history["entries"][0]["by"], caller, "{history}");
    let log = std::fs::read_to_string(crate::log_file()).unwrap();
    assert!(!log.contains(&token[token.len() - 40..]));
    // A rule holds only if it is true: `user_login` is a text. Without a rule that holds, a token has no scope.
    let sign = |claims: &Value| jsonwebtoken::encode(&stack.header(Algorithm::ES256), claims, &stack.ec).unwrap();
    stack.get(&sign(&stack.gitlab("true")), "/v1/targets").await.is(200);
    let foreign = stack.sign(&stack.changed("repository_owner_id", "66".into()));
    let problem = stack.get(&sign(&stack.gitlab("false")), "/v1/targets").await.is_problem(403, "forbidden");
    assert!(problem.detail.contains("no rule of EBB_OIDC grants a scope to"), "{problem:?}");
    stack.get(&foreign, "/v1/targets").await.is_problem(403, "forbidden");
}

pub(crate) async fn forged_identity_tokens() {
    let stack = TrustedStack::new().await;
    let claims = stack.github();
    let valid = stack.sign(&claims);
    stack.get(&valid, "/v1/targets").await.is(200);
    let parts: Vec<&str> = valid.split('.').collect();
    for algorithm in ["none", "nOnE", ""] {
        let header = encoded(&json!({"alg": algorithm, "typ": "JWT", "kid": "rsa-1"}));
        stack.refused(&format!("{header}.{}.", parts[1]), "not a JWT that is signed with RS256 or ES256").await;
    }
    // The public key of the issuer, or its parts, as the secret of HMAC.
    let key = public(&stack.rsa, Algorithm::RS256, "rsa-1");
    let modulus = URL_SAFE_NO_PAD.decode(key["n"].as_str().unwrap()).unwrap();
    for secret in [modulus, key["n"].as_str().unwrap().into(), key.to_string().into_bytes(), Vec::new()] {
        let secret = EncodingKey::from_secret(&secret);
        let token = jsonwebtoken::encode(&stack.header(Algorithm::HS256), &claims, &secret).unwrap();
        stack.refused(&token, "expected RS256 or ES256").await;
    }
    let (own, other_ec) = (rsa_key(), ec_key());
    let jwk = serde_json::from_value(public(&own, Algorithm::RS256, "rsa-1")).unwrap();
    let header = || stack.header(Algorithm::RS256);
    let with_kid = |kid: Option<&str>| Header { kid: kid.map(str::to_owned), ..header() };
    for (header, key, reason) in [
        (stack.header(Algorithm::RS512), &stack.rsa, "expected RS256 or ES256"),
        (stack.header(Algorithm::PS256), &stack.rsa, "expected RS256 or ES256"),
        // Another key under the id of a known one, and a known key under the id of another one.
        (header(), &own, "signature"),
        (stack.header(Algorithm::ES256), &other_ec, "signature"),
        (with_kid(Some("ec-1")), &stack.rsa, "has no key \"ec-1\" for RS256. Keys are fetched once a minute"),
        (with_kid(Some("rsa-2")), &stack.rsa, "has no key"),
        (with_kid(None), &stack.rsa, "has no `kid`"),
        // The key of the sender, in the header.
        (Header { jwk: Some(jwk), ..header() }, &own, "signature"),
        (Header { jku: Some(format!("{}/keys", stack.issuer.url())), ..header() }, &own, "signature"),
        (Header { crit: Some(vec!["b64".to_owned()]), ..header() }, &stack.rsa, "`crit`"),
    ] {
        stack.refused(&jsonwebtoken::encode(&header, &claims, key).unwrap(), reason).await;
    }
    // Other claims, or another header, under the same signature, and other signatures.
    let more = encoded(&stack.changed("repository_owner_id", "1".into()));
    let header = encoded(&json!({"alg": "RS256", "typ": "JWT", "kid": "rsa-1", "x": "y"}));
    for (token, reason) in [
        (format!("{}.{}.", parts[0], parts[1]), "signature"),
        (format!("{}.{more}.{}", parts[0], parts[2]), "signature"),
        (format!("{header}.{}.{}", parts[1], parts[2]), "signature"),
        (format!("{valid}x"), ""),
        (format!("{valid}."), ""),
        (valid[..valid.len() - 1].to_owned(), ""),
        (stack.sign(&stack.changed("sha", "x".repeat(16 << 10).into())), "longer than 16384 bytes"),
    ] {
        stack.refused(&token, reason).await;
    }
    let in_url = stack.harness.anonymous().get(&format!("/v1/targets?access_token={valid}")).await;
    in_url.is_problem(401, "missing-token");
}

pub(crate) async fn times_and_names_of_identity_tokens() {
    let stack = TrustedStack::new().await;
    let time = now().0 / 1_000;
    for (name, value) in [("exp", time - 30), ("nbf", time + 30)] {
        stack.get(&stack.sign(&stack.changed(name, value.into())), "/v1/targets").await.is(200);
    }
    for (name, value, reason) in [
        ("exp", json!(time - 90), EXPIRED),
        ("nbf", json!(time + 90), "its claim `nbf` is in the future"),
        ("exp", Value::Null, "the claim `exp` of the token is missing"),
        ("exp", json!("tomorrow"), "`exp`"),
        ("aud", json!(["https://github.com/octo-org"]), "expected \"https://ebb.example.com\""),
        ("aud", json!(format!("{AUDIENCE}/")), "expected \"https://ebb.example.com\""),
        ("aud", Value::Null, "the claim `aud` of the token is missing"),
        ("sub", Value::Null, "the claim `sub` of the token is missing"),
        ("sub", json!(""), "the claim `sub` of the token is not a text"),
        ("sub", json!("a\u{202e}b"), "has a character that cannot be printed"),
        ("sub", json!("x".repeat(1_024)), "is too long"),
        ("iss", json!(format!("{}/", stack.issuer.url())), "is not in EBB_OIDC"),
        ("iss", Value::Null, "is not in EBB_OIDC"),
        ("iss", json!([stack.issuer.url()]), "is not in EBB_OIDC"),
    ] {
        stack.refused(&stack.sign(&stack.changed(name, value)), reason).await;
    }
}

pub(crate) async fn keys_that_are_not_accepted() {
    let (encryption, wrong, shared, valid) = (rsa_key(), rsa_key(), EncodingKey::from_secret(b"secret"), rsa_key());
    let mut keys = vec![
        public(&encryption, Algorithm::RS256, "encryption"),
        public(&wrong, Algorithm::RS512, "rs512"),
        public(&shared, Algorithm::HS256, "shared"),
        public(&valid, Algorithm::RS256, "valid"),
    ];
    keys[0]["use"] = "enc".into();
    let issuer = issuer(keys, discovery).await;
    let harness = trusting(&[issuer.url()]).await;
    for (kid, key, algorithm, status) in [
        ("valid", &valid, Algorithm::RS256, 200),
        ("encryption", &encryption, Algorithm::RS256, 401),
        ("rs512", &wrong, Algorithm::RS256, 401),
        ("rs512", &wrong, Algorithm::RS512, 401),
        ("shared", &shared, Algorithm::HS256, 401),
    ] {
        let header = Header { kid: Some(kid.to_owned()), ..Header::new(algorithm) };
        let token = jsonwebtoken::encode(&header, &claims_of(issuer.url()), key).unwrap();
        let reply = harness.with_token(&token, "GET /v1/targets", None).await;
        reply.is(status);
        assert!(status == 200 || reply.is_problem(401, "invalid-token").detail.contains("RS"), "{reply:?}");
    }
}

/// Starts a stack in which every token of these issuers permits everything.
async fn trusting(issuers: &[&str]) -> Harness {
    let rules = json!([{"when": "true", "scopes": ["operate"]}]);
    let entries = issuers.iter().map(|issuer| json!({"issuer": issuer, "audience": AUDIENCE, "rules": rules}));
    Harness::with_issuers(&entries.collect()).await
}

fn claims_of(issuer: &str) -> Value {
    json!({"iss": issuer, "aud": AUDIENCE, "sub": "a", "exp": now().0 / 1_000 + 300})
}

pub(crate) async fn issuers_that_cannot_be_trusted() {
    let key = rsa_key();
    let mut issuers = Vec::new();
    for (other, keys, reason) in [
        (Some("https://other.test"), "https://other.test/keys", "names another issuer"),
        (None, "http://issuer.test/keys", "has the scheme http; expected https"),
        (None, "https://10.0.0.1/keys", "is not allowed"),
        (None, "https://169.254.169.254/keys", "is not allowed"),
        (None, "", "missing field `jwks_uri`"),
    ] {
        let discovery = |url: &str| match keys {
            "" => json!({ "issuer": url }),
            _ => json!({"issuer": other.unwrap_or(url), "jwks_uri": keys}),
        };
        issuers.push((issuer(vec![public(&key, Algorithm::RS256, "rsa-1")], discovery).await, reason));
    }
    let harness = trusting(&issuers.iter().map(|(issuer, _)| issuer.url()).collect::<Vec<_>>()).await;
    for (issuer, reason) in &issuers {
        let token = rsa_token(&key, &claims_of(issuer.url()));
        let reply = harness.with_token(&token, "GET /v1/targets", None).await;
        let problem = reply.is_problem(503, "issuer-unavailable");
        assert!(problem.detail.contains(reason), "{problem:?}");
    }
}
