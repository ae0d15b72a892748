//! Sessions of browsers, and the caller of each request.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use ebb_console::{ConsoleViewer, paths};
use ebb_engine::{Millis, Timestamp};
use ebb_protocol::session::SessionId;
use ebb_store::SessionItem;
use url::Url;

use super::memory::ConsoleMemory;
use super::responses;
use crate::routes::auth::{ApiCaller, ApiPermission};
use crate::routes::permitted::{Permitted, RoutePermission};
use crate::{HttpResult, ServerState};

/// The longest time of a session. It ends before if its token ends.
const LIFETIME: Millis = Millis(8 * 3_600_000);

/// The caller of a request with a session.
pub(super) struct ConsoleSession {
    pub(super) server: ServerState,
    pub(super) id: SessionId,
    pub(super) caller: ApiCaller,
    pub(super) memory: Arc<ConsoleMemory>,
    request: HeaderMap,
    name: String,
    form_token: String,
    hidden: Vec<&'static str>,
}

impl FromRequestParts<ServerState> for ConsoleSession {
    type Rejection = Response;

    /// Without a valid session, leads to the sign-in, which leads back.
    async fn from_request_parts(parts: &mut Parts, server: &ServerState) -> Result<Self, Response> {
        let memory = ConsoleMemory::of(&parts.extensions);
        let found = find(server, &parts.headers).await;
        match found.map_err(|problem| responses::failure(None, paths::ROOT, problem))? {
            Some((id, caller)) => {
                memory.remember(&id, &caller, server.env.now());
                Ok(Self::new(server, parts, memory, (id, caller)))
            }
            None => {
                // The page that confirms an action has the path of the action. The sign-out has no page.
                let path = match parts.uri.path_and_query() {
                    Some(path) if parts.method == Method::GET => path.as_str(),
                    _ if parts.uri.path() == paths::SIGN_OUT => paths::ROOT,
                    _ => parts.uri.path(),
                };
                Err(Redirect::to(&paths::sign_in(path)).into_response())
            }
        }
    }
}

impl ConsoleSession {
    fn new(
        server: &ServerState,
        parts: &Parts,
        memory: Arc<ConsoleMemory>,
        (id, caller): (SessionId, ApiCaller),
    ) -> Self {
        let (name, form_token) = (caller.to_string(), id.form_token(server.env.random.next()));
        let hidden = hidden_sections(&caller);
        Self { server: server.clone(), id, caller, memory, request: parts.headers.clone(), name, form_token, hidden }
    }

    /// Returns true if an open page is renewed. It may show what another one has read up to a second ago.
    pub(super) fn is_renewal(&self) -> bool {
        self.request.contains_key(header::IF_NONE_MATCH)
    }

    /// Returns the entity tags that the browser has.
    pub(super) fn known_tags(&self) -> Vec<&str> {
        responses::known_tags(&self.request)
    }

    pub(super) fn viewer(&self) -> ConsoleViewer<'_> {
        ConsoleViewer { name: &self.name, form_token: &self.form_token, hidden: &self.hidden }
    }

    /// Returns the state of the server for a handler of the API, if the caller may send its request.
    pub(super) fn permitted<P: RoutePermission>(&self) -> HttpResult<Permitted<P>> {
        Permitted::of(&self.server, &self.caller)
    }

    /// Returns the page of a target, or 304 if the browser has it.
    pub(super) fn respond_stamped(&self, stamp: &str, html: String) -> Response {
        responses::page(&self.request, (stamp, &self.form_token), html)
    }

    /// Returns a page, 304 if the browser has it, or the page of its failure.
    pub(super) fn respond(&self, section: &str, page: HttpResult<String>) -> Response {
        match page {
            Ok(html) => responses::page(&self.request, ("", &self.form_token), html),
            Err(problem) => responses::failure(Some(self.viewer()), section, problem),
        }
    }
}

/// Returns the paths of the sections that a caller may not read.
fn hidden_sections(caller: &ApiCaller) -> Vec<&'static str> {
    let needed = [
        (paths::ROOT, ApiPermission::ReadTargets),
        (paths::WAITING, ApiPermission::ReadTargets),
        (paths::PLUGINS, ApiPermission::ReadPlugins),
        (paths::SOURCES, ApiPermission::ReadSources),
        (paths::SUBSCRIPTIONS, ApiPermission::ReadConnections),
        (paths::CLUSTERS, ApiPermission::Operate),
    ];
    let hidden = needed.into_iter().filter(|(_, permission)| caller.require(*permission).is_err());
    hidden.map(|(path, _)| path).collect()
}

