//! The console: sessions, forms of other sites, headers, and texts of others in pages.

use ebb_engine::RunPhase;
use ebb_flow::advance::retry::RetryOutcome;
use ebb_protocol::id::TargetKey;
use reqwest::header::{self, HeaderMap};
use reqwest::redirect::Policy;
use url::form_urlencoded;

use super::api_tokens::{create, later};
use super::changes::Watcher;
use super::secrets::{contains, stored};
use crate::harness::*;

/// The path of a form that deletes the sandbox `a`.
const DELETE: &str = "/console/targets/sandbox/a/delete";

/// A response to a browser.
#[derive(Debug)]
pub(super) struct PageReply {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl PageReply {
    #[track_caller]
    pub(super) fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    #[track_caller]
    pub(super) fn leads_to(&self, location: &str) {
        assert_eq!((self.status, self.header("location")), (303, location), "{self:?}");
    }

    /// Returns the value of a hidden field.
    #[track_caller]
    pub(super) fn field(&self, name: &str) -> String {
        let (_, rest) = self.body.split_once(&format!("name=\"{name}\" value=\"")).expect("the page has the field");
        rest.split('"').next().unwrap().to_owned()
    }
}

/// A browser that follows no redirect.
pub(super) struct Browser {
    http: reqwest::Client,
    pub(super) base: String,
    /// The header `cookie`.
    pub(super) cookie: String,
}

impl Browser {
    pub(super) fn new(base: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { http, base: base.to_owned(), cookie: String::new() }
    }

    /// Signs in with a token.
    async fn signed_in(harness: &Harness, token: &str) -> Self {
        Self::signed_in_at(harness.stack().url(), token).await
    }

