//! The sign-in to the console at an issuer: a local issuer with all its endpoints, and answers that were not asked for.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ebb_api::OidcIssuers;
use ebb_local::DevIssuer;
use ebb_protocol::session::{PendingSignIn, SessionId};
use ebb_store::{SessionBasis, SessionItem, Store};
use serde::de::DeserializeOwned;
use url::{Url, form_urlencoded};

use super::identity_tokens::issuer;
use crate::harness::*;
use crate::request_table::table;

const AUDIENCE: &str = "https://ebb.example.com";
const CLIENT: &str = "ebb console";
const SECRET: &str = "a:secret/of+the client";
const SIGN_IN: &str = "/console/sign-in?next=%2Fconsole%2Ftargets%2Fsandbox%2Fa";

/// An issuer whose person approves each request.
struct PeopleIssuer {
    server: TestReceiver,
    url: String,
    state: Arc<DevIssuer>,
}

/// Returns rows of the file of this module.
fn rows<T: DeserializeOwned>(name: &str, names: &[(&str, &str)]) -> Vec<T> {
    table("security/issuer_sign_in.yaml", name, names)
}

/// Returns the discovery document of an issuer with another member.
fn discovery(url: &str, member: &str, value: Value) -> Value {
    let mut document: Value = rows("discovery", &[("ISSUER", url)]).remove(0);
    document[member] = value;
    document
}

fn form(call: &ReceivedCall) -> BTreeMap<String, String> {
    form_urlencoded::parse(call.body.as_str().unwrap_or_default().as_bytes()).into_owned().collect()
}

impl PeopleIssuer {
    async fn start(names_issuer: bool) -> Self {
        let member = "authorization_response_iss_parameter_supported";
        let server = issuer(vec![], |url| discovery(url, member, names_issuer.into())).await;
        let (url, state) = (server.url().to_owned(), Arc::new(DevIssuer::new(server.url())));
        server.always("GET /keys", state.keys());
        let issuer = Self { server, url, state };
        issuer.claim(json!({}));
        issuer
    }

    /// The endpoint of OpenID Connect Core 5.3.
    fn serve_user_info(&self, status: u16, body: Value) {
        self.server.on("GET /userinfo", move |call, _| match call.header("authorization") {
            "Bearer of-the-person" => CannedReply::status(status).with(body.clone()),
            _ => CannedReply::status(403),
        });
    }

    /// Approves an authorization request. Returns the code.
    fn approve(&self, request: &Url) -> String {
        let approval: BTreeMap<_, _> = request.query_pairs().collect();
        let fixed = ["tenant", "response_type", "client_id", "scope", "code_challenge_method"];
        let fixed = fixed.map(|name| &*approval[name]);
        assert_eq!((request.path(), fixed), ("/authorize", ["a", "code", CLIENT, "openid groups", "S256"]));
        self.state.approve(&format!("{}&name=ann&groups=developers", request.query().unwrap()))
    }

    /// Serves tokens to the confidential client. These claims replace others in them. `null` removes one.
    fn claim(&self, claims: Value) {
        let state = Arc::clone(&self.state);
        // RFC 6749 encodes both parts as a form does.
        let expected = format!("Basic {}", STANDARD.encode("ebb+console:a%3Asecret%2Fof%2Bthe+client"));
        self.server.on("POST /token", move |call, _| {
            if call.header("authorization") != expected || form(call).contains_key("client_id") {
                return CannedReply::status(400).with(json!({"error": "invalid_client"}));
            }
            let response = state.token(call.body.as_str().unwrap_or_default(), &claims);
            response.map_or_else(|refusal| CannedReply::status(400).with(refusal), CannedReply::ok)
        });
    }

    fn token_for(&self, audience: &str) -> String {
        let expiry = now().0 / 1_000 + 300;
        let claims = json!({"iss": self.url, "aud": audience, "sub": "ann", "exp": expiry, "groups": ["developers"]});
        self.state.sign(&claims)
    }

    fn entry(&self) -> Value {
        rows("trusted_issuer", &[("ISSUER", self.url.as_str())]).remove(0)
    }
}

/// A stack that trusts two issuers of people. Only the first one names itself in its answers.
struct PeopleStack {
    harness: Harness,
    issuer: PeopleIssuer,
    other: PeopleIssuer,
}

impl PeopleStack {
    async fn new() -> Self {
        Self::with(|_| ()).await
    }

    /// `change` changes the entry of the first issuer.
    async fn with(change: fn(&mut Value)) -> Self {
        let (issuer, other) = (PeopleIssuer::start(true).await, PeopleIssuer::start(false).await);
        let mut entry = issuer.entry();
        change(&mut entry);
        let harness = Harness::with_issuers(&json!([entry, other.entry()])).await;
        harness.write_secrets(&json!({"EBB_CLIENT": SECRET}));
        Self { harness, issuer, other }
    }

