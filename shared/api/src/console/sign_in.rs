//! The sign-in by a token, by the code of a link or at an issuer, and the sign-out.
//!
//! At an issuer it is the authorization code flow with PKCE: [`begin`] gives the browser a cookie with a secret, from which
//! `state`, `nonce` and verifier follow. [`finish`] accepts an answer of the same browser.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use ebb_console::paths;
use ebb_protocol::{ErrorCode, PendingSignIn, SessionId, has_digest, limits};
use serde::Deserialize;

use super::forms::{self, FormFields};
use super::sessions::{self, ConsoleSession, QueryOf, SignInBrowser};
use super::{logins, responses};
use crate::oidc::{self, MAX_TOKEN, SignInAccount};
use crate::{BodyBudget, HttpProblem, HttpResult, Query, ServerState, bearer, forbidden};

/// The maximum bytes of the form: a token, whose encoded bytes take three each, and a path.
const MAX_FORM: usize = 4 * MAX_TOKEN;
/// The maximum bytes of the form of a sign-out.
const MAX_SIGN_OUT: usize = 16 << 10;
/// The maximum bytes of the path to which a sign-in at an issuer leads.
const MAX_NEXT: usize = 2_000;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SignInQuery {
    /// The page to which the sign-in leads.
    next: String,
    /// The code of a link that signs in once.
    code: String,
}

/// Shows the sign-in, or signs in with the code of a link.
pub(super) async fn form(browser: SignInBrowser, query: QueryOf<SignInQuery>) -> Response {
    let SignInQuery { next, code } = match query {
        Ok(Query(query)) => query,
        Err(problem) => return refused(&browser.server, None, "", &problem),
    };
    if code.is_empty() || !browser.is_visit {
        // A link stays valid for the person.
        let status = if code.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        return page(&browser.server, status, &next, None);
    }
    let with_code = async {
        let caller = browser.server.tokens.take_sign_in_code(&code).ok_or_else(|| {
            let detail = "the link was used, or the server has started again since: run `ebb open` for another one, or \
                          use a token";
            HttpProblem::new(ErrorCode::InvalidToken, detail)
        })?;
        browser.begin(&caller).await
    };
    match with_code.await {
        // The same browser opens the link again, such as after its restart.
        Err(_) if browser.is_signed_in().await => Redirect::to(paths::safe_next(&next)).into_response(),
        cookie => signed_in(&browser, &next, cookie),
    }
}

/// Returns the path of another link that signs in once, to the holder of the token as which it signs in.
pub(super) async fn link(browser: SignInBrowser) -> HttpResult<String> {
    let (server, token) = (&browser.server, bearer(&browser.headers).unwrap_or_default());
    let random = std::array::from_fn(|_| server.env.random.next());
    let code = server.tokens.issue_sign_in_code(token, random).ok_or_else(|| {
        let detail = "only a server on one machine makes links, for the token in its state folder";
        HttpProblem::new(ErrorCode::InvalidToken, detail)
    })?;
    Ok(paths::sign_in_once(&code))
}

/// Exchanges a token for a session.
pub(super) async fn sign_in(
    browser: SignInBrowser,
    Extension(bodies): Extension<Arc<BodyBudget>>,
    body: Body,
) -> Response {
    let mut fields = FormFields::default();
    let with_form = async {
        forms::check_origin(&browser.server, &browser.headers)?;
        fields = FormFields::parse(&bodies.read(&browser.headers, body, MAX_FORM).await?.bytes);
        with_token(&browser, fields.get("token").trim()).await
    };
    let cookie = with_form.await;
    signed_in(&browser, fields.get("next"), cookie)
}

async fn with_token(browser: &SignInBrowser, token: &str) -> HttpResult<HeaderValue> {
    // A token of the configuration can have the form of a JWT.
    let is_configured = browser.server.tokens.role_caller(|digest| has_digest(token, digest)).is_some();
    // A session that a login begins would never end.
    if !is_configured && (oidc::is_jwt(token) || SessionId::parse_token(token).is_some()) {
        let detail = "the token of an issuer or a login does not sign in: use a named token, or sign in at the issuer";
        return Err(HttpProblem::new(ErrorCode::InvalidToken, detail));
    }
    let caller = browser.server.caller_with(token).await?;
    browser.begin(&caller).await
}

/// Returns the response with the cookie of a session, or the sign-in with the reason why there is none.
fn signed_in(browser: &SignInBrowser, next: &str, cookie: HttpResult<HeaderValue>) -> Response {
    match cookie {
        Ok(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to(paths::safe_next(next))).into_response(),
        Err(problem) => refused(&browser.server, None, next, &problem),
    }
}

/// Returns the sign-in with the reason why the last one was refused. `issuer` is the one at which another account may be
/// permitted.
fn refused(server: &ServerState, issuer: Option<&str>, next: &str, HttpProblem(problem): &HttpProblem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    page(server, status, next, Some((problem.detail.as_str(), issuer)).filter(|(detail, _)| !detail.is_empty()))
}

