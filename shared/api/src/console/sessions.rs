//! Sessions of browsers and of the command line, and the caller and the parameters of each request.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use ebb_console::{ConsoleViewer, FailureView, paths};
use ebb_protocol::{Millis, PendingSignIn, SessionId, Timestamp, open_value, seal_value};
use ebb_store::{SessionBasis, SessionItem};
use serde_json::Value;
use url::Url;

use super::{ConsoleMemory, responses};
use crate::{
    ApiCaller, ApiPermission, CallerProof, HttpProblem, HttpResult, Path, Permitted, Query, RoutePermission,
    ServerState,
};

/// The names in a path, or the problem that a page shows.
pub(super) type PathOf<T> = HttpResult<Path<T>>;
/// The parameters of a query, or the problem that a page shows.
pub(super) type QueryOf<T> = HttpResult<Query<T>>;

/// The longest time of a session of a browser. It ends before if its token ends.
const LIFETIME: Millis = Millis(8 * 3_600_000);
/// The longest time of a login. It also ends if it is unused for [`LOGIN_UNUSED`].
const LOGIN_LIFETIME: Millis = Millis(7 * 24 * 3_600_000);
/// The time after its last use in which a login is valid.
const LOGIN_UNUSED: Millis = Millis(24 * 3_600_000);
/// The later end for which a login is written again, so that few requests write.
const RENEWAL: Millis = Millis(3_600_000);

/// The time that a person has at an issuer.
pub(super) const PENDING_LIFETIME: Millis = Millis(600_000);
/// The end of the name of the cookie of a sign-in at an issuer.
const PENDING: &str = "-sign-in";

/// The caller of a request with a session.
pub(super) struct ConsoleSession {
    pub(super) server: ServerState,
    pub(super) id: SessionId,
    pub(super) caller: ApiCaller,
    pub(super) memory: Arc<ConsoleMemory>,
    method: Method,
    pub(super) request: HeaderMap,
    form_token: String,
    hidden: Vec<&'static str>,
}

impl FromRequestParts<ServerState> for ConsoleSession {
    type Rejection = Response;

    /// Without a valid session, leads to the sign-in, which leads back.
    async fn from_request_parts(parts: &mut Parts, server: &ServerState) -> Result<Self, Response> {
        let found = find(server, &parts.headers).await.map_err(|problem| responses::failure(None, problem))?;
        let Some((id, caller)) = found else {
            // The path of a form leads to a page, also that of an action. The sign-out has no page.
            let path = match parts.uri.path_and_query() {
                Some(path) if parts.method == Method::GET => path.as_str(),
                _ if parts.uri.path() == paths::SIGN_OUT => paths::ROOT,
                _ => parts.uri.path(),
            };
            return Err(Redirect::to(&paths::sign_in(path)).into_response());
        };
        let form_token = id.form_token(server.env.random.next());
        let (method, request, hidden) = (parts.method.clone(), parts.headers.clone(), hidden_sections(&caller));
        let memory = parts.extensions.get::<Arc<ConsoleMemory>>().cloned().unwrap_or_default();
        Ok(Self { server: server.clone(), id, caller, memory, method, request, form_token, hidden })
    }
}

impl ConsoleSession {
    /// Returns true if an open page is renewed. It may show what another one has read up to a second ago.
    pub(super) fn is_renewal(&self) -> bool {
        self.request.contains_key(header::IF_NONE_MATCH)
    }

    pub(super) fn viewer(&self) -> ConsoleViewer<'_> {
        let (name, display) = (self.caller.name(), self.caller.display.as_deref());
        let deployment = deployment(&self.server);
        ConsoleViewer { name, display, deployment, form_token: &self.form_token, hidden: &self.hidden }
    }

    /// Returns the state of the server for a handler of the API, if the caller may send its request.
    pub(super) fn permitted<P: RoutePermission>(&self) -> HttpResult<Permitted<P>> {
        Permitted::of(&self.server, &self.caller)
    }

    /// Returns a page, 304 if the browser has it, or the page of its failure.
    pub(super) fn respond(&self, section: &str, page: HttpResult<String>) -> Response {
        self.respond_stamped(section, page.map(|html| (String::new(), html)))
    }

    /// Returns a page with its stamp, otherwise like [`Self::respond`].
    pub(super) fn respond_stamped(&self, section: &str, page: HttpResult<(String, String)>) -> Response {
        match page {
            Ok((stamp, html)) => responses::page(&self.request, (&stamp, &self.form_token), html),
            Err(problem) => {
                // If the request for a page can succeed later, the open page repeats it.
                let is_temporary = self.method == Method::GET && matches!(problem.0.status, 409 | 503);
                let view = FailureView { is_temporary, ..FailureView::default() };
                responses::failure_with(Some(self.viewer()), section, problem, view)
            }
        }
    }
}

