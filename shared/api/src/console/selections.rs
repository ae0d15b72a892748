//! Actions on targets, after a page that states the consequences for each one.

use std::collections::BTreeSet;

use axum::Json;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use ebb_console::{BACK, BulkAction, BulkEntry, paths};
use ebb_flow::advance::early_start;
use ebb_protocol::{ActOnTargets, ErrorCode, NamedTarget, TargetKey, TargetOutcome, TargetPhase, TargetSelection};
use futures::StreamExt as _;

use super::forms::FormFields;
use super::responses;
use super::sessions::ConsoleSession;
use crate::{HttpProblem, HttpResult, Path, WriteTargets, routes};

/// Maximum bytes of a form.
const MAX_FORM: usize = 256 << 10;
/// Targets whose consequences are read at a time.
const CONCURRENT: usize = 8;

/// Shows the consequences of an action on the target of a link. After a sign-in, the browser has lost the selection of a form.
pub(super) async fn show(session: ConsoleSession, RawQuery(query): RawQuery) -> Response {
    let fields = FormFields::parse(query.unwrap_or_default().as_bytes());
    match fields.get("target") {
        "" => Redirect::to(paths::ROOT).into_response(),
        _ => confirmation(&session, &fields).await,
    }
}

pub(super) async fn confirm(session: ConsoleSession, body: Body) -> Response {
    match session.form(body, MAX_FORM).await {
        Ok(fields) => confirmation(&session, &fields).await,
        Err(problem) => responses::failed_action(session.viewer(), None, problem),
    }
}

async fn confirmation(session: &ConsoleSession, fields: &FormFields) -> Response {
    let back = fields.get(BACK);
    let page = async {
        let (action, targets) = selection(session, fields)?;
        let reads = targets.into_iter().map(|target| consequences(session, action, target));
        let entries: Vec<BulkEntry> = futures::stream::iter(reads).buffered(CONCURRENT).collect().await;
        HttpResult::Ok(ebb_console::bulk_confirmation(session.viewer(), action, &entries, back))
    };
    match page.await {
        Ok(page) => session.respond(paths::ROOT, Ok(page)),
        Err(problem) => responses::failed_action(session.viewer(), Some(paths::safe_next(back)), problem),
    }
}

/// Takes an action on the selected targets, and shows the outcome for each one. If one target was selected, a refusal has its
/// status, and a success leads back to the page of the target, if it came from there.
pub(super) async fn execute(session: ConsoleSession, body: Body) -> Response {
    let fields = match session.form(body, MAX_FORM).await {
        Ok(fields) => fields,
        Err(problem) => return responses::failed_action(session.viewer(), None, problem),
    };
    let back = fields.get(BACK);
    let response = async {
        let (action, targets) = selection(&session, &fields)?;
        let select = TargetSelection::Targets(targets.into_iter().collect());
        let request = ActOnTargets { select, action: action.request(), dry_run: false };
        let acted = routes::target_actions::acted(session.permitted()?, request);
        let (rest, Json(answer)) = Box::pin(acted).await?;
        let outcomes: Vec<TargetOutcome> =
            answer.outcomes.into_iter().map(|outcome| with_no_effect(action, outcome)).collect();
        let refusal = if let [only] = &outcomes[..] { only.clone().into_problem() } else { None };
        let status = refusal.and_then(|problem| StatusCode::from_u16(problem.status).ok()).unwrap_or(StatusCode::OK);
        let mut entries: Vec<BulkEntry> = outcomes.into_iter().map(|outcome| entry(action, outcome)).collect();
        if let Some(TargetSelection::Targets(late)) = answer.next {
            let reason = "the request has taken too long: select the target again";
            entries.extend(late.into_iter().map(|target| (target, Err(reason.to_owned()))));
        }
        if let [(NamedTarget { kind, name, .. }, Ok(_))] = &entries[..]
            && paths::target(kind, name) == back
        {
            return HttpResult::Ok((rest, Redirect::to(back)).into_response());
        }
        let page = ebb_console::bulk_outcomes(session.viewer(), action, &entries, back);
        HttpResult::Ok((status, rest, Html(page)).into_response())
    };
    let response = response.await;
    response.unwrap_or_else(|problem| responses::failed_action(session.viewer(), Some(paths::safe_next(back)), problem))
}

