//! The sign-in by a token or by the code of a link, and the sign-out.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use ebb_console::paths;
use ebb_protocol::api_token;
use serde::Deserialize;

use super::forms::{self, FormFields};
use super::responses;
use super::sessions::{self, ConsoleSession, SessionToken, SignInBrowser};
use crate::bodies::{BodyBudget, check_length};
use crate::oidc;
use crate::routes::Query;
use crate::routes::auth::{MAX_TOKEN, unauthorized};
use crate::{HttpProblem, HttpResult, ServerState};

/// The maximum bytes of the form: a token, whose encoded bytes take three each, and a path.
const MAX_FORM: usize = 4 * MAX_TOKEN;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SignInQuery {
    /// The page to which the sign-in leads.
    next: String,
    /// The code of a link that signs in once.
    code: String,
}

/// Shows the sign-in, or signs in with the code of a link.
pub(super) async fn form(browser: SignInBrowser, query: HttpResult<Query<SignInQuery>>) -> Response {
    let SignInQuery { next, code } = match query {
        Ok(Query(query)) => query,
        Err(problem) => return refused("", &problem),
    };
    if code.is_empty() {
        return Html(ebb_console::sign_in(paths::safe_next(&next), None)).into_response();
    }
    match with_code(&browser, &code).await {
        Ok(cookie) => signed_in(&next, cookie),
        Err(problem) => refused(&next, &problem),
    }
}

async fn with_code(browser: &SignInBrowser, code: &str) -> HttpResult<HeaderValue> {
    let Some(digest) = browser.server.tokens.take_sign_in_code(code) else {
        let detail = "the link was used, or the server has started again since: use the link of its output, or a token";
        return Err(unauthorized("invalid-token", detail));
    };
    with_configured(browser, digest).await
}

/// Signs in as the token of the configuration with this digest.
async fn with_configured(browser: &SignInBrowser, digest: &str) -> HttpResult<HeaderValue> {
    let caller = browser.server.tokens.caller_if(|own| own == digest);
    let caller = caller.ok_or_else(|| unauthorized("invalid-token", "the token is unknown"))?;
    browser.begin(&caller, SessionToken { digest, id: None, expires: None }).await
}

/// Exchanges a token for a session.
pub(super) async fn sign_in(
    browser: SignInBrowser,
    Extension(bodies): Extension<Arc<BodyBudget>>,
    body: Body,
) -> Response {
    let fields = match fields(&browser.server, &bodies, &browser.headers, body).await {
        Ok(fields) => fields,
        Err(problem) => return refused("", &problem),
    };
    match with_token(&browser, fields.get("token").trim()).await {
        Ok(cookie) => signed_in(fields.get("next"), cookie),
        Err(problem) => refused(fields.get("next"), &problem),
    }
}

async fn fields(server: &ServerState, bodies: &BodyBudget, headers: &HeaderMap, body: Body) -> HttpResult<FormFields> {
    forms::check_origin(server, headers)?;
    check_length(headers, MAX_FORM)?;
    let body = bodies.read(headers, body, MAX_FORM).await?;
    Ok(FormFields::parse(body.as_ref()))
}

async fn with_token(browser: &SignInBrowser, token: &str) -> HttpResult<HeaderValue> {
    let server = &browser.server;
    if token.len() > MAX_TOKEN {
        return Err(unauthorized("invalid-token", format!("the token is longer than {MAX_TOKEN} bytes")));
    }
    if let Some(digest) = server.tokens.digest(token) {
        return with_configured(browser, digest).await;
    }
    if oidc::is_jwt(token) {
        let detail = "an identity token of an issuer does not sign in: use a named token";
        return Err(unauthorized("invalid-token", detail));
    }
    let found = server.named_token(token).await?;
    let (id, digest, expires) = (api_token::token_id(&found.name), found.digest.clone(), found.expires);
    let caller = server.named_caller(found)?;
    browser.begin(&caller, SessionToken { digest: &digest, id: Some(&id), expires: Some(expires) }).await
}

fn signed_in(next: &str, cookie: HeaderValue) -> Response {
    ([(header::SET_COOKIE, cookie)], Redirect::to(paths::safe_next(next))).into_response()
}

/// Returns the sign-in with the reason why the last one was refused.
fn refused(next: &str, HttpProblem(problem): &HttpProblem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reason = Some(problem.detail.as_str()).filter(|detail| !detail.is_empty());
    (status, Html(ebb_console::sign_in(paths::safe_next(next), reason))).into_response()
}

/// Ends a session.
pub(super) async fn sign_out(session: ConsoleSession, headers: HeaderMap, body: Body) -> Response {
    let ended = async {
        session.form(&headers, body).await?;
        sessions::end(&session.server, &session.memory, &session.id).await
    };
    match ended.await {
        Ok(()) => {
            let cookie = sessions::ended(&session.server);
            ([(header::SET_COOKIE, cookie)], Redirect::to(paths::SIGN_IN)).into_response()
        }
        Err(problem) => responses::failure(Some(session.viewer()), paths::ROOT, problem),
    }
}