fn hidden_sections(caller: &ApiCaller) -> Vec<&'static str> {
    let needed = [
        (paths::ROOT, ApiPermission::ReadTargets),
        (paths::TARGETS, ApiPermission::ReadTargets),
        (paths::PLUGINS, ApiPermission::ReadPlugins),
        (paths::SOURCES, ApiPermission::ReadSources),
        (paths::SUBSCRIPTIONS, ApiPermission::ReadConnections),
        (paths::CLUSTERS, ApiPermission::Operate),
    ];
    let hidden = needed.into_iter().filter(|(_, permission)| caller.require(*permission).is_err());
    hidden.map(|(path, _)| path).collect()
}

/// Returns the session of a request with its caller, or `None` without a valid one.
async fn find(server: &ServerState, headers: &HeaderMap) -> HttpResult<Option<(SessionId, ApiCaller)>> {
    let Some(id) = cookie(headers, &cookie_name(server)).and_then(SessionId::parse) else { return Ok(None) };
    Ok(server.session_caller(&id).await?.map(|caller| (id, caller)))
}

/// Returns the end of a session that is used now, and the latest end that later uses can give it.
fn ends(id: &SessionId, created: Timestamp, now: Timestamp, proof: &CallerProof) -> (Timestamp, Timestamp) {
    let is_login = SessionId::parse_token(id.reveal()).is_some();
    let (unused, longest) = if is_login { (LOGIN_UNUSED, LOGIN_LIFETIME) } else { (LIFETIME, LIFETIME) };
    let mut latest = created.plus(longest);
    // An identity token ends after some minutes. Its claims are trusted as long as the rules are.
    if let CallerProof::Named { expires, .. } = proof {
        latest = latest.min(*expires);
    }
    (latest.min(now.plus(unused)), latest)
}

impl ServerState {
    /// Returns the caller with a session, or `None` without a valid one. The token behind it is checked as for a request to the
    /// API, and the rules of an issuer are applied again to the claims of a person. Then the use extends a login.
    pub(crate) async fn session_caller(&self, id: &SessionId) -> HttpResult<Option<ApiCaller>> {
        let Some(stored) = self.env.store.read_session(&id.digest()).await? else { return Ok(None) };
        if stored.expires <= self.env.now() {
            return Ok(None);
        }
        let is_own = |proven: &str| id.proves(&stored.proof, proven);
        let caller = match &stored.basis {
            SessionBasis::Configured => self.tokens.role_caller(is_own),
            SessionBasis::Named(token) => match self.named_caller(token, is_own).await {
                // The token was revoked or has expired, or the name has another token since.
                Err(HttpProblem(problem)) if problem.status < 500 => None,
                found => Some(found?),
            },
            SessionBasis::Identity(claims) if is_own(claims) => {
                let claims = open_value(&self.env.settings.unit_keys, &id.digest(), claims);
                let claims = claims.and_then(|claims| serde_json::from_slice::<Value>(&claims).ok());
                claims.and_then(|claims| self.tokens.issuers.known_person(claims))
            }
            SessionBasis::Identity(_) => None,
        };
        let Some(mut caller) = caller else { return Ok(None) };
        let (expires, latest) = ends(id, stored.created, self.env.now(), &caller.proof);
        caller.expires = Some(latest);
        let is_due = stored.expires < latest && expires >= latest.min(stored.expires.plus(RENEWAL));
        caller.expires_unused = Some(if is_due { expires } else { stored.expires }).filter(|end| *end < latest);
        // A concurrent sign-out remains one.
        let is_valid = !is_due || self.env.store.renew_session(&SessionItem { expires, ..stored }).await?;
        Ok(is_valid.then_some(caller))
    }

    /// Stores a session of a caller with a new id. Returns its begin and its latest end.
    pub(super) async fn begin_session(&self, id: &SessionId, caller: &ApiCaller) -> HttpResult<(Timestamp, Timestamp)> {
        let created = self.env.now();
        let (expires, latest) = ends(id, created, created, &caller.proof);
        let (basis, proof) = match &caller.proof {
            CallerProof::Role(digest) => (SessionBasis::Configured, id.proof_of(digest)),
            CallerProof::Named { id: token, digest, .. } => (SessionBasis::Named(token.clone()), id.proof_of(digest)),
            // Names and addresses of people are not readable in the table.
            CallerProof::Identity(claims) => {
                let claims = claims.to_string();
                let sealed = seal_value(&self.env.settings.unit_keys, &id.digest(), claims.as_bytes());
                let proof = id.proof_of(&sealed);
                (SessionBasis::Identity(sealed), proof)
            }
        };
        let session = SessionItem { digest: id.digest(), basis, proof, created, expires };
        self.env.store.put_session(&session).await?;
        Ok((created, latest))
    }
}

