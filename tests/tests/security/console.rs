//! The console: sessions, forms of other sites, and scopes. The tests of `ebb-console` have the content of the pages.

use reqwest::header;
use reqwest::redirect::Policy;
use url::form_urlencoded;

use super::api_tokens::later;
use crate::harness::*;

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

    /// Approves a login of the command line. Returns the request that exchanges its code.
    pub(super) async fn approve_login(&self) -> Value {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let challenge = ebb_protocol::code_challenge(verifier);
        let fields = ["challenge", "state"].map(|name| (name.to_owned(), Some(challenge.clone())));
        let code = self.submit("/console/login", None, &fields).await.is(200).field("code");
        json!({"code": code, "verifier": verifier})
    }
}

/// A code is valid for 2 minutes, at its deployment. A token is valid for 24 hours after each use, and for 7 days.
pub(crate) async fn a_login_ends() {
    let harness = Harness::new().await;
    let token = harness.token("ci", &["read"]).await;
    let session = Browser::signed_in(harness.stack().url(), &token).await;
    let at = async |seconds: u64| later(&harness, seconds).await;
    let mut browser = Browser::new(&at(0).await);
    browser.cookie = format!("__Host-ebb={}", session.cookie.split_once('=').unwrap().1);
    let body = browser.approve_login().await;
    let redeem = async |base: &str| ApiClient::new(&harness.http, base, "").post("/v1/login", body.clone()).await;
    redeem(&at(125).await).await.is_problem(401, "invalid-token");
    redeem(harness.stack().url()).await.is_problem(401, "invalid-token");
    for (hours, end) in [
        (vec![23_u64], 47),
        (vec![], 24),
        // A use within an hour of the last extension writes nothing.
        (vec![1], 24),
        // The last extension reaches the latest end.
        (vec![20, 40, 60, 80, 100, 120, 140, 144, 145, 167], 168),
    ] {
        let login: Value = redeem(&at(100).await).await.is(201).json();
        let used = async |seconds: u64| {
            let client = ApiClient::new(&harness.http, &at(seconds).await, login["token"].as_str().unwrap());
            client.get("/v1/caller").await
        };
        for hour in &hours {
            let caller: Value = used(hour * 3_600).await.is(200).json();
            assert_eq!(caller["expires"], login["expires"], "{hours:?}");
            assert_eq!(caller["expiresUnused"].is_null(), *hour >= 145, "{caller}");
        }
        used(end * 3_600 + 200).await.is_problem(401, "token-expired");
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