    /// Signs in to the server at `base` with a token.
    async fn signed_in_at(base: &str, token: &str) -> Self {
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

    async fn operator(harness: &Harness) -> Self {
        Self::signed_in(harness, harness.stack().token()).await
    }

    /// Returns the id of the session.
    fn id(&self) -> &str {
        self.cookie.split_once('=').unwrap().1
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> PageReply {
        let response = request.header(header::COOKIE, &self.cookie).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        PageReply { status, headers, body: response.text().await.unwrap() }
    }

    pub(super) async fn get(&self, path: &str) -> PageReply {
        self.send(self.http.get(format!("{}{path}", self.base))).await
    }

    /// Requests a page with an entity tag.
    async fn again(&self, path: &str, tag: &str) -> PageReply {
        self.send(self.http.get(format!("{}{path}", self.base)).header(header::IF_NONE_MATCH, tag)).await
    }

    pub(super) async fn post(&self, path: &str, origin: Option<&str>, fields: &[(&str, &str)]) -> PageReply {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let mut request = self.http.post(format!("{}{path}", self.base)).body(body);
        request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(origin) = origin {
            request = request.header(header::ORIGIN, origin);
        }
        self.send(request).await
    }
}

pub(crate) async fn a_session_ends_with_its_token() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let harness = Harness::new().await;
    let token = create(&harness, "ci", &["read"]).await.token;
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
    create(&harness, "ci", &["operate"]).await;
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

pub(crate) async fn a_session_never_authorises_the_api() {
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    let browser = Browser::operator(&harness).await;
    browser.get("/console/targets/sandbox/a").await.is(200);
    let history = browser.get("/console/targets/sandbox/a/history").await;
    let body = history.is(200).body.clone();
    let entry =
        body.split("/console/targets/sandbox/a/history/").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let page = browser.get(&format!("/console/targets/sandbox/a/history/{entry}")).await;
    assert!(body.contains("platform") && page.is(200).body.contains("plugin: simple"), "{page:?}");
    for path in ["/v1/targets", "/v1/targets/sandbox/a", "/v1/tokens", "/v1/plugins"] {
        assert!(browser.get(path).await.is(401).body.contains("missing-token"));
    }
    for token in [browser.id(), &format!("ebbt_{}", browser.id())] {
        harness.with_token(token, "GET /v1/targets", None).await.is_problem(401, "invalid-token");
    }
    let delete = browser.http.delete(format!("{}/v1/targets/sandbox/a", browser.base));
    browser.send(delete).await.is(401);
    // A bearer token is no session.
    let page = browser.http.get(format!("{}/console", browser.base)).bearer_auth(harness.stack().token());
    assert_eq!(page.send().await.unwrap().status().as_u16(), 303);
}

pub(crate) async fn forms_of_others_are_refused() {
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    let (browser, other) = (Browser::operator(&harness).await, Browser::operator(&harness).await);
    let page = browser.get(DELETE).await;
    assert!(page.is(200).body.contains("r/make"), "{page:?}");
    let (form, uid, own) = (page.field("form"), page.field("uid"), browser.base.clone());
    let other_form = other.get(DELETE).await.field("form");
    for (origin, form) in [
        (None, form.as_str()),
        (Some("null"), form.as_str()),
        (Some("http://evil.example"), form.as_str()),
        (Some("http://127.0.0.1"), form.as_str()),
        (Some(format!("{own}.evil.example").as_str()), form.as_str()),
        (Some(own.as_str()), ""),
        (Some(own.as_str()), other_form.as_str()),
        (Some(own.as_str()), form.to_uppercase().as_str()),
    ] {
        browser.post(DELETE, origin, &[("form", form), ("uid", uid.as_str())]).await.is(403);
    }
    // A link or an image is no form, and a form without a session leads to the sign-in.
    browser.get(&format!("{DELETE}?form={form}&uid={uid}")).await.is(200);
    let stranger = Browser::new(&own);
    stranger
        .post(DELETE, Some(&own), &[("form", form.as_str()), ("uid", uid.as_str())])
        .await
        .leads_to("/console/sign-in?next=%2Fconsole%2Ftargets%2Fsandbox%2Fa%2Fdelete");
    browser.post(DELETE, Some(&own), &[("form", form.as_str()), ("uid", "another")]).await.is(409);
    let large = "x".repeat(20_000);
    browser.post(DELETE, Some(&own), &[("form", form.as_str()), ("uid", large.as_str())]).await.is(413);
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetState::Ready);
    let deleted = browser.post(DELETE, Some(&own), &[("form", form.as_str()), ("uid", uid.as_str())]).await;
    deleted.leads_to("/console/targets/sandbox/a");
    harness.phase("a", TargetState::Gone).await;
    assert_eq!(harness.receiver.count("POST /drop"), 1);
}

pub(crate) async fn actions_need_their_scope() {
    let harness = Harness::simple().await;
    harness.receiver.always("POST /make", 500);
    harness.create("a", "simple").await;
    harness.phase("a", TargetState::Failed).await;
    let token = create(&harness, "reader", &["read"]).await.token;
    let reader = Browser::signed_in(&harness, &token).await;
    let page = reader.get("/console/targets/sandbox/a").await;
    assert!(page.is(200).body.contains("500") && !page.body.contains("/retry\"") && !page.body.contains("/delete\""));
    let (form, uid, own) = (page.field("form"), harness.target("a").await.unwrap().info.uid, reader.base.clone());
    for path in [DELETE, "/console/targets/sandbox/a/retry"] {
        let refused = reader.get(path).await;
        assert!(refused.is(403).body.contains("needs the scope") && !refused.body.contains(path), "{refused:?}");
        let refused = reader.post(path, Some(&own), &[("form", form.as_str()), ("uid", uid.as_str())]).await;
        assert!(refused.is(403).body.contains("needs the scope"), "{refused:?}");
    }
    let refused = reader.get("/console/clusters").await;
    assert!(refused.is(403).body.contains("sign out and sign in again"), "{refused:?}");
    // The navigation has the pages of its scopes, and the start page is one of them.
    assert!(page.body.contains("/console/plugins\"") && !page.body.contains("/console/clusters\""), "{page:?}");
    let token = create(&harness, "author", &["plugins:write"]).await.token;
    let author = Browser::signed_in(&harness, &token).await;
    author.get("/console").await.leads_to("/console/plugins");
    assert!(!author.get("/console/plugins").await.is(200).body.contains("\"/console/waiting\""));
    let token = create(&harness, "writer", &["targets:write"]).await.token;
    Browser::signed_in(&harness, &token).await.get("/console").await.is(403);
    // A limited scope hides the targets of others.
    let token = create(&harness, "ann", &["read:own"]).await.token;
    let ann = Browser::signed_in(&harness, &token).await;
    ann.get("/console/targets/sandbox/a").await.is(404);
    assert!(!ann.get("/console").await.is(200).body.contains("sandbox/a"));
    let operator = Browser::operator(&harness).await;
    let confirm = operator.get("/console/targets/sandbox/a/retry").await;
    assert!(confirm.is(200).body.contains("r/make"), "{confirm:?}");
    harness.receiver.always("POST /make", 200);
    // An instance that takes the name after the form was checked is not retried.
    let env = harness.stack().env();
    let other = ebb_flow::advance::retry::retry(env, (TargetKey::new("sandbox", "a"), Some("other")), None).await;
    assert_eq!(other.unwrap(), RetryOutcome::NotFound);
    let form = confirm.field("form");
    let fields = [("form", form.as_str()), ("uid", uid.as_str())];
    let retried = operator.post("/console/targets/sandbox/a/retry", Some(&own), &fields).await;
    retried.leads_to("/console/targets/sandbox/a");
    harness.phase("a", TargetState::Ready).await;
    operator.post("/console/targets/sandbox/a/retry", Some(&own), &fields).await.is(409);
}

/// An action on several targets is confirmed, and covers the instances that the page has shown.
pub(crate) async fn selected_targets_are_changed_one_by_one() {
    const SELECTION: &str = "/console/selection";
    const CONFIRMED: &str = "/console/selection/confirmed";
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    harness.receiver.always("POST /make", 500);
    harness.create("b", "simple").await;
    harness.phase("b", TargetState::Failed).await;
    let browser = Browser::operator(&harness).await;
    let list = browser.get("/console?select=all").await;
    assert!(list.is(200).body.contains("value=\"sandbox/a a-uid\" checked"), "{list:?}");
    let (form, own) = (list.field("form"), browser.base.clone());
    let send = async |path: &str, action: &str, targets: &[&str]| {
        let mut fields = vec![("form", form.as_str()), ("action", action)];
        fields.extend(targets.iter().map(|target| ("target", *target)));
        browser.post(path, Some(&own), &fields).await
    };
    let page = send(SELECTION, "delete", &["sandbox/a a-uid", "sandbox/b other", "sandbox/none uid"]).await;
    assert!(page.is(200).body.contains("Delete 1 target?") && page.body.contains("r/make"), "{page:?}");
    assert!(page.body.contains("another instance") && page.body.contains("does not exist"), "{page:?}");
    let page = send(SELECTION, "retry", &["sandbox/a a-uid", "sandbox/b b-uid"]).await;
    assert!(page.is(200).body.contains("Retry 1 target?") && page.body.contains("No unit has failed"), "{page:?}");
    // Wrong forms change nothing.
    let many: Vec<String> = (0..101).map(|number| format!("sandbox/t{number} u")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let wrong: [(&str, &[&str]); 4] =
        [("drop", &["sandbox/a a-uid"]), ("delete", &[]), ("delete", &["a"]), ("delete", &many)];
    for (action, targets) in wrong {
        send(CONFIRMED, action, targets).await.is(400);
    }
    for form in ["", "other"] {
        let fields = [("form", form), ("action", "delete"), ("target", "sandbox/a a-uid")];
        browser.post(CONFIRMED, Some(&own), &fields).await.is(403);
    }
    browser.get(SELECTION).await.leads_to("/console");
    let token = create(&harness, "ann", &["read", "targets:write:own"]).await.token;
    let ann = Browser::signed_in(&harness, &token).await;
    let of_ann = ann.get("/console").await.field("form");
    let fields = [("form", of_ann.as_str()), ("action", "delete"), ("target", "sandbox/a a-uid")];
    for (path, shown) in [(SELECTION, "Nothing to delete"), (CONFIRMED, "Delete: 0 of 1 target accepted")] {
        let page = ann.post(path, Some(&own), &fields).await;
        assert!(page.is(200).body.contains(shown) && page.body.contains("belongs to"), "{page:?}");
    }
    let token = create(&harness, "reader", &["read"]).await.token;
    let reader = Browser::signed_in(&harness, &token).await;
    let list = reader.get("/console").await;
    assert!(!list.body.contains("checkbox"), "{list:?}");
    let of_reader = list.field("form");
    let fields = [("form", of_reader.as_str()), ("action", "delete"), ("target", "sandbox/a a-uid")];
    reader.post(CONFIRMED, Some(&own), &fields).await.is(403);
    // Each target has its own outcome.
    harness.receiver.always("POST /make", 200);
    let page = send(CONFIRMED, "retry", &["sandbox/a a-uid", "sandbox/b b-uid"]).await;
    assert!(page.is(200).body.contains("Retry: 1 of 2 targets accepted"), "{page:?}");
    harness.phase("b", TargetState::Ready).await;
    let page = send(CONFIRMED, "delete", &["sandbox/a other", "sandbox/b b-uid"]).await;
    assert!(page.is(200).body.contains("Delete: 1 of 2 targets accepted"), "{page:?}");
    harness.phase("b", TargetState::Gone).await;
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetState::Ready);
}

/// A retry repeats units of the run that the page has shown. A target that was deleted since then has another one.
pub(crate) async fn a_retry_repeats_what_its_page_has_shown() {
    const RETRY: &str = "/console/targets/sandbox/a/retry";
    const CONFIRMED: &str = "/console/selection/confirmed";
    let harness = Harness::simple().await;
    harness.receiver.always("POST /make", 500);
    harness.receiver.always("POST /drop", 400);
    harness.create("a", "simple").await;
    harness.phase("a", TargetState::Failed).await;
    let browser = Browser::operator(&harness).await;
    let page = browser.get(RETRY).await;
    let [form, uid, run] = ["form", "uid", "run"].map(|name| page.is(200).field(name));
    assert_eq!(run, run_id("a", Hook::PreStart).to_string());
    let send = async |path: &str, fields: &[(&str, &str)]| {
        let fields: Vec<(&str, &str)> =
            std::iter::once(("form", form.as_str())).chain(fields.iter().copied()).collect();
        browser.post(path, Some(&browser.base), &fields).await
    };
    let selected = format!("sandbox/a {uid}");
    let page = send("/console/selection", &[("action", "retry"), ("target", selected.as_str())]).await;
    let shown = page.is(200).field("target");
    assert_eq!(shown, format!("{selected} {run}"));
    send(DELETE, &[("uid", uid.as_str())]).await.leads_to("/console/targets/sandbox/a");
    harness.phase("a", TargetState::Stuck).await;
    let drops = harness.receiver.count("POST /drop");
    let reply = send(RETRY, &[("uid", uid.as_str()), ("run", run.as_str())]).await;
    assert!(reply.is(409).body.contains("other units would run: open it again"), "{reply:?}");
    for (action, reason) in
        [("retry", "other units would run"), ("delete", "has begun already, and has failed: retry it")]
    {
        let reply = send(CONFIRMED, &[("action", action), ("target", shown.as_str())]).await;
        assert!(reply.is(200).body.contains("0 of 1 target accepted") && reply.body.contains(reason), "{reply:?}");
    }
    assert_eq!(harness.receiver.count("POST /drop"), drops);
    harness.receiver.always("POST /drop", 200);
    let page = browser.get(RETRY).await;
    assert!(page.is(200).body.contains("The teardown continues"), "{page:?}");
    let run = page.field("run");
    send(RETRY, &[("uid", uid.as_str()), ("run", run.as_str())]).await.leads_to("/console/targets/sandbox/a");
    harness.phase("a", TargetState::Gone).await;
}

/// An event that is tried shows its effect, and has none.
pub(crate) async fn an_event_is_tried_without_effect() {
    const PAGE: &str = "/console/sources/s";
    let harness = Harness::new().await;
    let rest = r##"
verify: {bearer: {secret: S}}
id: "${body.id}"
target: {kind: sandbox, name: "pr-${body.number}"}
document: {ttl: 1h, labels: {title: "${body.title}", agent: "${headers['x-agent']}"}}
events:
  - {when: "${body.action == 'closed'}", delete: {}}
  - {when: "${body.action == 'opened'}", time: "${body.time}", apply: {}}
"##;
    harness.put("Source", "s", rest).await.is(200);
    let browser = Browser::operator(&harness).await;
    let (form, own) = (browser.get(PAGE).await.field("form"), browser.base.clone());
    let tried = async |headers: &str, payload: &str| {
        let fields = [("form", form.as_str()), ("headers", headers), ("payload", payload)];
        browser.post(PAGE, Some(&own), &fields).await
    };
    let event = |action: &str| {
        let title = "<script>alert(1)</script>";
        let time = "2026-01-01T00:00:00Z";
        json!({"action": action, "number": 7, "title": title, "id": "d-1", "time": time}).to_string()
    };
    let cases: [(&str, String, &[&str]); 6] = [
        (
            "X-Agent: tester",
            event("opened"),
            &[
                "Entry 1 does not hold",
                "Entry 2 holds",
                "<strong>apply</strong>",
                "/console/targets/sandbox/pr-7",
                "<code>d-1</code>",
                "2026-01-01T00:00:00.000Z",
                "agent: tester",
                "&lt;script&gt;alert(1)",
            ],
        ),
        ("", event("closed"), &["Entry 1 holds", "<strong>delete</strong>", "sandbox/pr-7"]),
        ("", event("labeled"), &["<strong>ignored</strong>: no entry holds"]),
        ("", event("opened"), &["<strong>rejected</strong>", "Entry 2 fails"]),
        ("", "{".to_owned(), &["the body is not JSON"]),
        ("no header", event("opened"), &["is not a header: write NAME: VALUE"]),
    ];
    for (headers, payload, shown) in cases {
        let page = tried(headers, &payload).await;
        for text in shown {
            assert!(page.is(200).body.contains(text), "{text}: {page:?}");
        }
        assert!(!page.body.contains("<script>alert"), "{page:?}");
    }
    assert!(harness.target("pr-7").await.is_none());
    assert!(browser.get(PAGE).await.body.contains("None."), "no event is rejected");
    browser.post(PAGE, Some(&own), &[("payload", "{}")]).await.is(403);
    let token = create(&harness, "reader", &["read"]).await.token;
    let reader = Browser::signed_in(&harness, &token).await;
    let form = reader.get("/console").await.field("form");
    reader.post(PAGE, Some(&own), &[("form", form.as_str()), ("payload", "{}")]).await.is(403);
}

pub(crate) async fn pages_have_their_headers() {
    let harness = Harness::new().await;
    let browser = Browser::operator(&harness).await;
    let page = browser.get("/console").await;
    let asset = page.body.split("href=\"").find(|rest| rest.starts_with("/console/assets/console-")).unwrap();
    let asset = asset.split('"').next().unwrap();
    let style = browser.get(asset).await;
    assert!(style.is(200).header("cache-control").contains("immutable"), "{style:?}");
    assert_eq!(style.header("content-type"), "text/css; charset=utf-8");
    let stranger = Browser::new(&browser.base);
    for (browser, path, status) in [
        (&browser, "/console", 200),
        (&browser, "/console/targets/sandbox/none", 404),
        (&browser, "/console/nothing", 404),
        (&browser, "/console?phase=none", 400),
        (&browser, "/console/runs/none", 400),
        (&browser, "/console/assets/none.js", 404),
        (&browser, "/", 303),
        (&stranger, asset, 200),
        (&stranger, "/console/sign-in", 200),
        (&stranger, "/console/targets/sandbox/a", 303),
    ] {
        let reply = browser.get(path).await;
        let policy = reply.is(status).header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; ") && policy.contains("frame-ancestors 'none'"), "{path}");
        assert!(policy.contains("base-uri 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(reply.header(name), value, "{path}");
        }
        if path != asset {
            assert_eq!(reply.header("cache-control"), "private, no-store", "{path}");
        }
    }
}

/// The link of `ebb dev` signs in the first browser that opens it. It is in memory only.
pub(crate) async fn a_link_signs_in_once() {
    let mut harness = Harness::new().await;
    let url = harness.stack().sign_in_url();
    let (path, own) = (url.strip_prefix(harness.stack().url()).unwrap().to_owned(), harness.url(""));
    let mut browser = Browser::new(&own);
    for wrong in [&path[..path.len() - 1], &format!("{path}A"), "/console/sign-in?code=A"] {
        assert!(browser.get(wrong).await.is(401).header("set-cookie").is_empty());
    }
    // A check of the link and a fetch in advance do not use it.
    let url = format!("{own}{path}");
    for early in [browser.http.head(&url), browser.http.get(&url).header("sec-purpose", "prefetch;prerender")] {
        let reply = browser.send(early).await;
        assert!(reply.is(503).header("set-cookie").is_empty(), "{reply:?}");
    }
    let reply = browser.get(&path).await;
    reply.leads_to("/console");
    browser.cookie = reply.header("set-cookie").split(';').next().unwrap().to_owned();
    assert!(browser.get("/console").await.is(200).body.contains("role operator"));
    let again = Browser::new(&own).get(&path).await;
    assert!(again.is(401).header("set-cookie").is_empty(), "{again:?}");
    // The browser that is signed in opens it again.
    let again = browser.get(&format!("{path}&next=%2Fconsole%2Fwaiting")).await;
    again.leads_to("/console/waiting");
    assert!(again.header("set-cookie").is_empty(), "{again:?}");
    // The holder of the token gets other links, and other callers get none.
    let token = create(&harness, "op", &["operate"]).await.token;
    let link = async |token: &str| {
        let request = browser.http.post(format!("{own}/console/sign-in/link")).bearer_auth(token);
        browser.send(request).await
    };
    for other in ["", "x", token.as_str()] {
        assert!(!link(other).await.is(401).body.contains("code="));
    }
    let mut links = Vec::new();
    for _ in 0..17 {
        links.push(link(harness.stack().token()).await.is(200).body.clone());
    }
    // The oldest of too many is not valid any more.
    Browser::new(&own).get(&links[0]).await.is(401);
    Browser::new(&own).get(&links[16]).await.leads_to("/console");
    Browser::new(&own).get(&links[16]).await.is(401);
    let code = path.split_once("code=").unwrap().1.to_owned();
    assert!(!stored(&harness.folder().join("state")).values().any(|bytes| contains(bytes, code.as_bytes())));
    // The session outlives a restart, and another link is made.
    harness.restart().await;
    assert_ne!(harness.stack().sign_in_url().split_once("code=").unwrap().1, code);
    browser.base = harness.url("");
    browser.get("/console").await.is(200);
}

pub(crate) async fn a_sign_in_leads_to_a_local_page() {
    let harness = Harness::new().await;
    let browser = Browser::new(harness.stack().url());
    let (own, token) = (browser.base.clone(), harness.stack().token());
    for (next, expected) in [
        ("/console/targets/sandbox/a?x=1", "/console/targets/sandbox/a?x=1"),
        ("//evil.example", "/console"),
        ("/\\evil.example", "/console"),
        ("https://evil.example/console", "/console"),
        ("javascript:alert(1)", "/console"),
        ("/console/\r\nset-cookie: a=b", "/console"),
        ("/v1/targets", "/console"),
    ] {
        let reply = browser.post("/console/sign-in", Some(&own), &[("token", token), ("next", next)]).await;
        reply.leads_to(expected);
        assert_eq!(reply.headers.get_all("set-cookie").iter().count(), 1, "{reply:?}");
    }
    // Another site cannot sign a browser in.
    for origin in [None, Some("https://evil.example")] {
        let reply = browser.post("/console/sign-in", origin, &[("token", token)]).await;
        assert!(reply.is(403).header("set-cookie").is_empty(), "{reply:?}");
    }
    for wrong in ["", "x", "ebbt_aaaaaaaaaaaaaaaa_x", &"x".repeat(20_000)] {
        let reply = browser.post("/console/sign-in", Some(&own), &[("token", wrong)]).await;
        assert!(reply.is(401).header("set-cookie").is_empty(), "{reply:?}");
    }
    let hostile = browser.get("/console/sign-in?next=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E").await;
    assert!(!hostile.is(200).body.contains("<script>alert"), "{hostile:?}");
}

/// Names, labels, outputs and logs are text in each page.
pub(crate) async fn hostile_texts_stay_text() {
    const HOSTILE: &str = "\"><script>alert(1)</script>";
    let harness = Harness::new().await;
    let plugin = r##"
runners: {sh: {image: "busybox:1"}}
preStart:
  make:
    pod:
      runner: sh
      script: |
        #!/bin/sh -eu
        printf '\033[31m"><script>alert(1)</script>\033]8;;javascript:alert(2)\007link\033]8;;\007\n'
        printf '"><script>alert(1)</script>' >/tmp/out
    outputs: {out: {file: /tmp/out}}
outputs: {out: "${units.make.outputs.out}"}
"##;
    harness.publish("hostile@1.0.0", plugin).await;
    let document = json!({
        "apiVersion": "ebb.dev/v1", "kind": "Sandbox", "name": "a", "labels": {"team": HOSTILE},
        "resources": {"r": {"plugin": "hostile"}},
    });
    let data = LifecycleData { document: Some(document.to_string()), ..sandbox("a", "a-uid", "hostile") };
    harness.lifecycle(LifecycleType::Created, &data).await.is(202);
    harness.phase("a", TargetState::Ready).await;
    // The name of a target that is deleted before it is created is in no document.
    let never = LifecycleData { document: None, ..sandbox("\"><b>'x", "b-uid", "none") };
    harness.lifecycle(LifecycleType::Deleted, &never).await.is(202);
    let browser = Browser::operator(&harness).await;
    let run = run_id("a", Hook::PreStart);
    for (path, shown) in [
        ("/console".to_owned(), "&lt;script&gt;alert(1)"),
        ("/console/targets/sandbox/a".to_owned(), "&lt;script&gt;alert(1)"),
        ("/console/targets/sandbox/%22%3E%3Cb%3E%27x".to_owned(), "&quot;&gt;&lt;b&gt;"),
        (format!("/console/runs/{run}/log?unit=r%2Fmake"), "&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;link"),
        (format!("/console/runs/{run}/rendered?unit=r%2Fmake"), "&lt;script&gt;alert(1)&lt;/script&gt;"),
    ] {
        let page = browser.get(&path).await;
        assert!(page.is(200).body.contains(shown), "{path}: {page:?}");
        for code in ["<script>alert", "<b>", "\u{1b}", "\"javascript:"] {
            assert!(!page.body.contains(code), "{path}: {code} in {page:?}");
        }
    }
}

pub(crate) async fn a_page_without_news_is_not_sent_again() {
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    harness.notification_accepted("a").await;
    at_rest(&harness, "a").await;
    let browser = Browser::operator(&harness).await;
    // A watch that has begun gives out no number for 10 s.
    browser.get("/console").await.is(200);
    let again = async |path: &str, tag: &str| browser.again(path, tag).await;
    for path in ["/console", "/console/targets/sandbox/a", "/console/plugins", "/console/waiting"] {
        let page = browser.get(path).await;
        let tag = page.is(200).header("etag").to_owned();
        for known in [tag.clone(), tag.replace("W/", ""), format!("\"x\", {tag}")] {
            let same = again(path, &known).await;
            assert!(same.is(304).body.is_empty() && same.header("etag") == tag, "{same:?}");
        }
        again(path, "\"x\"").await.is(200);
    }
    let list = browser.get("/console").await;
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    // Open pages share a list for a second.
    until("the list without the target", async || {
        (browser.again("/console", list.header("etag")).await.status == 200).then_some(())
    })
    .await;
}

/// An open page of a log gets the lines that it does not have. The log is also a file of plain text.
pub(crate) async fn a_log_is_sent_by_its_new_lines() {
    const PLUGIN: &str = r##"
runners: {sh: {image: "busybox:1"}}
preStart:
  make:
    pod:
      runner: sh
      script: |
        #!/bin/sh -eu
        printf 'one\n\033[31mtwo\033[0m\n<b>three\n'
"##;
    let harness = Harness::new().await;
    harness.publish("log@1.0.0", PLUGIN).await;
    harness.ready("a", "log").await;
    let browser = Browser::operator(&harness).await;
    let run = run_id("a", Hook::PreStart);
    let path = format!("/console/runs/{run}/log?unit=r%2Fmake");
    let page = browser.get(&path).await;
    assert!(page.body.contains("one\ntwo\n&lt;b&gt;three\n</pre>") && !page.body.contains("data-appends"), "{page:?}");
    let mark = attribute(&page, "data-mark");
    let more = browser.get(&format!("{path}&after={mark}")).await;
    assert!(more.body.contains("data-appends>\n</pre>") && !more.body.contains("\ntwo"), "{more:?}");
    assert_eq!(attribute(&more, "data-mark"), mark);
    browser.again(&format!("{path}&after={mark}"), more.header("etag")).await.is(304);
    let whole = browser.get(&format!("{path}&after=4-x")).await;
    assert!(whole.body.contains("one\ntwo") && !whole.body.contains("data-appends"), "{whole:?}");
    let file = browser.get(&format!("/console/runs/{run}/log.txt?unit=r%2Fmake&attempt=1")).await;
    assert_eq!(
        (file.is(200).body.as_str(), file.header("content-type")),
        ("one\ntwo\n<b>three\n", "text/plain; charset=utf-8")
    );
    assert_eq!(file.header("content-disposition"), "attachment; filename=\"log.txt\"");
    assert!(page.body.contains(&format!("/console/runs/{run}/log.txt?unit=r%2Fmake&amp;attempt=1")), "{page:?}");
    browser.get(&format!("/console/runs/{run}/log.txt?unit=r%2Fnone")).await.is(404);
}

/// The page of a log that does not exist says why, and asks again.
pub(crate) async fn a_page_waits_for_its_log() {
    const PLUGIN: &str = r##"
runners: {sh: {image: "busybox:1"}}
preStart:
  make: {retry: {attempts: 1}, webhook: {url: "RECEIVER/make"}}
  seed: {after: make, cleanup: none, pod: {runner: sh, script: "#!/bin/sh\necho seeded\n"}}
  never: {when: "${false}", cleanup: none, pod: {runner: sh, script: "#!/bin/sh\necho never\n"}}
postStop:
  drop: {undoes: make, webhook: {url: "RECEIVER/drop"}}
"##;
    let harness = Harness::new().await;
    harness.publish("log@1.0.0", PLUGIN).await;
    let browser = Browser::operator(&harness).await;
    let log = |name: &str, unit: &str| format!("/console/runs/{}/log?unit=r%2F{unit}", run_id(name, Hook::PreStart));
    // The receiver of the first target reports no result.
    harness.receiver.always("POST /make", 202);
    harness.create("a", "log").await;
    for (unit, reason) in [("make", "the unit has written nothing yet"), ("seed", "the unit has not started")] {
        until(reason, async || {
            let page = browser.get(&log("a", unit)).await;
            (page.status == 200 && page.body.contains(&format!("The log does not exist: {reason}."))).then_some(())
        })
        .await;
    }
    // A request that cannot be rendered yet is asked for again, and one that will never be there is not.
    for (unit, status) in [("seed", 409), ("none", 404)] {
        let page = browser.get(&log("a", unit).replace("/log?", "/rendered?")).await;
        assert_eq!(page.is(status).body.contains("data-renew-seconds=\"15\""), status == 409, "{page:?}");
    }
    harness.receiver.always("POST /make", 500);
    harness.create("b", "log").await;
    harness.phase("b", TargetState::Failed).await;
    for (unit, reason) in [
        ("make", "the attempt has ended without one"),
        ("seed", "the run has ended without a result of the unit"),
        ("never", "the attempt has ended without one"),
    ] {
        let page = browser.get(&log("b", unit)).await;
        assert!(page.is(200).body.contains(&format!("The log does not exist: {reason}.")), "{page:?}");
        assert!(page.body.contains("data-renew-seconds") && !page.body.contains("log.txt"), "{page:?}");
        browser.get(&log("b", unit).replace("/log?", "/log.txt?")).await.is(404);
    }
    let page = browser.get(&format!("{}&attempt=2", log("b", "make"))).await;
    assert!(page.is(404).body.contains("r/make has no attempt 2; its last attempt is 1"), "{page:?}");
    let page = browser.get(&log("b", "other")).await;
    assert!(page.is(404).body.contains("has no unit r/other"), "{page:?}");
    harness.receiver.always("POST /make", 200);
    harness.post("/v1/targets/sandbox/b/retry", json!({})).await.is(202);
    harness.phase("b", TargetState::Ready).await;
    let page = browser.get(&log("b", "seed")).await;
    assert!(page.is(200).body.contains("seeded\n</pre>"), "{page:?}");
    for of_attempt in ["/log?", "/rendered?"] {
        let page = browser.get(&format!("{}&attempt=1", log("b", "make").replace("/log?", of_attempt))).await;
        assert!(page.is(200).body.contains(", the last one</a>"), "{page:?}");
    }
}

/// A compressed page has the tag of the same page without compression, and another form token. A secret is not compressed.
pub(crate) async fn responses_are_compressed() {
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    harness.notification_accepted("a").await;
    at_rest(&harness, "a").await;
    let browser = Browser::operator(&harness).await;
    let compressed = async |request: reqwest::RequestBuilder| {
        let request = request.header(header::ACCEPT_ENCODING, "br, gzip");
        let response = request.header(header::COOKIE, &browser.cookie).send().await.unwrap();
        let headers = response.headers().clone();
        (headers, response.bytes().await.unwrap())
    };
    let get = async |path: &str| compressed(browser.http.get(format!("{}{path}", browser.base))).await;
    let inflated = |bytes: &[u8]| {
        assert_eq!(bytes[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, bytes[8], 255], "no header of gzip");
        String::from_utf8(miniz_oxide::inflate::decompress_to_vec(&bytes[10..]).unwrap()).unwrap()
    };
    const TARGET: &str = "/console/targets/sandbox/a";
    let page = browser.get(TARGET).await;
    let (headers, bytes) = get(TARGET).await;
    assert!(headers["content-encoding"] == "gzip" && headers["vary"] == "accept-encoding", "{headers:?}");
    assert_eq!((page.header("etag"), page.header("content-encoding")), (headers["etag"].to_str().unwrap(), ""));
    assert!(bytes.len() * 2 < page.body.len(), "{} of {} bytes", bytes.len(), page.body.len());
    let (form, text) = (page.field("form"), inflated(&bytes));
    assert!(text.contains("sandbox/a") && !text.contains(&form) && text.len() == page.body.len(), "{text}");
    assert_eq!(browser.again(TARGET, page.header("etag")).await.status, 304);
    for path in [page.body.split('"').find(|part| part.ends_with(".css")).unwrap(), "/v1/openapi.json"] {
        let (headers, bytes) = get(path).await;
        assert!(headers["content-encoding"] == "gzip" && inflated(&bytes).len() > 2 * bytes.len(), "{path}");
    }
    let scopes: Vec<String> =
        (0..50).map(|number| format!("plugins:write:a-plugin-with-a-long-name-{number}")).collect();
    let url = format!("{}/v1/tokens", browser.base);
    let request = browser.http.post(url).bearer_auth(harness.stack().token());
    let (headers, bytes) = compressed(request.json(&json!({"name": "long", "scopes": scopes}))).await;
    assert!(bytes.len() > 2_000 && bytes.starts_with(b"{") && !headers.contains_key("content-encoding"), "{headers:?}");
}

/// Returns the value of an attribute of `main`.
#[track_caller]
fn attribute(page: &PageReply, name: &str) -> String {
    let (_, rest) = page.is(200).body.split_once(&format!("{name}=\"")).expect("the page has the attribute");
    rest.split('"').next().unwrap().to_owned()
}

/// Waits until the last run of a sandbox is closed.
async fn at_rest(harness: &Harness, name: &str) {
    let run = run_id(name, Hook::PreStart);
    until("the end of the run", async || {
        let root = harness.stack().store().read_root(&run).await.unwrap()?;
        (root.head.phase == RunPhase::Closed).then_some(())
    })
    .await;
}

/// A question costs at most a read unit, one for the session, and one for its token.
pub(crate) async fn an_open_page_without_news_costs_little() {
    const POLLS: u32 = 20;
    const LEAST: f64 = 2.0 * POLLS as f64;
    const MOST: f64 = 3.0 * POLLS as f64;
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    at_rest(&harness, "a").await;
    let token = create(&harness, "viewer", &["read"]).await.token;
    let watcher = Watcher::start(&harness).await;
    let browser = Browser::signed_in_at(&watcher.url, &token).await;
    browser.get("/console").await.is(200);
    watcher.clock.advance(15_000);
    for path in ["/console", "/console/waiting"] {
        let since = attribute(&browser.get(path).await, "data-since");
        watcher.meter.take();
        for _ in 0..POLLS {
            watcher.clock.advance(15_000);
            let answer = browser.get(&format!("/console/changes?since={since}")).await;
            let answer: Value = serde_json::from_str(&answer.is(200).body).unwrap();
            assert_eq!(answer, json!({"seq": since, "reload": false, "targets": []}));
        }
        let usage = watcher.meter.take();
        assert!((LEAST..=MOST).contains(&usage.read_units), "{path}: {usage:?}");
    }
    const TARGET: &str = "/console/targets/sandbox/a";
    let page = browser.get(TARGET).await;
    let stamp = format!("W/\"{}.\"", attribute(&page, "data-stamp"));
    watcher.meter.take();
    for tag in [page.header("etag"), stamp.as_str()].into_iter().cycle().take(20) {
        watcher.clock.advance(15_000);
        assert_eq!(browser.again(TARGET, tag).await.is(304).header("etag"), tag);
    }
    let usage = watcher.meter.take();
    assert!((LEAST..=MOST).contains(&usage.read_units), "{usage:?}");
    // Without the stamp, the page is rendered. The rest of its tag shows that it is the same.
    let content = page.header("etag").split_once('.').map(|(_, content)| format!("\"{content}")).unwrap();
    browser.again(TARGET, &content).await.is(304);
    assert!(watcher.meter.take().read_units > 3.0);
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    watcher.clock.advance(15_000);
    assert!(browser.again(TARGET, page.header("etag")).await.is(200).body.contains("gone"));
}

/// The questions of open pages share their reads, too, see `polls_without_news_share_half_a_read_unit`.
pub(crate) async fn many_open_pages_share_their_reads() {
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    at_rest(&harness, "a").await;
    let watcher = Watcher::start(&harness).await;
    let mut browsers = Vec::new();
    for name in ["ann", "bob", "cat", "dan"] {
        let token = create(&harness, name, &["read"]).await.token;
        browsers.push(Browser::signed_in_at(&watcher.url, &token).await);
    }
    for browser in &browsers {
        browser.get("/console").await.is(200);
    }
    watcher.clock.advance(15_000);
    browsers[0].get("/console").await.is(200);
    // Each session is checked before it gets a page. The lists, and what the page of a target shows, are read once.
    for path in ["/console", "/console/targets/sandbox/a"] {
        let mut costs = Vec::new();
        for count in [1, 40] {
            watcher.clock.advance(1_500);
            watcher.meter.take();
            for browser in browsers.iter().cycle().take(count) {
                browser.again(path, "\"none.\"").await.is(200);
            }
            costs.push(watcher.meter.take().read_units);
        }
        let [one, many] = costs[..] else { panic!("{costs:?}") };
        // The session and its token.
        assert!(many <= one + 2.0 * 39.0, "{path}: {one} and {many}");
    }
}

/// Open pages get news also after the clock was set back, and nothing after the end of their session.
pub(crate) async fn an_ended_session_gets_no_news() {
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    harness.notification_accepted("a").await;
    at_rest(&harness, "a").await;
    let token = create(&harness, "ci", &["read"]).await.token;
    let watcher = Watcher::start(&harness).await;
    let browser = Browser::signed_in_at(&watcher.url, &token).await;
    let mut open = Vec::new();
    for path in ["/console", "/console/targets/sandbox/a"] {
        let tag = browser.get(path).await.is(200).header("etag").to_owned();
        browser.again(path, &tag).await.is(304);
        open.push((path, tag));
    }
    watcher.clock.turn_back(3_600_000);
    harness.delete("a").await;
    harness.phase("a", TargetState::Gone).await;
    watcher.clock.advance(1_500);
    for (path, tag) in &mut open {
        *tag = browser.again(path, tag).await.is(200).header("etag").to_owned();
    }
    harness.request(Method::DELETE, "/v1/tokens/ci", None).await.is(204);
    browser.get("/console/changes?since=0").await.is(303);
    for (path, tag) in open {
        let next = path.replace('/', "%2F");
        browser.again(path, &tag).await.leads_to(&format!("/console/sign-in?next={next}"));
    }
}

/// The cookie and the token are in no file of the server.
pub(crate) async fn the_table_has_no_session_id() {
    let harness = Harness::new().await;
    let browser = Browser::operator(&harness).await;
    let other = Browser::operator(&harness).await;
    assert_ne!(browser.id(), other.id());
    let stored = stored(&harness.folder().join("state"));
    let has = |text: &str| stored.values().any(|bytes| contains(bytes, text.as_bytes()));
    let digest = ebb_protocol::session::SessionId::parse(browser.id()).unwrap().digest();
    assert!(has(&digest) && !has(browser.id()));
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

pub(crate) async fn every_page_is_shown() {
    let harness = Harness::simple().await;
    harness.ready("a", "simple").await;
    let rest = "preset: github\ndocument: {ttl: 1h}\n";
    harness.put("Source", "s", rest).await.is(200);
    harness.put("Subscription", "n", "on: [ready]\nto: {slack: {secret: S}}\n").await.is(200);
    let browser = Browser::operator(&harness).await;
    let run = run_id("a", Hook::PreStart);
    for (path, shown) in [
        ("/console".to_owned(), "sandbox/a"),
        ("/console?plugin=simple&q=A".to_owned(), "sandbox/a"),
        ("/console?phase=ready".to_owned(), "sandbox/a"),
        ("/console?phase=gone".to_owned(), "None."),
        ("/console?label=team%3Dx".to_owned(), "None."),
        ("/console/targets/sandbox/a".to_owned(), "ready since"),
        (format!("/console/runs/{run}"), "r/make"),
        (format!("/console/runs/{run}/rendered?unit=r%2Fmake"), "/make"),
        ("/console/plugins".to_owned(), "simple@1.0.0"),
        ("/console/plugins/simple/latest".to_owned(), "preStart"),
        ("/console/plugins/simple?from=1.0.0&to=latest".to_owned(), "The documents are equal"),
        ("/console/sources".to_owned(), "/console/sources/s"),
        ("/console/sources/s".to_owned(), "preset: github"),
        ("/console/subscriptions".to_owned(), "slack"),
        ("/console/subscriptions/n".to_owned(), "slack"),
        ("/console/clusters".to_owned(), "Clusters"),
        ("/console/waiting".to_owned(), "Stuck"),
    ] {
        let page = browser.get(&path).await;
        assert!(page.is(200).body.contains(shown), "{path}: {page:?}");
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    }
    let log = format!("/console/runs/{run}/log");
    let wrong_log = format!("{log}?unit=r%2Fmake&attempt=x");
    for (path, status, shown) in [
        ("/console/none", 404, "no page has this address"),
        ("/console/sign-out", 405, "/console/sign-out does not accept GET"),
        (wrong_log.as_str(), 400, "a query parameter is missing or wrong: "),
        (log.as_str(), 400, "missing field `unit`"),
    ] {
        let page = browser.get(path).await;
        assert!(page.is(status).body.contains(shown), "{path}: {page:?}");
    }
    browser.get("/console/").await.leads_to("/console");
    for path in ["targets/sandbox/b", "plugins/none/latest", "sources/none", "subscriptions/none", "clusters/none"] {
        let page = browser.get(&format!("/console/{path}")).await;
        assert!(page.is(404).body.contains("Not Found"), "{page:?}");
    }
}

/// A page of a plugin shows its parameters, all versions with their targets, and what two versions have different.
pub(crate) async fn versions_of_a_plugin_are_compared() {
    let harness = Harness::new().await;
    harness.publish("db@1.0.0", SIMPLE).await;
    harness.ready("a", "db@1.0.0").await;
    let params =
        "params:\n  size: {type: integer, default: 5, description: \"<b>gigabytes</b>\"}\n  zone: {type: string}\n";
    harness.publish("db@2.0.0", &format!("{params}{SIMPLE}")).await;
    harness.request(Method::DELETE, "/v1/plugins/db/versions/1.0.0", None).await.is(204);
    let browser = Browser::operator(&harness).await;
    browser.get("/console/plugins/db").await.leads_to("/console/plugins/db/latest");
    let page = browser.get("/console/plugins/db/latest").await;
    for shown in [
        "<td>integer</td><td><code>5</code></td><td>&lt;b&gt;gigabytes&lt;/b&gt;</td>",
        "<td>string</td><td>required</td>",
        "published, default",
        "withdrawn at ",
        "href=\"/console?plugin=db%401.0.0\">1</a>",
        "href=\"/console?plugin=db%402.0.0\">0</a>",
        "<option value=\"1.0.0\" selected>",
    ] {
        assert!(page.is(200).body.contains(shown), "{shown}: {page:?}");
    }
    let page = browser.get("/console/plugins/db?from=1.0.0&to=2.0.0").await;
    for shown in ["<ins>+params:</ins>", "<del>-name: db@1.0.0</del>", "&lt;b&gt;gigabytes"] {
        assert!(page.is(200).body.contains(shown), "{shown}: {page:?}");
    }
    assert!(!page.body.contains("<b>"), "{page:?}");
    browser.get("/console/plugins/db?from=1.0.0&to=3.0.0").await.is(404);
    // One version is compared with the highest other one, which is not withdrawn.
    for query in ["from=1.0.0", "to=1.0.0", "from=1.0.0&to="] {
        let page = browser.get(&format!("/console/plugins/db?{query}")).await;
        assert!(page.is(200).body.contains("<ins>+name: db@2.0.0</ins>"), "{query}: {page:?}");
    }
    let page = browser.get("/console/plugins/db?from=2.0.0").await;
    assert!(page.is(404).body.contains("plugin db has no other version than 2.0.0"), "{page:?}");
    // A caller who may not read targets learns no number of them.
    let token = create(&harness, "author", &["plugins:write"]).await.token;
    let author = Browser::signed_in(&harness, &token).await;
    let page = author.get("/console/plugins/db/2.0.0").await;
    assert!(page.is(200).body.contains("withdrawn at") && !page.body.contains("plugin=db%401.0.0\">1"), "{page:?}");
}