/// A browser that signs in. It may have a session.
pub(super) struct SignInBrowser {
    pub(super) server: ServerState,
    pub(super) headers: HeaderMap,
    /// True if a person opens the page: neither a check of a link nor a fetch in advance.
    pub(super) is_visit: bool,
}

impl FromRequestParts<ServerState> for SignInBrowser {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, server: &ServerState) -> Result<Self, Infallible> {
        let is_early = parts.headers.contains_key("sec-purpose") || parts.headers.contains_key("purpose");
        let is_visit = parts.method != Method::HEAD && !is_early;
        Ok(Self { server: server.clone(), headers: parts.headers.clone(), is_visit })
    }
}

impl SignInBrowser {
    /// Stores a new session of a caller, and ends that of the browser. Returns the cookie of the new one.
    pub(super) async fn begin(&self, caller: &ApiCaller) -> HttpResult<HeaderValue> {
        let (server, id) = (&self.server, self.new_id());
        let (created, expires) = server.begin_session(&id, caller).await?;
        caller.log_change("sign in", "console");
        if let Some(former) = cookie(&self.headers, &cookie_name(server)).and_then(SessionId::parse) {
            end(server, &former).await?;
        }
        Ok(set_cookie(server, "", id.reveal(), expires.since(created).0 / 1000))
    }

    pub(super) async fn is_signed_in(&self) -> bool {
        matches!(find(&self.server, &self.headers).await, Ok(Some(_)))
    }

    pub(super) fn new_id(&self) -> SessionId {
        SessionId::issue(std::array::from_fn(|_| self.server.env.random.next()))
    }

    /// Returns the cookie of a sign-in at an issuer, or the one that ends it in the browser.
    pub(super) fn pending_cookie(&self, pending: Option<&PendingSignIn>) -> HeaderValue {
        let (value, seconds) = pending.map_or(("", 0), |pending| (pending.reveal(), PENDING_LIFETIME.0 / 1000));
        set_cookie(&self.server, PENDING, value, seconds)
    }

    /// Returns the sign-in at an issuer that the browser has begun, if `state` is an answer to it.
    pub(super) fn pending(&self, state: &str) -> Option<PendingSignIn> {
        let found = cookie(&self.headers, &format!("{}{PENDING}", cookie_name(&self.server)))?;
        let pending = PendingSignIn::parse(found)?;
        let is_recent = self.server.env.now().since(pending.began) < PENDING_LIFETIME;
        (is_recent && pending.has_state(state)).then_some(pending)
    }
}

/// Ends a session, which does not have to exist. Returns the cookie that ends it in the browser.
pub(super) async fn end(server: &ServerState, id: &SessionId) -> HttpResult<HeaderValue> {
    server.env.store.delete_session(&id.digest()).await?;
    Ok(set_cookie(server, "", "", 0))
}

/// `suffix` is the end of the name of the cookie. That of a session has none.
fn set_cookie(server: &ServerState, suffix: &str, value: &str, seconds: u64) -> HeaderValue {
    let (name, secure) = (cookie_name(server), if is_secure(server) { "; Secure" } else { "" });
    let cookie = format!("{name}{suffix}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    HeaderValue::try_from(cookie).expect("the value has letters, digits, `-`, `_` and `.`")
}

/// Returns the name of the cookie. With the prefix, a browser accepts it over HTTPS only, and from this host only. Cookies
/// ignore ports, so each server of a machine has its own name.
fn cookie_name(server: &ServerState) -> String {
    if is_secure(server) {
        return "__Host-ebb".to_owned();
    }
    let port = Url::parse(&server.env.settings.source).ok().and_then(|url| url.port()).unwrap_or_default();
    format!("ebb-{port}")
}

/// Returns the host of the URL of the server, with its port.
pub(super) fn deployment(server: &ServerState) -> &str {
    let source = server.env.settings.source.rsplit("://").next().unwrap_or_default();
    source.split('/').next().unwrap_or_default()
}

/// Returns false for a server on this machine, which has no certificate.
fn is_secure(server: &ServerState) -> bool {
    !server.env.settings.source.starts_with("http://")
}

/// Returns the value of the first cookie of a name.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}
