//! Actions on several targets of the list, after a page that states the consequences for each one.

use std::collections::BTreeSet;

use axum::Json;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::{Html, IntoResponse as _, Response};
use ebb_console::{BulkAction, BulkEntry, SelectedTarget, paths};
use ebb_engine::Millis;
use ebb_flow::ports::SteadyTime;
use ebb_protocol::api::TargetState;
use ebb_protocol::error_code::ErrorCode;
use ebb_protocol::id::TargetKey;
use ebb_store::TargetHead;
use futures::StreamExt as _;

use super::forms::FormFields;
use super::sessions::ConsoleSession;
use super::{actions, responses};
use crate::background::RemainingWork;
use crate::routes::permitted::WriteTargets;
use crate::routes::target_requests::DeleteQuery;
use crate::routes::{self, Path, Query};
use crate::{HttpProblem, HttpResult};

/// Maximum targets of a form. A page of the list has as many.
const MAX_SELECTED: usize = 100;
/// The name of the field with the path of the page of the list that has the targets.
const BACK: &str = "back";
/// Maximum bytes of a form.
const MAX_FORM: usize = 256 << 10;
/// Requests at a time.
const CONCURRENT: usize = 8;
/// The time after which no further request begins.
const LATEST: Millis = Millis(15_000);

/// Shows the consequences of an action on the selected targets.
pub(super) async fn confirm(session: ConsoleSession, headers: HeaderMap, body: Body) -> Response {
    let fields = match session.form_within(&headers, body, MAX_FORM).await {
        Ok(fields) => fields,
        Err(problem) => return responses::failed_action(session.viewer(), None, problem),
    };
    let back = fields.get(BACK);
    let page = async {
        let (action, targets) = selection(&session, &fields)?;
        let reads = targets.into_iter().map(|target| consequences(&session, action, target));
        let entries: Vec<BulkEntry> = futures::stream::iter(reads).buffered(CONCURRENT).collect().await;
        HttpResult::Ok(ebb_console::bulk_confirmation(session.viewer(), action, &entries, back))
    };
    match page.await {
        Ok(page) => session.respond(paths::ROOT, Ok(page)),
        Err(problem) => responses::failed_action(session.viewer(), Some(paths::safe_next(back)), problem),
    }
}

/// Takes an action on the selected targets, and shows the outcome for each one.
pub(super) async fn execute(session: ConsoleSession, headers: HeaderMap, body: Body) -> Response {
    let fields = match session.form_within(&headers, body, MAX_FORM).await {
        Ok(fields) => fields,
        Err(problem) => return responses::failed_action(session.viewer(), None, problem),
    };
    let back = fields.get(BACK);
    let response = async {
        let (action, targets) = selection(&session, &fields)?;
        let begun = session.server.env.steady();
        let requests = targets.into_iter().map(|target| outcome(&session, (action, begun), target));
        let outcomes: Vec<(BulkEntry, Option<RemainingWork>)> =
            futures::stream::iter(requests).buffered(CONCURRENT).collect().await;
        let (entries, works): (Vec<BulkEntry>, Vec<Option<RemainingWork>>) = outcomes.into_iter().unzip();
        let page = ebb_console::bulk_outcomes(session.viewer(), action, &entries, back);
        HttpResult::Ok((RemainingWork::joined(works.into_iter().flatten()), Html(page)).into_response())
    };
    let response = response.await;
    response.unwrap_or_else(|problem| responses::failed_action(session.viewer(), Some(paths::safe_next(back)), problem))
}

/// Returns the action and the targets of a form, each instance once.
fn selection(session: &ConsoleSession, fields: &FormFields) -> HttpResult<(BulkAction, BTreeSet<SelectedTarget>)> {
    let invalid = |detail: String| HttpProblem::new(ErrorCode::InvalidQuery, detail);
    session.permitted::<WriteTargets>()?;
    let action = BulkAction::parse(fields.get("action"));
    let action = action.ok_or_else(|| invalid("the form has no action: open the list again".to_owned()))?;
    let targets: Option<BTreeSet<SelectedTarget>> = fields.all("target").map(SelectedTarget::parse).collect();
    match targets {
        None => Err(invalid("the form has an invalid target: open the list again".to_owned())),
        Some(targets) if targets.is_empty() => {
            Err(invalid("no target is selected: go back and select at least one".to_owned()))
        }
        Some(targets) if targets.len() > MAX_SELECTED => {
            Err(invalid(format!("{} targets are selected, at most {MAX_SELECTED} are allowed", targets.len())))
        }
        Some(targets) => Ok((action, targets)),
    }
}

/// Returns the reason of a problem, as a sentence.
fn reason(HttpProblem(problem): HttpProblem) -> String {
    problem.detail
}

async fn consequences(session: &ConsoleSession, action: BulkAction, target: SelectedTarget) -> BulkEntry {
    let found = async {
        let path = Path((target.kind.clone(), target.name.clone()));
        let Json(why) = Box::pin(routes::targets::why(path, session.permitted()?)).await?;
        let head = permitted(session, &target).await?;
        let waiting = head.waiting.as_ref().map(|waiting| waiting.uid.as_str());
        let run = ebb_console::failed_run(&why).map(str::to_owned);
        HttpResult::Ok((run, ebb_console::bulk_consequences(action, &why, waiting, head.source.as_deref())))
    };
    let found = found.await;
    match found {
        Ok((run, consequences)) => (SelectedTarget { run, ..target }, consequences),
        Err(problem) => (target, Err(reason(problem))),
    }
}

/// Returns the head of a target, if the caller may change it and the selected instance has the name.
async fn permitted(session: &ConsoleSession, target: &SelectedTarget) -> HttpResult<TargetHead> {
    let key = TargetKey::new(&target.kind, &target.name);
    session.permitted::<WriteTargets>()?.instance(key, Some(&target.uid)).await
}

/// Takes an action on a target. The rest of the work follows the response.
async fn outcome(
    session: &ConsoleSession,
    (action, begun): (BulkAction, SteadyTime),
    target: SelectedTarget,
) -> (BulkEntry, Option<RemainingWork>) {
    if session.server.env.steady().since(begun) > LATEST {
        let late = "the request has taken too long: select the target again".to_owned();
        return ((target, Err(late)), None);
    }
    let request = async {
        let head = permitted(session, &target).await?;
        match action {
            BulkAction::Delete => {
                let phase = head.phase.into();
                let no_effect = ebb_console::no_deletion(phase);
                if let Some(reason) = no_effect.filter(|_| phase == TargetState::Stuck) {
                    return Err(HttpProblem::new(ErrorCode::Stale, reason));
                }
                let path = Path((target.kind.clone(), target.name.clone()));
                let query = Query(DeleteQuery { uid: Some(target.uid.clone()) });
                let request = routes::target_requests::delete(path, session.permitted()?, query);
                let (_, rest, _) = Box::pin(request).await?;
                HttpResult::Ok((no_effect.unwrap_or("Accepted: its teardown begins."), rest.map(|rest| rest.0)))
            }
            BulkAction::Retry => {
                actions::check_shown_run(target.run.as_deref(), &head)?;
                let (server, key) = (session.permitted()?, TargetKey::new(&target.kind, &target.name));
                Box::pin(routes::targets::retry_units(&server, key, &target.uid)).await?;
                Ok(("Accepted: its failed units run again.", None))
            }
        }
    };
    let outcome = request.await;
    match outcome {
        Ok((text, rest)) => ((target, Ok(text.to_owned())), rest),
        Err(problem) => ((target, Err(reason(problem))), None),
    }
}