/// Returns the action and the targets of a form, each instance once.
fn selection(session: &ConsoleSession, fields: &FormFields) -> HttpResult<(BulkAction, BTreeSet<NamedTarget>)> {
    let invalid = |detail: String| HttpProblem::new(ErrorCode::InvalidQuery, detail);
    session.permitted::<WriteTargets>()?;
    let action = BulkAction::parse(fields.get("action"));
    let action = action.ok_or_else(|| invalid("the form has no action: open the list again".to_owned()))?;
    let targets: Option<BTreeSet<NamedTarget>> = fields.all("target").map(ebb_console::selected_target).collect();
    let targets = targets.ok_or_else(|| invalid("the form has an invalid target: open the list again".to_owned()))?;
    let (found, max) = (targets.len(), TargetSelection::MAX_TARGETS);
    match found {
        0 => Err(invalid("no target is selected: go back and select at least one".to_owned())),
        _ if found > max => Err(invalid(format!("{found} targets are selected, at most {max} are allowed"))),
        _ => Ok((action, targets)),
    }
}

async fn consequences(session: &ConsoleSession, action: BulkAction, target: NamedTarget) -> BulkEntry {
    let found = async {
        let path = Path((target.kind.clone(), target.name.clone()));
        let Json(why) = Box::pin(routes::targets::why(path, session.permitted()?)).await?;
        let key = TargetKey::new(&target.kind, &target.name);
        let server = session.permitted::<WriteTargets>()?;
        let head = server.instance(key, target.uid.as_deref()).await?;
        let early = match action {
            BulkAction::Retry => {
                Box::pin(early_start::start_early(&server.env, (key, Some(&head.uid)), None)).await?.transpose()?
            }
            BulkAction::Delete => None,
        };
        if let Some(early) = early {
            return HttpResult::Ok((Some(early.run), Ok(ebb_console::early_start(&early.units))));
        }
        let waiting = head.waiting.as_ref().map(|waiting| waiting.uid.as_str());
        let run = ebb_console::failed_run(&why).filter(|_| action == BulkAction::Retry).map(str::to_owned);
        HttpResult::Ok((run, ebb_console::bulk_consequences(action, &why, waiting, head.source.as_deref())))
    };
    let found = found.await;
    match found {
        Ok((run, consequences)) => (NamedTarget { run, ..target }, consequences),
        Err(HttpProblem(problem)) => (target, Err(problem.detail)),
    }
}

/// Returns an outcome as a refusal if it is the deletion of a stuck target, which the API accepts and which begins nothing.
fn with_no_effect(action: BulkAction, outcome: TargetOutcome) -> TargetOutcome {
    let is_stuck = outcome.error.is_none() && outcome.phase == Some(TargetPhase::Stuck);
    match ebb_console::no_deletion(TargetPhase::Stuck) {
        Some(reason) if is_stuck && action == BulkAction::Delete => {
            let HttpProblem(problem) = HttpProblem::new(ErrorCode::Stale, reason);
            outcome.refused(problem)
        }
        _ => outcome,
    }
}

fn entry(action: BulkAction, TargetOutcome { kind, name, uid, phase, error, .. }: TargetOutcome) -> BulkEntry {
    let done = match action {
        BulkAction::Retry => "Accepted: its failed or waiting units start.",
        BulkAction::Delete => phase.and_then(ebb_console::no_deletion).unwrap_or("Accepted: its teardown begins."),
    };
    (NamedTarget { kind, name, uid, ..NamedTarget::default() }, error.map_or_else(|| Ok(done.to_owned()), Err))
}