fn page(server: &ServerState, status: StatusCode, next: &str, problem: Option<(&str, Option<&str>)>) -> Response {
    let issuers: Vec<(&str, &str)> = server.tokens.issuers.for_people().collect();
    let page = ebb_console::sign_in(sessions::deployment(server), paths::safe_next(next), &issuers, problem);
    (status, Html(page)).into_response()
}

#[derive(Debug, Deserialize)]
pub(super) struct BeginQuery {
    issuer: String,
    #[serde(default)]
    next: String,
    #[serde(default)]
    account: SignInAccount,
}

/// Leads to an issuer, which leads back to [`finish`].
pub(super) async fn begin(browser: SignInBrowser, query: QueryOf<BeginQuery>) -> Response {
    let (server, mut leads_to) = (&browser.server, String::new());
    let begun = async {
        let Query(BeginQuery { issuer, next, account }) = query?;
        leads_to = next;
        // Browsers drop a cookie of more than 4 kB.
        let kept = if leads_to.len() <= MAX_NEXT { paths::safe_next(&leads_to) } else { paths::ROOT };
        let pending = PendingSignIn::begin(&browser.new_id(), server.env.now(), &issuer, kept);
        let url = server.tokens.issuers.sign_in_url(&pending, account, &server.env).await?;
        let cookie = browser.pending_cookie(Some(&pending));
        HttpResult::Ok(([(header::SET_COOKIE, cookie)], Redirect::to(url.as_str())).into_response())
    };
    let begun = begun.await;
    begun.unwrap_or_else(|problem| refused(server, None, &leads_to, &problem))
}

/// Takes the answer of an issuer. It may have parameters that are not known here.
pub(super) async fn finish(browser: SignInBrowser, RawQuery(query): RawQuery) -> Response {
    let answer = FormFields::parse(query.unwrap_or_default().as_bytes());
    // Nothing else of the answer is used or shown without the proof that this browser has begun the sign-in.
    let Some(pending) = browser.pending(answer.get("state")) else {
        // The same answer again, such as by the button Back, or that of a second tab.
        if browser.is_signed_in().await {
            return Redirect::to(paths::ROOT).into_response();
        }
        let detail = format!(
            "this browser has not begun the sign-in, has begun another one since, or has begun it more than {} minutes ago: \
             sign in again at {}{}",
            sessions::PENDING_LIFETIME.0 / 60_000,
            browser.server.env.settings.source,
            paths::ROOT
        );
        return refused(&browser.server, None, "", &HttpProblem::new(ErrorCode::InvalidToken, detail));
    };
    let mut response = match Box::pin(with_answer(&browser, &pending, &answer)).await {
        Ok(cookie) => signed_in(&browser, &pending.next, Ok(cookie)),
        Err(problem) => {
            // The issuer would sign the same account in again.
            let issuer = problem.is(ErrorCode::Forbidden).then_some(pending.issuer.as_str());
            let page = refused(&browser.server, issuer, &pending.next, &problem);
            let other = issuer.map(|issuer| {
                let path = paths::sign_in_at(issuer, paths::ROOT, "other");
                let source = browser.server.env.settings.source.trim_end_matches('/');
                format!("; for another account, sign in at {source}{path} and run `ebb login` again")
            });
            let reason = limits::message(&problem.0.detail) + &other.unwrap_or_default();
            (logins::refusal(&pending.next, &reason), page).into_response()
        }
    };
    response.headers_mut().append(header::SET_COOKIE, browser.pending_cookie(None));
    response
}

async fn with_answer(browser: &SignInBrowser, pending: &PendingSignIn, answer: &FormFields) -> HttpResult<HeaderValue> {
    let (code, error) = (answer.get("code"), answer.get("error"));
    if code.is_empty() || !error.is_empty() {
        // Issuers describe here what their administrator can change.
        let error =
            [error, answer.get("error_description")].map(|text| limits::clean(text, limits::REFUSAL)).join(": ");
        let error = error.trim_end_matches([':', ' ']);
        let detail = format!(
            "the issuer {} has not signed you in ({error:?}): sign in again, or ask its administrator for access to Ebb",
            pending.issuer
        );
        return Err(forbidden(detail));
    }
    let server = &browser.server;
    let person = server.tokens.issuers.signed_in(pending, (code, answer.get("iss")), &server.env).await?;
    browser.begin(&person).await
}

pub(super) async fn sign_out(session: ConsoleSession, body: Body) -> Response {
    let ended = async {
        session.form(body, MAX_SIGN_OUT).await?;
        let cookie = sessions::end(&session.server, &session.id).await?;
        let page = ebb_console::signed_out(sessions::deployment(&session.server));
        HttpResult::Ok(([(header::SET_COOKIE, cookie)], Html(page)).into_response())
    };
    ended.await.unwrap_or_else(|problem| responses::failure(Some(session.viewer()), problem))
}