    fn browser(&self) -> Browser {
        Browser::new(self.harness.stack().url())
    }

    /// Follows the link of the sign-in page to an issuer. Returns the authorization request.
    async fn begin(&self, browser: &mut Browser, issuer: &PeopleIssuer) -> Url {
        let page = browser.get(SIGN_IN).await;
        let shown = format!("Sign in with {}<", issuer.url);
        let (before, _) = page.is(200).body.split_once(&shown).expect("the page has a link");
        let link = before.rsplit("href=\"").next().unwrap().split('"').next().unwrap().replace("&amp;", "&");
        let reply = browser.get(&link).await;
        let cookie = reply.is(303).header("set-cookie");
        for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=600"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        browser.cookie = cookie.split(';').next().unwrap().to_owned();
        Url::parse(reply.header("location")).unwrap()
    }

    /// Signs in at the first issuer. Returns the reply to its answer.
    async fn sign_in(&self, browser: &mut Browser) -> ApiReply {
        let request = self.begin(browser, &self.issuer).await;
        let reply = browser.get(&answer(&request, &self.issuer.approve(&request), Some(&self.issuer.url))).await;
        if reply.status == 303 {
            browser.cookie = session_cookie(&reply);
        }
        reply
    }

    /// Checks that a sign-in is refused with a reason, and that no session begins.
    #[track_caller]
    fn refused(&self, reply: &ApiReply, status: u16, reason: &str) {
        assert!(reply.is(status).body.contains(reason), "{reason}: {reply:?}");
        assert!(!cookies(reply).iter().any(|cookie| is_session(cookie)), "{reply:?}");
        assert!(reply.body.contains("API token") && reply.header("content-security-policy").contains("'none'"));
    }
}

