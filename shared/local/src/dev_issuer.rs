//! A stand-in for an OpenID Connect issuer, where a person signs in by a name without a password. For `ebb dev` and tests.
//!
//! Everyone who reaches it signs in as anyone. So it answers only requests that name a loopback address, and sends codes only to
//! such addresses. The stack binds it to the loopback interface.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ebb_protocol::code_challenge;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use url::{Url, form_urlencoded};

use crate::embedded::names_loopback;

/// An issuer that trusts every person. Its key and its codes are in memory only.
pub struct DevIssuer {
    url: String,
    key: EncodingKey,
    /// The authorization requests behind codes, each with `name` and `groups` of the person who has approved it.
    codes: Mutex<BTreeMap<String, String>>,
}

/// Returns a field of a form or query. A missing one is empty.
fn field(form: &str, name: &str) -> String {
    let mut fields = form_urlencoded::parse(form.as_bytes());
    fields.find(|(found, _)| found == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
}

/// Returns the discovery document of the issuer, or its entry in `EBB_OIDC`.
fn document(name: &str, url: &str) -> Value {
    let documents: Value =
        serde_json::from_str(&include_str!("../assets/dev_issuer.json").replace("URL", url)).unwrap_or_default();
    documents[name].clone()
}

/// Adds the issuer at `url` to a value of `EBB_OIDC`, whose parser reports an error in it.
pub(crate) fn with_entry(oidc: &str, url: &str) -> String {
    let listed = serde_json::from_str::<Vec<Value>>(if oidc.trim().is_empty() { "[]" } else { oidc });
    let Ok(mut listed) = listed else { return oidc.to_owned() };
    listed.push(document("entry", url));
    Value::from(listed).to_string()
}

impl DevIssuer {
    pub fn new(url: &str) -> Self {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let key = EncodingKey::from_ec_der(key.expect("the system has random numbers").as_ref());
        Self { url: url.to_owned(), key, codes: Mutex::default() }
    }

    pub(crate) fn router(self) -> Router {
        Router::new().fallback(respond).with_state(Arc::new(self))
    }

    pub fn keys(&self) -> Value {
        let mut key = json!(Jwk::from_encoding_key(&self.key, Algorithm::ES256).expect("the key is one of ES256"));
        key["kid"] = json!("dev");
        json!({ "keys": [key] })
    }

    /// Returns a token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some("dev".to_owned()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &self.key).expect("the key is one of ES256")
    }

    /// Approves an authorization request as the person with its parameter `name`. Returns the code.
    pub fn approve(&self, request: &str) -> String {
        let code = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>());
        self.codes.lock().unwrap_or_else(PoisonError::into_inner).insert(code.clone(), request.to_owned());
        code
    }

    /// Sends the browser of the person back.
    fn authorize(&self, request: &str) -> Response {
        let is_local = |url: &Url| matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        let Some(mut url) = Url::parse(&field(request, "redirect_uri")).ok().filter(is_local) else {
            return (StatusCode::BAD_REQUEST, "redirect_uri is not a loopback address").into_response();
        };
        let (code, state) = (self.approve(request), field(request, "state"));
        url.query_pairs_mut().append_pair("code", &code).append_pair("state", &state).append_pair("iss", &self.url);
        Redirect::to(url.as_str()).into_response()
    }

    /// Returns the response of the token endpoint, or the body of status 400. `claims` replace those of the person.
    pub fn token(&self, form: &str, claims: &Value) -> Result<Value, Value> {
        let request = self.codes.lock().unwrap_or_else(PoisonError::into_inner).remove(&field(form, "code"));
        let proven = [code_challenge(&field(form, "code_verifier")), field(form, "redirect_uri")];
        let is_proven =
            |request: &String| ["code_challenge", "redirect_uri"].map(|name| field(request, name)) == proven;
        let request = request.filter(is_proven);
        let request = request.ok_or_else(|| json!({"error": "invalid_grant"}))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let [client, name, groups, nonce] = ["client_id", "name", "groups", "nonce"].map(|name| field(&request, name));
        let groups: Vec<&str> = groups.split_whitespace().collect();
        let mut all = json!({
            "iss": self.url, "aud": client, "sub": name, "exp": now + 300, "iat": now,
            "nonce": nonce, "groups": groups, "email": format!("{name}@example.com"),
        });
        if let (Value::Object(all), Value::Object(claims)) = (&mut all, claims) {
            all.extend(claims.clone());
            all.retain(|_, value| !value.is_null());
        }
        Ok(json!({"access_token": "of-the-person", "token_type": "Bearer", "id_token": self.sign(&all)}))
    }
}

async fn respond(State(issuer): State<Arc<DevIssuer>>, uri: Uri, headers: HeaderMap, body: String) -> Response {
    if !names_loopback(&headers) {
        return StatusCode::MISDIRECTED_REQUEST.into_response();
    }
    match uri.path() {
        "/.well-known/openid-configuration" => Json(document("discovery", &issuer.url)).into_response(),
        "/keys" => Json(issuer.keys()).into_response(),
        "/authorize" if body.is_empty() => Html(include_str!("../assets/dev_issuer.html")).into_response(),
        "/authorize" => issuer.authorize(&format!("{}&{body}", uri.query().unwrap_or_default())),
        "/token" => {
            let response = issuer.token(&body, &Value::Null).map(Json);
            response.map_err(|refusal| (StatusCode::BAD_REQUEST, Json(refusal))).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}