/// A session that was checked a short time ago. Its holder may learn that nothing has changed. Each other answer needs
/// [`Self::checked`].
pub(super) struct KnownSession {
    pub(super) session: ConsoleSession,
    /// The request. `None` if it was checked.
    unchecked: Option<Parts>,
}

impl FromRequestParts<ServerState> for KnownSession {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, server: &ServerState) -> Result<Self, Response> {
        let memory = ConsoleMemory::of(&parts.extensions);
        let id = cookie(&parts.headers, &cookie_name(server)).and_then(SessionId::parse);
        let known = id.and_then(|id| memory.caller(&id, server.env.now()).map(|caller| (id, caller)));
        match known {
            Some(known) => {
                let session = ConsoleSession::new(server, parts, memory, known);
                Ok(Self { session, unchecked: Some(parts.clone()) })
            }
            None => {
                let session = ConsoleSession::from_request_parts(parts, server).await?;
                Ok(Self { session, unchecked: None })
            }
        }
    }
}

impl KnownSession {
    /// Returns the session after a check, or the response without a valid one.
    pub(super) async fn checked(self) -> Result<ConsoleSession, Response> {
        match self.unchecked {
            None => Ok(self.session),
            Some(mut parts) => ConsoleSession::from_request_parts(&mut parts, &self.session.server).await,
        }
    }
}

/// Returns the session of a request with its caller, or `None` without a valid one. The token behind it is checked as for
/// a request to the API.
async fn find(server: &ServerState, headers: &HeaderMap) -> HttpResult<Option<(SessionId, ApiCaller)>> {
    let Some(id) = cookie(headers, &cookie_name(server)).and_then(SessionId::parse) else { return Ok(None) };
    let Some(stored) = server.store.read_session(&id.digest()).await? else { return Ok(None) };
    if stored.expires <= server.env.now() {
        return Ok(None);
    }
    let caller = match &stored.token {
        None => server.tokens.caller_if(|digest| id.proves(&stored.proof, digest)),
        Some(token) => {
            let found = server.store.read_token(token).await?;
            // The name can have another token since.
            let found = found.filter(|found| id.proves(&stored.proof, &found.digest));
            found.and_then(|found| server.named_caller(found).ok())
        }
    };
    Ok(caller.map(|caller| (id, caller)))
}

/// The token of a new session.
pub(super) struct SessionToken<'a> {
    pub(super) digest: &'a str,
    /// The id of a named token. `None` for a token of the configuration.
    pub(super) id: Option<&'a str>,
    /// The end of a named token.
    pub(super) expires: Option<Timestamp>,
}

/// A browser that signs in. It may have a session.
pub(super) struct SignInBrowser {
    pub(super) server: ServerState,
    pub(super) headers: HeaderMap,
    memory: Arc<ConsoleMemory>,
}

impl FromRequestParts<ServerState> for SignInBrowser {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, server: &ServerState) -> Result<Self, Infallible> {
        let memory = ConsoleMemory::of(&parts.extensions);
        Ok(Self { server: server.clone(), headers: parts.headers.clone(), memory })
    }
}

impl SignInBrowser {
    /// Stores a new session of a caller, and ends that of the browser. Returns the cookie of the new one.
    pub(super) async fn begin(&self, caller: &ApiCaller, token: SessionToken<'_>) -> HttpResult<HeaderValue> {
        let server = &self.server;
        let id = SessionId::issue(std::array::from_fn(|_| server.env.random.next()));
        let created = server.env.now();
        let latest = created.plus(LIFETIME);
        let session = SessionItem {
            digest: id.digest(),
            token: token.id.map(str::to_owned),
            proof: id.proof_of(token.digest),
            created,
            expires: token.expires.map_or(latest, |expires| expires.min(latest)),
        };
        server.store.put_session(&session).await?;
        caller.log_change("sign in", "console");
        if let Some(former) = cookie(&self.headers, &cookie_name(server)).and_then(SessionId::parse) {
            end(server, &self.memory, &former).await?;
        }
        let seconds = session.expires.since(created).0 / 1000;
        Ok(set_cookie(server, id.reveal(), seconds))
    }
}

/// Ends a session. It does not have to exist.
pub(super) async fn end(server: &ServerState, memory: &ConsoleMemory, id: &SessionId) -> HttpResult<()> {
    memory.forget(id);
    Ok(server.store.delete_session(&id.digest()).await?)
}

/// Returns the cookie that ends a session in the browser.
pub(super) fn ended(server: &ServerState) -> HeaderValue {
    set_cookie(server, "", 0)
}

fn set_cookie(server: &ServerState, value: &str, seconds: u64) -> HeaderValue {
    let (name, secure) = (cookie_name(server), if is_secure(server) { "; Secure" } else { "" });
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    HeaderValue::try_from(cookie).expect("a session id has letters, digits, `-` and `_`")
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
