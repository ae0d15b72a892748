//! The console: sessions, forms of other sites, and scopes. The tests of `ebb-console` have the content of the pages.

use std::collections::BTreeMap;

use ebb_api::{ApiRole, ApiTokens};
use ebb_flow::Rejection;
use ebb_protocol::error_code::ErrorCode;
use ebb_protocol::id::TargetKey;
use reqwest::header;
use reqwest::redirect::Policy;
use url::form_urlencoded;

use super::api_tokens::later;
use crate::harness::*;
use crate::request_table;

const TABLE: &str = "security/console.yaml";

/// A browser that follows no redirect.
pub(crate) struct Browser {
    pub(super) http: reqwest::Client,
    pub(super) base: String,
    pub(super) cookie: String,
}

impl Browser {
    pub(crate) fn new(base: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { http, base: base.to_owned(), cookie: String::new() }
    }

    pub(crate) async fn signed_in(base: &str, token: &str) -> Self {
        let mut browser = Self::new(base);
        let origin = browser.base.clone();
        let reply = browser.post("/console/sign-in", Some(&origin), &[("token", token)]).await;
        reply.leads_to("/console");
        let cookie = reply.header("set-cookie");
        for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age="] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        browser.cookie = cookie.split(';').next().unwrap().to_owned();
        browser
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> ApiReply {
        ApiReply::to(request.header(header::COOKIE, &self.cookie)).await
    }

    /// Requests a page, also of another server, with further headers.
    pub(crate) async fn open(&self, url: &str, headers: &BTreeMap<String, String>) -> ApiReply {
        let request = self.http.get(url);
        self.send(headers.iter().fold(request, |request, (name, value)| request.header(name, value))).await
    }

    pub(crate) async fn get(&self, path: &str) -> ApiReply {
        self.send(self.http.get(format!("{}{path}", self.base))).await
    }

    /// Requests a page with an entity tag.
    pub(super) async fn again(&self, path: &str, tag: &str) -> ApiReply {
        self.send(self.http.get(format!("{}{path}", self.base)).header(header::IF_NONE_MATCH, tag)).await
    }

    pub(super) async fn post(&self, path: &str, origin: Option<&str>, fields: &[(&str, &str)]) -> ApiReply {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let mut request = self.http.post(format!("{}{path}", self.base)).body(body);
        request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(origin) = origin {
            request = request.header(header::ORIGIN, origin);
        }
        self.send(request).await
    }

    /// Sends a form with the token of the session, unless its fields have another one. A field without a value is left out,
    /// as is an empty origin.
    pub(crate) async fn submit(
        &self,
        path: &str,
        origin: Option<&str>,
        fields: &[(String, Option<String>)],
    ) -> ApiReply {
        let mut sent = Vec::new();
        if !fields.iter().any(|(name, _)| name == "form") {
            sent.push(("form", self.get("/console").await.field("form")));
        }
        sent.extend(fields.iter().filter_map(|(name, value)| Some((name.as_str(), value.clone()?))));
        let sent: Vec<(&str, &str)> = sent.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.post(path, origin.or(Some(&self.base)).filter(|origin| !origin.is_empty()), &sent).await
    }
}

/// A code is valid for 2 minutes, at its deployment. A token is valid for 8 hours.
pub(crate) async fn a_login_ends() {
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    let harness = Harness::new().await;
    let token = harness.token("ci", &["read"]).await;
    let session = Browser::signed_in(harness.stack().url(), &token).await;
    let at = async |seconds: u64| later(&harness, seconds).await;
    let mut browser = Browser::new(&at(0).await);
    browser.cookie = format!("__Host-ebb={}", session.cookie.split_once('=').unwrap().1);
    let challenge = ebb_protocol::code_challenge(VERIFIER);
    let fields = ["challenge", "state"].map(|name| (name.to_owned(), Some(challenge.clone())));
    let code = browser.submit("/console/login", None, &fields).await.is(200).field("code");
    let body = json!({"code": code, "verifier": VERIFIER});
    let redeem = async |base: &str| ApiClient::new(&harness.http, base, "").post("/v1/login", body.clone()).await;
    redeem(&at(125).await).await.is_problem(401, "invalid-token");
    redeem(harness.stack().url()).await.is_problem(401, "invalid-token");
    let login: Value = redeem(&at(100).await).await.is(201).json();
    for (seconds, status) in [(8 * 3_600, 200), (8 * 3_600 + 200, 401)] {
        let client = ApiClient::new(&harness.http, &at(seconds).await, login["token"].as_str().unwrap());
        client.get("/v1/caller").await.is(status);
    }
}

pub(crate) async fn actions_need_their_scope() {
    let harness = Harness::simple().await;
    request_table::play(&harness, TABLE, "actions_need_their_scope", &[]).await;
    // An instance that takes the name after the form was checked is not retried.
    let env = harness.stack().env();
    let other = ebb_flow::advance::retry::retry(env, (TargetKey::new("sandbox", "a"), Some("other")), None).await;
    assert!(matches!(other, Ok(Err(Rejection::Refused(ErrorCode::Outdated, _)))), "{other:?}");
}

/// A token of the configuration can have the form of an identity token, which does not sign in.
pub(crate) async fn a_configured_token_of_any_form_signs_in() {
    const CONFIGURED: &str = "ey.configured.token";
    let harness = Harness::new().await;
    let tokens = ApiTokens::new([(CONFIGURED, ApiRole::Operator)]);
    let server = harness.functions(Arc::clone(harness.stack().env()), tokens);
    let base = serve(ebb_api::all(server)).await;
    let browser = Browser::signed_in(&base, CONFIGURED).await;
    let refused = browser.post("/console/sign-in", Some(&base), &[("token", "ey.another.token")]).await;
    assert!(refused.is(401).body.contains("does not sign in"), "{refused:?}");
}
