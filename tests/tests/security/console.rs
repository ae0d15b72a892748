//! The console: sessions, forms of other sites, and scopes. The tests of `ebb-console` have the content of the pages.

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

    pub(crate) async fn signed_in(harness: &Harness, token: &str) -> Self {
        Self::signed_in_at(harness.stack().url(), token).await
    }

    pub(super) async fn signed_in_at(base: &str, token: &str) -> Self {
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

    pub(super) async fn operator(harness: &Harness) -> Self {
        Self::signed_in(harness, harness.stack().token()).await
    }

    fn id(&self) -> &str {
        self.cookie.split_once('=').unwrap().1
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> ApiReply {
        ApiReply::to(request.header(header::COOKIE, &self.cookie)).await
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

pub(crate) async fn a_session_ends_with_its_token() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let harness = Harness::new().await;
    let token = harness.token("ci", &["read"]).await;
    let browser = Browser::signed_in(&harness, &token).await;
    let page = browser.get("/console").await;
    assert!(page.is(200).body.contains("token ci"), "{page:?}");
    // On AWS, the cookie has a prefix that other hosts cannot set.
    let after = async |by: Duration| {
        let mut deployed = Browser::new(&later(&harness, by).await);
        deployed.cookie = format!("other=1; __Host-ebb={}", browser.id());
        deployed.get("/console").await.status
    };
    assert_eq!((after(7 * HOUR).await, after(9 * HOUR).await), (200, 303));
    harness.request(Method::DELETE, "/v1/tokens/ci", None).await.is(204);
    browser.get("/console").await.leads_to("/console/sign-in?next=%2Fconsole");
    // Another token of the name does not bring the session back.
    harness.create_token("ci", &["operate"]).await;
    browser.get("/console?q=a").await.leads_to("/console/sign-in?next=%2Fconsole%3Fq%3Da");
    let origin = browser.base.clone();
    let refused = browser.post("/console/sign-in", Some(&origin), &[("token", token.as_str())]).await;
    assert!(refused.is(401).body.contains("the token is unknown"), "{refused:?}");
    // Another sign-in ends the session of the browser.
    let first = Browser::operator(&harness).await;
    let again = first.post("/console/sign-in", Some(&origin), &[("token", harness.stack().token())]).await;
    assert_ne!(again.is(303).header("set-cookie").split(';').next().unwrap(), first.cookie);
    assert_eq!(first.get("/console").await.status, 303);
    let operator = Browser::operator(&harness).await;
    let form = operator.get("/console").await.field("form");
    operator.post("/console/sign-out", Some(&origin), &[("form", form.as_str())]).await.leads_to("/console/sign-in");
    assert_eq!(operator.get("/console").await.status, 303);
}

/// A code is valid for 2 minutes, at its deployment. A token is valid for 8 hours.
pub(crate) async fn a_login_ends() {
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    let harness = Harness::new().await;
    let token = harness.token("ci", &["read"]).await;
    let session = Browser::signed_in(&harness, &token).await;
    let at = async |seconds: u64| later(&harness, Duration::from_secs(seconds)).await;
    let mut browser = Browser::new(&at(0).await);
    browser.cookie = format!("__Host-ebb={}", session.id());
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

/// The id of a session is a cookie of the console, and in no file or log of the server.
pub(crate) async fn a_session_never_authorises_the_api() {
    let harness = Harness::simple().await;
    let browser = Browser::operator(&harness).await;
    browser.get("/console").await.is(200);
    for path in ["/v1/targets", "/v1/tokens", "/v1/plugins"] {
        assert!(browser.get(path).await.is(401).body.contains("missing-token"));
    }
    for token in [browser.id(), &format!("ebbt_{}", browser.id())] {
        harness.with_token(token, "GET /v1/targets", None).await.is_problem(401, "invalid-token");
    }
    let delete = browser.http.delete(format!("{}/v1/plugins/simple/versions/1.0.0", browser.base));
    browser.send(delete).await.is(401);
    // A bearer token is no session.
    let page = browser.http.get(format!("{}/console", browser.base)).bearer_auth(harness.stack().token());
    assert_eq!(page.send().await.unwrap().status().as_u16(), 303);
    let digest = ebb_protocol::session::SessionId::parse(browser.id()).unwrap().digest();
    assert!(harness.stores(&digest) && !harness.stores(browser.id()));
    let log = std::fs::read_to_string(crate::log_file()).unwrap();
    assert!(!log.contains(browser.id()) && log.contains("sign in"));
    // Neither the name of a stored session nor a part of an id is one.
    let mut stranger = Browser::new(&browser.base);
    for id in [digest.as_str(), "", &browser.id()[1..], &browser.id().to_lowercase()] {
        let name = browser.cookie.split('=').next().unwrap();
        stranger.cookie = format!("{name}={id}");
        assert_eq!(stranger.get("/console").await.status, 303, "{id}");
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

/// The link of `ebb dev` signs in the first browser that opens it. It is in memory only.
pub(crate) async fn a_link_signs_in_once() {
    let mut harness = Harness::new().await;
    let (url, own) = (harness.stack().sign_in_url(), harness.url(""));
    let path = url.strip_prefix(&own).unwrap().to_owned();
    let mut browser = Browser::new(&own);
    for wrong in [&path[..path.len() - 1], &format!("{path}A"), "/console/sign-in?code=A"] {
        assert!(browser.get(wrong).await.is(401).header("set-cookie").is_empty());
    }
    // A check of the link and a fetch in advance do not use it.
    for early in [browser.http.head(&url), browser.http.get(&url).header("sec-purpose", "prefetch;prerender")] {
        assert!(browser.send(early).await.is(503).header("set-cookie").is_empty());
    }
    let reply = browser.get(&path).await;
    reply.leads_to("/console");
    browser.cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
    assert!(browser.get("/console").await.is(200).body.contains("role operator"));
    assert!(Browser::new(&own).get(&path).await.is(401).header("set-cookie").is_empty());
    // The browser that is signed in opens it again.
    let again = browser.get(&format!("{path}&next=%2Fconsole%2Fwaiting")).await;
    again.leads_to("/console/waiting");
    assert!(again.header("set-cookie").is_empty(), "{again:?}");
    // The holder of the token gets other links, and other callers get none. The oldest of too many is not valid any more.
    let named = harness.token("op", &["operate"]).await;
    let mut links = Vec::new();
    for token in ["", "x", &named].into_iter().chain([harness.stack().token(); 17]) {
        let reply = browser.send(browser.http.post(format!("{own}/console/sign-in/link")).bearer_auth(token)).await;
        if token == harness.stack().token() {
            links.push(reply.is(200).body.clone());
        } else {
            assert!(!reply.is(401).body.contains("code="));
        }
    }
    for (link, status) in [(&links[0], 401), (&links[16], 303), (&links[16], 401)] {
        Browser::new(&own).get(link).await.is(status);
    }
    let code = path.split_once("code=").unwrap().1.to_owned();
    assert!(!harness.stores(&code));
    // The session outlives a restart, and another link is made.
    harness.restart().await;
    assert_ne!(harness.stack().sign_in_url().split_once("code=").unwrap().1, code);
    browser.base = harness.url("");
    browser.get("/console").await.is(200);
}

/// A token of the configuration can have the form of an identity token, which does not sign in.
pub(crate) async fn a_configured_token_of_any_form_signs_in() {
    const CONFIGURED: &str = "ey.configured.token";
    let harness = Harness::new().await;
    let tokens = ApiTokens::new([(CONFIGURED, ApiRole::Operator)]);
    let server = harness.functions(Arc::clone(harness.stack().env()), tokens);
    let base = serve(ebb_api::all(server)).await;
    let browser = Browser::signed_in_at(&base, CONFIGURED).await;
    let refused = browser.post("/console/sign-in", Some(&base), &[("token", "ey.another.token")]).await;
    assert!(refused.is(401).body.contains("does not sign in"), "{refused:?}");
}
