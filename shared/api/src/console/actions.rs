//! Actions on a target, each after a page that states its consequences.

use axum::Json;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Redirect, Response};
use ebb_console::{SelectedTarget, paths};
use ebb_protocol::api::{TargetDetail, TargetDiagnosis};
use ebb_protocol::error_code::ErrorCode;
use ebb_protocol::id::TargetKey;
use ebb_store::TargetHead;

use super::responses;
use super::sessions::ConsoleSession;
use crate::routes::permitted::WriteTargets;
use crate::routes::target_requests::DeleteQuery;
use crate::routes::targets::DetailQuery;
use crate::routes::{self, Path, Query};
use crate::{HttpProblem, HttpResult};

/// The name of the field with the instance that the caller has seen.
const UID: &str = "uid";
/// The name of the field with the run whose failed units the caller has seen.
const RUN: &str = "run";

/// Kind and name of a target.
type TargetPath = Path<(String, String)>;

/// Returns the path of the page of the target, if the path of the request names one.
fn page_of(path: &HttpResult<TargetPath>) -> Option<String> {
    path.as_ref().ok().map(|Path((kind, name))| paths::target(kind, name))
}

/// Returns what a page of a consequence shows, to a caller who may take the action.
async fn seen(session: &ConsoleSession, path: HttpResult<TargetPath>) -> HttpResult<(TargetDetail, TargetDiagnosis)> {
    let Path((kind, name)) = path?;
    session.permitted::<WriteTargets>()?.check_target(TargetKey::new(&kind, &name)).await?;
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

/// Returns the target of a form and its head, if the form shows its present instance.
async fn confirmed(
    session: &ConsoleSession,
    path: HttpResult<TargetPath>,
    (headers, body): (&HeaderMap, Body),
) -> HttpResult<(SelectedTarget, TargetHead)> {
    let Path((kind, name)) = path?;
    let fields = session.form(headers, body).await?;
    let key = TargetKey::new(&kind, &name);
    let head = session.permitted::<WriteTargets>()?.instance(key, Some(fields.get(UID))).await?;
    let run = Some(fields.get(RUN)).filter(|run| !run.is_empty()).map(str::to_owned);
    Ok((SelectedTarget { kind, name, uid: head.uid.clone(), run }, head))
}

/// Checks that a retry repeats units of the run that a page has shown. The target can have been updated or deleted since.
///
/// # Errors
/// Returns 409 for another run.
pub(super) fn check_shown_run(shown: Option<&str>, head: &TargetHead) -> HttpResult<()> {
    let present = head.hook.map(|hook| head.run(hook).to_string());
    match shown {
        Some(shown) if present.as_deref() != Some(shown) => {
            let detail = format!("{} has changed since, and other units would run: open it again", head.target_key());
            Err(HttpProblem::new(ErrorCode::Outdated, detail))
        }
        _ => Ok(()),
    }
}

/// Deletes the instance that the page has shown. One that waits for its name starts then.
pub(super) async fn delete(
    session: ConsoleSession,
    path: HttpResult<TargetPath>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let back = page_of(&path);
    let deleted = async {
        let (SelectedTarget { kind, name, uid, .. }, _) = confirmed(&session, path, (&headers, body)).await?;
        let page = paths::target(&kind, &name);
        let query = Query(DeleteQuery { uid: Some(uid) });
        let request = routes::target_requests::delete(Path((kind, name)), session.permitted()?, query);
        let (_, rest, _) = Box::pin(request).await?;
        HttpResult::Ok((rest, Redirect::to(&page)).into_response())
    };
    deleted.await.unwrap_or_else(|problem| responses::failed_action(session.viewer(), back.as_deref(), problem))
}

/// Retries the failed units of a target.
pub(super) async fn retry(
    session: ConsoleSession,
    path: HttpResult<TargetPath>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let back = page_of(&path);
    let retried = async {
        let (target, head) = confirmed(&session, path, (&headers, body)).await?;
        let SelectedTarget { kind, name, uid, run } = target;
        check_shown_run(run.as_deref(), &head)?;
        let key = TargetKey::new(&kind, &name);
        Box::pin(routes::targets::retry_units(&session.permitted()?, key, &uid)).await?;
        HttpResult::Ok(Redirect::to(&paths::target(&kind, &name)).into_response())
    };
    retried.await.unwrap_or_else(|problem| responses::failed_action(session.viewer(), back.as_deref(), problem))
}
