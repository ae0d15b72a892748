//! The sign-in of the command line: a page, whose URL `ebb login` opens or prints, and `/v1/login`.
//!
//! 1. On the page, a person with a session gets a code: the encrypted session. Nothing is stored for it.
//! 2. The command line exchanges the code for a session of its own, with the verifier of the challenge of the page.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse as _, Response};
use axum::{Extension, Json};
use ebb_console::paths;
use ebb_protocol::{
    CallerInfo, CreateLogin, CreatedToken, ErrorCode, Millis, SessionId, Timestamp, TokenInfo, code_challenge,
    is_random_text, open_value, seal_value,
};
use url::form_urlencoded;

use super::forms::FormFields;
use super::responses;
use super::sessions::ConsoleSession;
use crate::{BodyBudget, HttpProblem, HttpResult, NoQuery, ServerState, bearer, no_store, routes};

/// The maximum bytes of a form, and of a request with a code.
const MAX_BODY: usize = 4 << 10;
/// The time in which a code is valid.
const CODE_LIFETIME: Millis = Millis(120_000);

/// Returns challenge, state and port of `ebb login`. The port is empty if a person pastes the code.
fn parameters(fields: &FormFields) -> HttpResult<[&str; 3]> {
    let [challenge, state, port] = ["challenge", "state", "port"].map(|name| fields.get(name));
    let is_port = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    if is_port && is_random_text(challenge) && is_random_text(state) {
        return Ok([challenge, state, port]);
    }
    let detail = "the page is not one of `ebb login`: expected `challenge`, `state` and the number of a `port`";
    Err(HttpProblem::new(ErrorCode::InvalidQuery, detail))
}

pub(super) async fn show(session: ConsoleSession, RawQuery(query): RawQuery) -> Response {
    let fields = FormFields::parse(query.unwrap_or_default().as_bytes());
    let page = parameters(&fields);
    session.respond("", page.map(|given| ebb_console::login(session.viewer(), given, &session.caller.scope_list())))
}

/// Gives a code, or the refusal of the person, to the command line: by the browser, if it waits on a port, or by the person.
pub(super) async fn approve(session: ConsoleSession, body: Body) -> Response {
    let approved = async {
        let fields = session.form(body, MAX_BODY).await?;
        let given @ [challenge, ..] = parameters(&fields)?;
        let code = format!("{} {}", session.id.reveal(), session.server.env.now().0);
        let code = seal_value(&session.server.env.settings.unit_keys, &format!("login {challenge}"), code.as_bytes());
        let is_cancelled = fields.get("answer") == "cancel";
        let answer = if is_cancelled { ("error", "access_denied") } else { ("code", code.as_str()) };
        let brought = to_command(given, &[answer]);
        let page = ebb_console::logged_in(session.viewer(), Some(code.as_str()).filter(|_| brought.is_none()));
        Ok::<_, HttpProblem>((brought, Html(page)).into_response())
    };
    approved.await.unwrap_or_else(|problem| responses::failure(Some(session.viewer()), problem))
}

/// Returns the header by which the browser brings an answer to a command that waits on a port of its machine. The policy of a page
/// forbids that its form is redirected to another origin.
fn to_command([_, state, port]: [&str; 3], answer: &[(&str, &str)]) -> Option<[(HeaderName, String); 1]> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let query = query.extend_pairs(answer).append_pair("state", state).finish();
    (!port.is_empty()).then(|| [(header::REFRESH, format!("0;url=http://127.0.0.1:{port}/?{query}"))])
}

/// Brings the reason of a refused sign-in to the command that waits for it, if the sign-in leads to the page of one.
pub(super) fn refusal(next: &str, reason: &str) -> Option<[(HeaderName, String); 1]> {
    let (path, query) = next.split_once('?')?;
    let fields = FormFields::parse(query.as_bytes());
    let given = parameters(&fields).ok().filter(|_| path == paths::LOGIN)?;
    to_command(given, &[("error", "access_denied"), ("error_description", reason)])
}

/// Returns the session of a code, if the code is of this server and login, and not too old.
fn session_of(server: &ServerState, CreateLogin { code, verifier }: &CreateLogin) -> Option<SessionId> {
    let place = format!("login {}", code_challenge(verifier));
    let code = open_value(&server.env.settings.unit_keys, &place, code.trim())?;
    let (session, made) = std::str::from_utf8(&code).ok()?.split_once(' ')?;
    let age = server.env.now().since(Timestamp(made.parse().ok()?));
    SessionId::parse(session).filter(|_| age < CODE_LIFETIME)
}

/// Exchanges a code of the console for a token of the command line. It ends if it is unused for 24 hours, and after 7 days. Needs
/// no token.
#[utoipa::path(post, path = "/v1/login", operation_id = "createLogin", tag = "tokens", request_body = CreateLogin, responses(
    (status = 201, body = CreatedToken),
))]
pub(crate) async fn create(
    _: NoQuery,
    State(server): State<ServerState>,
    Extension(bodies): Extension<Arc<BodyBudget>>,
    headers: HeaderMap,
    body: Body,
) -> HttpResult<(StatusCode, HeaderMap, Json<CreatedToken>)> {
    let session = session_of(&server, &routes::parse_json(&bodies.read(&headers, body, MAX_BODY).await?.bytes)?);
    let caller = if let Some(session) = session { server.session_caller(&session).await? } else { None };
    let caller = caller.ok_or_else(|| {
        let detail = "the code is of another login or server, or older than 2 minutes: run `ebb login` again";
        HttpProblem::new(ErrorCode::InvalidToken, detail)
    })?;
    let token = SessionId::issue_token(std::array::from_fn(|_| server.env.random.next()));
    let (created, expires) = server.begin_session(&token, &caller).await?;
    caller.log_change("sign in", "command line");
    let CallerInfo { name, display, scopes, .. } = caller.info();
    let (created_by, created_by_name) = (name.clone(), None);
    let info = TokenInfo { name, display, scopes, created, expires, created_by, created_by_name };
    Ok((StatusCode::CREATED, no_store(), Json(CreatedToken { token: token.reveal().to_owned(), info })))
}

/// Ends the token of the command line with which it is sent. Another token is refused, and stays valid.
#[utoipa::path(delete, path = "/v1/login", operation_id = "deleteLogin", tag = "tokens")]
pub(crate) async fn delete(State(server): State<ServerState>, headers: HeaderMap) -> HttpResult<StatusCode> {
    let caller = server.authenticate(&headers).await?;
    let Some(id) = bearer(&headers).and_then(SessionId::parse_token) else {
        let detail = format!("`ebb login` has not made the token of `{caller}`: it stays valid");
        return Err(HttpProblem::not_found(detail));
    };
    server.env.store.delete_session(&id.digest()).await?;
    Ok(StatusCode::NO_CONTENT)
}
