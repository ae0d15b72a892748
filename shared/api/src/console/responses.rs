//! Responses to browsers: headers, entity tags, redirects, assets and pages of failures.

use axum::extract::Path;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Redirect, Response};
use ebb_console::{ConsoleViewer, FailureView, assets, paths};
use ebb_protocol::{ErrorCode, short_digest};

use crate::HttpProblem;

/// The next step of a viewer without a scope.
const NEEDS_SCOPE: &str = "The scopes are those of your token, or of the rules of your issuer. After an operator has \
                           given you the scope, sign out and sign in again.";

/// The headers of each response. The pages need scripts, styles and requests of their own origin only, and no other page
/// may contain them. `same-origin` keeps the header `Origin` of forms, which `no-referrer` would remove.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
         frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];
const FOREVER: &str = "public, max-age=31536000, immutable";
/// The characters of an entity tag.
const TAG: usize = 32;

/// Adds the headers of all responses. Pages are not stored, unless they are assets.
pub(super) async fn secured(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-store"));
    response
}

/// Returns the entity tags that a browser has, without quotation marks.
pub(super) fn known_tags(request: &HeaderMap) -> Vec<&str> {
    let known = request.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).unwrap_or_default();
    known.split(',').map(|one| one.trim().trim_start_matches("W/").trim_matches('"')).collect()
}

/// Returns a page, or 304 if the browser has it. The entity tag of a page with a stamp is `STAMP.CONTENT`. The tag does
/// not cover the form token, because each response has another one.
pub(super) fn page(request: &HeaderMap, (stamp, form_token): (&str, &str), html: String) -> Response {
    let content = short_digest(&["console page", &html.replace(form_token, "")], TAG);
    let tag = if stamp.is_empty() { content.clone() } else { format!("{stamp}.{content}") };
    // The stamp can differ although the page shows the same.
    let is_known = known_tags(request).into_iter().any(|known| known.rsplit('.').next() == Some(content.as_str()));
    if is_known { unchanged(&tag) } else { ([(header::ETAG, quoted(&tag))], Html(html)).into_response() }
}

/// Returns the response to a browser that has the page with this entity tag.
pub(super) fn unchanged(tag: &str) -> Response {
    (StatusCode::NOT_MODIFIED, [(header::ETAG, quoted(tag))]).into_response()
}

/// A weak tag is that of a page with and without compression.
fn quoted(tag: &str) -> String {
    format!("W/\"{tag}\"")
}

/// Returns the page of a failure. Its status is that of the problem.
pub(super) fn failure(viewer: Option<ConsoleViewer<'_>>, problem: HttpProblem) -> Response {
    failure_with(viewer, paths::ROOT, problem, FailureView::default())
}

/// Returns the page of a failed action, which leads back to the page with the path `back`.
pub(super) fn failed_action(viewer: ConsoleViewer<'_>, back: Option<&str>, problem: HttpProblem) -> Response {
    failure_with(Some(viewer), paths::TARGETS, problem, FailureView { back, ..FailureView::default() })
}

/// Returns the page of a failure with the title and the reason of the problem.
pub(super) fn failure_with(
    viewer: Option<ConsoleViewer<'_>>,
    section: &str,
    problem: HttpProblem,
    view: FailureView<'_>,
) -> Response {
    let status = StatusCode::from_u16(problem.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let title = status.canonical_reason().unwrap_or("Failure");
    let next_step = problem.is(ErrorCode::Forbidden).then_some(NEEDS_SCOPE);
    let view = FailureView { title, detail: &problem.0.detail, next_step, ..view };
    (status, Html(ebb_console::failure(viewer, section, view))).into_response()
}

pub(super) async fn to_console() -> Redirect {
    Redirect::to(paths::ROOT)
}

pub(super) async fn asset(Path(file): Path<String>) -> Response {
    let Some(asset) = assets::find(&format!("{}/assets/{file}", paths::ROOT)) else {
        return failure(None, HttpProblem::not_found("the file is not of this version: load the page again"));
    };
    let headers = [(header::CONTENT_TYPE, asset.content_type), (header::CACHE_CONTROL, FOREVER)];
    (headers, asset.content).into_response()
}