fn query(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

fn begin(issuer: &str, next: &str) -> String {
    format!("/console/sign-in/begin?{}", query(&[("issuer", issuer), ("next", next)]))
}

/// Returns the path to which an issuer sends the browser back.
fn path(state: &str, code: &str, issuer: Option<&str>) -> String {
    let mut pairs = vec![("code", code), ("state", state), ("session_state", "x")];
    pairs.extend(issuer.map(|issuer| ("iss", issuer)));
    format!("/console/sign-in/return?{}", query(&pairs))
}

/// Returns the path of the answer to an authorization request.
fn answer(request: &Url, code: &str, issuer: Option<&str>) -> String {
    let state = request.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
    path(&state, code, issuer)
}

fn cookies(reply: &ApiReply) -> Vec<String> {
    reply.headers.get_all("set-cookie").iter().map(|cookie| cookie.to_str().unwrap().to_owned()).collect()
}

/// Returns true for a cookie of a session, which is not one of a pending sign-in.
fn is_session(cookie: &str) -> bool {
    !cookie.split('=').next().unwrap().ends_with("-sign-in")
}

#[track_caller]
fn session_cookie(reply: &ApiReply) -> String {
    let sessions: Vec<String> = cookies(reply).into_iter().filter(|cookie| is_session(cookie)).collect();
    let [session] = sessions.as_slice() else { panic!("{sessions:?}") };
    assert!(session.contains("Max-Age=28800") && session.contains("HttpOnly"), "{session}");
    session.split(';').next().unwrap().to_owned()
}

/// A person has the name and the scopes that the same identity has at the API.
pub(crate) async fn a_person_signs_in_at_an_issuer() {
    let stack = PeopleStack::new().await;
    let (harness, issuer) = (&stack.harness, &stack.issuer);
    harness.publish("simple@1.0.0", SIMPLE).await;
    let mut browser = stack.browser();
    let reply = stack.sign_in(&mut browser).await;
    reply.leads_to("/console/targets/sandbox/a");
    assert!(cookies(&reply).iter().any(|cookie| !is_session(cookie) && cookie.contains("Max-Age=0")), "{reply:?}");
    // A pipeline of the same issuer and subject creates a target of the same owner.
    let body = Some(simple_request("a", ""));
    harness.with_token(&issuer.token_for(AUDIENCE), "POST /v1/targets", body).await.is(202);
    harness.phase("a", TargetPhase::Ready).await;
    harness.ready("b", "simple").await;
    let name = format!("{} ann", issuer.url);
    let page = browser.get("/console/targets").await;
    assert!(page.is(200).body.contains(&format!("<span>{name}</span>")) && page.body.contains("sandbox/b"), "{page:?}");
    browser.get("/console/clusters").await.is(403);
    for (target, title) in [("a", "Delete sandbox/a?"), ("b", "Nothing to delete")] {
        let uid = harness.target(target).await.unwrap().info.uid;
        let page = browser.get(&format!("/console/selection?action=delete&target=sandbox%2F{target}%20{uid}")).await;
        assert!(page.is(200).body.contains(title), "{page:?}");
    }
    let history: Value = harness.get("/v1/targets/sandbox/a/history").await.is(200).json();
    assert_eq!(history["entries"][0]["by"], name, "{history}");
    // Neither the claims nor the secrets are readable in the table or the log.
    let log = std::fs::read_to_string(crate::log_file()).unwrap();
    let verifier = form(&issuer.server.call("POST /token", 1).await)["code_verifier"].clone();
    for secret in ["ann@example.com", browser.cookie.split_once('=').unwrap().1, verifier.as_str()] {
        assert!(!harness.stores(secret) && !log.contains(secret), "{secret}");
    }
}

/// The rules are applied to each request. A session ends with the trust in its issuer, its client, or its last scope.
pub(crate) async fn a_session_ends_with_the_trust_in_its_issuer() {
    let stack = PeopleStack::new().await;
    let mut browser = stack.browser();
    stack.sign_in(&mut browser).await.is(303);
    let client = ApiClient::new(&stack.harness.http, &browser.base, "");
    let login: Value = client.post("/v1/login", browser.approve_login().await).await.is(201).json();
    let names = [("OTHER", stack.other.url.as_str())];
    for (pointer, value, expected) in rows::<(String, Value, (u16, u16))>("changes_of_an_issuer", &names) {
        let mut entries = json!([stack.issuer.entry()]);
        *entries.pointer_mut(&pointer).unwrap() = value;
        let tokens = ApiTokens::default().with_issuers(OidcIssuers::parse(&entries.to_string()).unwrap());
        let server = stack.harness.functions(Arc::clone(stack.harness.stack().env()), tokens);
        let mut later = Browser::new(&serve(ebb_api::all(server)).await);
        later.cookie = browser.cookie.clone();
        let found = (later.get("/console").await.status, later.get("/console/clusters").await.status);
        assert_eq!(found, expected, "{entries}");
        let of_login = ApiClient::new(&stack.harness.http, &later.base, login["token"].as_str().unwrap())
            .get("/v1/caller")
            .await
            .status;
        assert_eq!(of_login, if expected.0 == 200 { 200 } else { 401 }, "{entries}");
    }
    // The claims of one session are of no use in another one.
    let store: &Store = stack.harness.stack().store();
    let (cookie, id) = browser.cookie.split_once('=').unwrap();
    let (own, other) = (SessionId::parse(id).unwrap(), SessionId::issue([7; 4]));
    let found = store.read_session(&own.digest()).await.unwrap().unwrap();
    let SessionBasis::Identity(claims) = &found.basis else { panic!("{found:?}") };
    let copy = SessionItem { digest: other.digest(), proof: other.proof_of(claims), ..found.clone() };
    store.put_session(&copy).await.unwrap();
    let mut forged = stack.browser();
    forged.cookie = format!("{cookie}={}", other.reveal());
    assert_eq!((forged.get("/console").await.status, browser.get("/console").await.status), (303, 200));
}

/// Only the browser that has begun a sign-in can end it, once.
pub(crate) async fn answers_of_other_browsers_are_refused() {
    const REASON: &str = "this browser has not begun the sign-in";
    const RETURN: &str = "/console/sign-in/return";
    let stack = PeopleStack::new().await;
    let (mut victim, mut attacker) = (stack.browser(), stack.browser());
    let issuer = &stack.issuer;
    let answered = |request: &Url| answer(request, &issuer.approve(request), Some(&issuer.url));
    let of_attacker = stack.begin(&mut attacker, issuer).await;
    let stolen = answered(&of_attacker);
    // Login CSRF: the answer to another browser, with and without a sign-in of the own one.
    stack.refused(&victim.get(&stolen).await, 401, REASON);
    let of_victim = stack.begin(&mut victim, issuer).await;
    // The text of an answer that was not asked for is not shown.
    let text = format!("{RETURN}?error=call+5550123&state=b");
    for wrong in [stolen.as_str(), RETURN, &format!("{RETURN}?code=a&state=b"), &text] {
        let page = victim.get(wrong).await;
        stack.refused(&page, 401, REASON);
        assert!(!page.body.contains("5550123"), "{page:?}");
    }
    // The code of another sign-in does not fit the verifier, with the right state.
    let code = issuer.approve(&of_attacker);
    let injected = victim.get(&answer(&of_victim, &code, Some(&issuer.url))).await;
    stack.refused(&injected, 401, "does not accept its code any more");
    // An issuer that does not compare verifiers returns a token with another nonce.
    for nonce in [json!("another"), Value::Null] {
        issuer.claim(json!({ "nonce": nonce }));
        let request = stack.begin(&mut victim, issuer).await;
        stack.refused(&victim.get(&answered(&request)).await, 401, "the identity token is of another sign-in");
    }
    issuer.claim(json!({}));
    // A cookie with another page fits no answer.
    let own = answered(&stack.begin(&mut victim, issuer).await);
    let cookie = victim.cookie.clone();
    let (rest, _) = cookie.rsplit_once('.').unwrap();
    victim.cookie = format!("{rest}.{}", URL_SAFE_NO_PAD.encode("//evil.example"));
    stack.refused(&victim.get(&own).await, 401, REASON);
    victim.cookie = cookie;
    victim.get(&own).await.leads_to("/console/targets/sandbox/a");
    // The same answer again.
    stack.refused(&victim.get(&own).await, 401, "does not accept its code any more");
    // A browser with a session stays signed in as the same person, without a request to the issuer.
    let mut signed_in = stack.browser();
    stack.sign_in(&mut signed_in).await.is(303);
    issuer.server.forget();
    for answer in [own.as_str(), stolen.as_str(), RETURN] {
        let reply = signed_in.get(answer).await;
        reply.leads_to("/console");
        assert!(cookies(&reply).is_empty(), "{reply:?}");
    }
    assert_eq!(issuer.server.count("POST /token"), 0, "a code was sent");
    // The sign-in ends after ten minutes.
    stack.begin(&mut victim, issuer).await;
    let (name, value) = victim.cookie.split_once('=').unwrap();
    let (name, pending) = (name.to_owned(), PendingSignIn::parse(value).unwrap());
    for (seconds, reason) in [(595, "does not accept its code any more"), (601, REASON)] {
        let began = Timestamp(now().0 - 1_000 * seconds);
        let earlier = PendingSignIn::begin(&SessionId::issue([seconds; 4]), began, &pending.issuer, &pending.next);
        victim.cookie = format!("{name}={}", earlier.reveal());
        stack.refused(&victim.get(&path(&earlier.state(), "none", Some(&issuer.url))).await, 401, reason);
    }
    for next in ["//evil.example", "/console/../v1/targets", &format!("/console?q={}", "x".repeat(3_000))] {
        let reply = victim.get(&begin(&issuer.url, next)).await;
        victim.cookie = reply.is(303).header("set-cookie").split(';').next().unwrap().to_owned();
        assert!(victim.cookie.len() < 4_000);
        let request = Url::parse(reply.header("location")).unwrap();
        victim.get(&answered(&request)).await.leads_to("/console");
    }
}

/// The answer and the token are those of the issuer and for the client of the sign-in. The other checks of a token are
/// those of the API.
pub(crate) async fn answers_of_other_issuers_are_refused() {
    let stack = PeopleStack::new().await;
    let (issuer, other) = (&stack.issuer, &stack.other);
    let mut browser = stack.browser();
    // An issuer that names itself in its answers does so in each one. One that does not is still not taken for another one.
    let names = [("ISSUER", issuer.url.as_str()), ("OTHER", other.url.as_str())];
    for (is_other, named) in rows::<(bool, Option<String>)>("wrong_issuers", &names) {
        let issuer = if is_other { other } else { issuer };
        let request = stack.begin(&mut browser, issuer).await;
        let reply = browser.get(&answer(&request, &issuer.approve(&request), named.as_deref())).await;
        stack.refused(&reply, 401, "the answer is not of the issuer");
        assert_eq!(issuer.server.count("POST /token"), 0, "a code was sent");
    }
    let names = [("CLIENT", CLIENT), ("AUDIENCE", AUDIENCE), ("OTHER", other.url.as_str())];
    for (claims, reason) in rows::<(Value, String)>("wrong_claims", &names) {
        issuer.claim(claims);
        stack.refused(&stack.sign_in(&mut browser).await, 401, &reason);
    }
    // The token of a sign-in is for the client. It is no token of the API.
    let of_client = stack.harness.with_token(&issuer.token_for(CLIENT), "GET /v1/targets", None).await;
    of_client.is_problem(401, "invalid-token");
    issuer.claim(json!({"aud": [CLIENT, "another"], "azp": CLIENT}));
    stack.sign_in(&mut browser).await.leads_to("/console/targets/sandbox/a");
}

/// Claims that only the userinfo endpoint has count if the configuration asks for them. They replace none of the ID token.
pub(crate) async fn claims_of_the_userinfo_endpoint() {
    let stack = PeopleStack::with(|entry| entry["signIn"]["userInfo"] = json!(true)).await;
    let silent = PeopleStack::new().await;
    let issuer = &stack.issuer;
    let mut browser = stack.browser();
    let admin = json!({"sub": "ann", "iss": "https://evil.example", "aud": "another", "exp": 1, "groups": ["admins"]});
    for (stack, own, status) in
        [(&stack, json!({"groups": null}), 200), (&stack, json!({}), 403), (&silent, json!({"groups": null}), 303)]
    {
        stack.issuer.claim(own);
        stack.issuer.serve_user_info(200, admin.clone());
        let mut browser = stack.browser();
        stack.sign_in(&mut browser).await;
        let page = browser.get("/console/clusters").await;
        assert_eq!(page.status, status, "{page:?}");
        let name = format!("<span>{} ann</span>", stack.issuer.url);
        assert!(status != 200 || page.body.contains(&name), "{page:?}");
    }
    let long = "x".repeat(20_000);
    let names = [("LONG", long.as_str())];
    for (answer, claims, status, reason) in rows::<(u16, Value, u16, String)>("wrong_answers_with_claims", &names) {
        issuer.serve_user_info(answer, claims);
        stack.refused(&stack.sign_in(&mut browser).await, status, &reason);
    }
}

/// A failure is a page with the reason and who can change it.
pub(crate) async fn failures_of_an_issuer_are_explained() {
    let stack = PeopleStack::new().await;
    let issuer = &stack.issuer;
    let mut browser = stack.browser();
    let request = stack.begin(&mut browser, issuer).await;
    let declined = answer(&request, "", Some(&issuer.url)) + "&error=%3Cb%3Eaccess_denied&error_description=no%0Aseat";
    let page = browser.get(&declined).await;
    stack.refused(&page, 403, "ask its administrator");
    let is_escaped = page.body.contains("&lt;b&gt;access_denied: no\\nseat") && !page.body.contains("<b>access");
    assert!(is_escaped && !page.headers.contains_key("refresh"), "{page:?}");
    issuer.claim(json!({"groups": []}));
    let page = stack.sign_in(&mut browser).await;
    stack.refused(&page, 403, "no rule of EBB_OIDC grants a scope to");
    assert!(
        page.body.contains("with the claims aud, email, exp, groups, iat, iss, nonce, sub: an operator"),
        "{page:?}"
    );
    issuer.claim(json!({}));
    let large = (200, " ".repeat((1 << 20) + 1), 503, "is larger than 1048576 bytes".to_owned());
    for (answer, body, status, reason) in rows("wrong_answers_with_tokens", &[]).into_iter().chain([large]) {
        issuer.server.always("POST /token", CannedReply::text(answer, "text/xml", &body));
        stack.refused(&stack.sign_in(&mut browser).await, status, &reason);
    }
    issuer.claim(json!({}));
    for (secrets, reason) in rows::<(Value, String)>("wrong_secrets", &[]) {
        stack.harness.write_secrets(&secrets);
        stack.refused(&stack.sign_in(&mut browser).await, 503, &reason);
    }
    let page = browser.get(&begin("https://evil.example", "/console")).await;
    stack.refused(&page, 401, "EBB_OIDC has no `signIn` for the issuer");
}

/// Endpoints of a discovery document are `https`, and at addresses that the guard of egress permits.
pub(crate) async fn endpoints_that_cannot_be_trusted() {
    let mut issuers = Vec::new();
    for (member, value, reason) in rows::<(String, String, String)>("untrusted_endpoints", &[]) {
        let server = issuer(vec![], |url| discovery(url, &member, value.into())).await;
        issuers.push((server, member, reason));
    }
    let client = json!({"clientId": CLIENT});
    let entries = issuers
        .iter()
        .map(|(server, ..)| json!({"issuer": server.url(), "audience": AUDIENCE, "rules": [], "signIn": client}));
    let harness = Harness::with_issuers(&entries.collect()).await;
    for (server, member, reason) in &issuers {
        let mut browser = Browser::new(harness.stack().url());
        let mut reply = browser.get(&begin(server.url(), "/console")).await;
        if member == "token_endpoint" {
            browser.cookie = reply.is(303).header("set-cookie").split(';').next().unwrap().to_owned();
            let request = Url::parse(reply.header("location")).unwrap();
            reply = browser.get(&answer(&request, "a", None)).await;
        }
        assert!(reply.is(503).body.contains(reason), "{member}: {reply:?}");
    }
}
