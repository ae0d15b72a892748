//! An OpenID Connect issuer with generated keys, and its identity tokens (JWT). The table has the tests.

use std::sync::LazyLock;

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::Map;

use crate::harness::*;
use crate::lifecycle::documented::block;

const AUDIENCE: &str = "https://ebb.example.com";
/// The bytes before the PKCS #1 key in a PKCS #8 document of an RSA key of 2048 bits.
const PKCS8_HEAD: usize = 26;

fn rsa_key() -> EncodingKey {
    let key = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa2048).unwrap();
    let document: Pkcs8V1Der<'_> = key.as_der().unwrap();
    EncodingKey::from_rsa_der(&document.as_ref()[PKCS8_HEAD..])
}

fn ec_key() -> EncodingKey {
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
    EncodingKey::from_ec_der(document.as_ref())
}

/// Returns the public part of a key as in a JWKS.
fn public(key: &EncodingKey, algorithm: Algorithm, kid: &str) -> Value {
    let mut jwk = serde_json::to_value(Jwk::from_encoding_key(key, algorithm).unwrap()).unwrap();
    jwk["kid"] = kid.into();
    jwk["use"] = "sig".into();
    jwk
}

/// Starts an issuer with a discovery document, which is a function of its URL, and keys.
pub(super) async fn issuer(keys: Vec<Value>, discovery: impl FnOnce(&str) -> Value) -> TestReceiver {
    let server = TestReceiver::start().await;
    publish(&server, keys, discovery(server.url()));
    server
}

fn publish(server: &TestReceiver, keys: Vec<Value>, discovery: Value) {
    server.always("GET /.well-known/openid-configuration", discovery);
    server.always("GET /keys", json!({ "keys": keys }));
}

/// The keys of the issuer of the table, and those of another sender.
struct SigningKeys {
    rsa: EncodingKey,
    ec: EncodingKey,
    other_rsa: EncodingKey,
    other_ec: EncodingKey,
}

static KEYS: LazyLock<SigningKeys> =
    LazyLock::new(|| SigningKeys { rsa: rsa_key(), ec: ec_key(), other_rsa: rsa_key(), other_ec: ec_key() });

/// Returns a key by its name. What is public of the key of the issuer, and a text without a name, are secrets of HMAC.
fn key(name: &str) -> EncodingKey {
    let published = public(&KEYS.rsa, Algorithm::RS256, "rsa-1");
    let modulus = published["n"].as_str().unwrap();
    let secret = match name {
        "rsa" => return KEYS.rsa.clone(),
        "ec" => return KEYS.ec.clone(),
        "otherRsa" => return KEYS.other_rsa.clone(),
        "otherEc" => return KEYS.other_ec.clone(),
        "modulus" => URL_SAFE_NO_PAD.decode(modulus).unwrap(),
        "encodedModulus" => modulus.into(),
        "published" => published.to_string().into_bytes(),
        text => text.into(),
    };
    EncodingKey::from_secret(&secret)
}

/// Starts a stack that trusts its receiver as issuer of the jobs of the page about tokens. It also trusts issuers below the
/// receiver, whose discovery documents are in rows.
pub(crate) async fn trusting_receiver() -> Harness {
    // The page has rules for two issuers.
    let issuers: Vec<Value> = serde_json::from_str(&block("tokens.md", "[\n")).unwrap();
    let mut rules: Vec<Value> = issuers.iter().flat_map(|issuer| issuer["rules"].as_array().unwrap().clone()).collect();
    rules.push(json!({"when": "claims.user_login", "scopes": ["operate"]}));
    let entry = |issuer: String, rules: &Value| json!({"issuer": issuer, "audience": AUDIENCE, "rules": rules});
    let harness = Harness::trusting(|url| {
        let all = json!([{"when": "true", "scopes": ["operate"]}]);
        let others = (1..=5).map(|number| entry(format!("{url}/{number}"), &all));
        std::iter::once(entry(url.to_owned(), &json!(rules))).chain(others).collect()
    })
    .await;
    let mut keys = vec![
        public(&KEYS.rsa, Algorithm::RS256, "rsa-1"),
        public(&KEYS.ec, Algorithm::ES256, "ec-1"),
        // These are not accepted.
        public(&KEYS.other_rsa, Algorithm::RS512, "rs512"),
        public(&key("a shared secret"), Algorithm::HS256, "shared"),
        public(&KEYS.other_rsa, Algorithm::RS256, "encryption"),
    ];
    keys[4]["use"] = "enc".into();
    let url = harness.receiver.url();
    publish(&harness.receiver, keys, json!({"issuer": url, "jwks_uri": format!("{url}/keys")}));
    harness
}

/// An identity token of a job of GitHub Actions, with the differences of a row. A null removes a member, and times are seconds
/// from now. `jwk` of the header names a key.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct IdentityToken {
    /// `None` for `rsa`.
    key: Option<String>,
    header: Map<String, Value>,
    claims: Map<String, Value>,
}

impl IdentityToken {
    pub(crate) fn signed(self, issuer: &str) -> String {
        let mut header = json!({"typ": "JWT", "alg": "RS256", "kid": "rsa-1"});
        let mut claims = json!({
            "sub": "repo:octo-org/octo-repo:ref:refs/heads/main", "aud": AUDIENCE, "iss": issuer, "iat": 0, "nbf": 0,
            "exp": 300, "ref": "refs/heads/main", "repository_id": "74", "repository_owner_id": "65",
        });
        for (whole, changes) in [(&mut header, self.header), (&mut claims, self.claims)] {
            whole.as_object_mut().unwrap().extend(changes);
            whole.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        }
        for (name, value) in claims.as_object_mut().unwrap() {
            if let Some(seconds) = value.as_i64().filter(|_| ["iat", "nbf", "exp"].contains(&name.as_str())) {
                *value = json!((now().0 / 1_000).saturating_add_signed(seconds));
            }
        }
        if let Some(name) = header["jwk"].as_str().map(str::to_owned) {
            header["jwk"] = public(&key(&name), Algorithm::RS256, "rsa-1");
        }
        let header: Header = serde_json::from_value(header).unwrap();
        jsonwebtoken::encode(&header, &claims, &key(self.key.as_deref().unwrap_or("rsa"))).unwrap()
    }
}
