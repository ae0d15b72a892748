//! Actions on a target, each after a page that states its consequences.

use axum::Json;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Redirect, Response};
use ebb_console::paths;
use ebb_protocol::api::{TargetDetail, TargetDiagnosis};
use ebb_protocol::id::TargetKey;

use super::responses;
use super::sessions::ConsoleSession;
use crate::routes::target_requests::DeleteQuery;
use crate::routes::targets::DetailQuery;
use crate::routes::{self, Path, Query};
use crate::{HttpProblem, HttpResult};

/// The name of the field with the instance that the caller has seen.
const UID: &str = "uid";

/// Kind and name of a target.
type TargetPath = Path<(String, String)>;

async fn seen(session: &ConsoleSession, path: HttpResult<TargetPath>) -> HttpResult<(TargetDetail, TargetDiagnosis)> {
    let Path((kind, name)) = path?;
    let path = || Path((kind.clone(), name.clone()));
    let detail = routes::targets::get(path(), session.permitted()?, Query(DetailQuery::default()));
    let Json(detail) = Box::pin(detail).await?;
    let Json(why) = Box::pin(routes::targets::why(path(), session.permitted()?)).await?;
    Ok((detail, why))
}

/// Shows the consequences of a deletion.
pub(super) async fn confirm_delete(session: ConsoleSession, path: HttpResult<TargetPath>) -> Response {
    let seen = seen(&session, path).await;
    let page = seen.map(|(detail, why)| ebb_console::delete_confirmation(session.viewer(), &detail, &why));
    session.respond(paths::ROOT, page)
}

/// Shows the consequences of a retry.
pub(super) async fn confirm_retry(session: ConsoleSession, path: HttpResult<TargetPath>) -> Response {
    let seen = seen(&session, path).await;
    let page = seen.map(|(detail, why)| ebb_console::retry_confirmation(session.viewer(), &detail, &why));
    session.respond(paths::ROOT, page)
}

/// Returns the names of the target of a form, if the form shows its present instance.
async fn confirmed(
    session: &ConsoleSession,
    path: HttpResult<TargetPath>,
    (headers, body): (&HeaderMap, Body),
) -> HttpResult<(String, String)> {
    let Path((kind, name)) = path?;
    let fields = session.form(headers, body).await?;
    let key = TargetKey::new(&kind, &name);
    let present = session.server.env.store.read_target(key).await?;
    if present.is_some_and(|target| target.uid == fields.get(UID)) {
        return Ok((kind, name));
    }
    Err(HttpProblem::not_found(format!("the page has shown another instance of {key}: open it again")))
}

/// Deletes every instance of a target.
pub(super) async fn delete(
    session: ConsoleSession,
    path: HttpResult<TargetPath>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let deleted = async {
        let (kind, name) = confirmed(&session, path, (&headers, body)).await?;
        let page = paths::target(&kind, &name);
        let query = Query(DeleteQuery::default());
        let request = routes::target_requests::delete(Path((kind, name)), session.permitted()?, query);
        let (_, rest, _) = Box::pin(request).await?;
        HttpResult::Ok((rest, Redirect::to(&page)).into_response())
    };
    deleted.await.unwrap_or_else(|problem| responses::failure(Some(session.viewer()), paths::ROOT, problem))
}

/// Retries the failed units of a target.
pub(super) async fn retry(
    session: ConsoleSession,
    path: HttpResult<TargetPath>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let retried = async {
        let (kind, name) = confirmed(&session, path, (&headers, body)).await?;
        let page = paths::target(&kind, &name);
        let request = routes::targets::retry(Path((kind, name)), session.permitted()?, Body::empty());
        Box::pin(request).await.map(drop)?;
        HttpResult::Ok(Redirect::to(&page).into_response())
    };
    retried.await.unwrap_or_else(|problem| responses::failure(Some(session.viewer()), paths::ROOT, problem))
}
