//! Actions on targets, after a page that states the consequences for each one.

use std::collections::BTreeSet;

use axum::Json;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use ebb_console::{BACK, BulkAction, BulkEntry, REASON, paths};
use ebb_flow::advance::early_start;
use ebb_protocol::{
    ActOnTargets, ErrorCode, NamedTarget, TargetInfo, TargetKey, TargetOutcome, TargetOutcomes, TargetPhase,
    TargetSelection,
};
use futures::StreamExt as _;

use super::forms::FormFields;
use super::sessions::ConsoleSession;
use super::{plugins, responses};
use crate::{ApiPermission, HttpProblem, HttpResult, Path, RestOfRequest, WriteTargets, routes};

/// Maximum bytes of a form.
const MAX_FORM: usize = 256 << 10;
/// Targets whose consequences are read at a time.
const CONCURRENT: usize = 8;

/// Shows the consequences of an action on the target of a link, or of an upgrade of all users of other versions. After a sign-in, the browser has lost the selection of a form.
pub(super) async fn show(session: ConsoleSession, RawQuery(query): RawQuery) -> Response {
    let fields = FormFields::parse(query.unwrap_or_default().as_bytes());
    let is_upgrade = matches!(BulkAction::parse(fields.get("action")), Some(BulkAction::Upgrade(_)));
    match fields.get("target") {
        "" if !is_upgrade => Redirect::to(paths::TARGETS).into_response(),
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
        let (action, targets) = selection(session, fields).await?;
        let entries: Vec<BulkEntry> = if let BulkAction::RetryWith(_) | BulkAction::Upgrade(_) = action {
            Box::pin(acted(session, (action, ""), targets, true)).await?.1
        } else {
            let reads = targets.into_iter().map(|target| consequences(session, action, target));
            futures::stream::iter(reads).buffered(CONCURRENT).collect().await
        };
        HttpResult::Ok(ebb_console::bulk_confirmation(session.viewer(), action, &entries, back))
    };
    match page.await {
        Ok(page) => session.respond(paths::TARGETS, Ok(page)),
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
        let (action, targets) = selection(&session, &fields).await?;
        let acted = acted(&session, (action, fields.get(REASON)), targets, false);
        let (rest, entries, status) = Box::pin(acted).await?;
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

/// Takes an action, or tries it. Targets for which the request has no time are refused. The status is that of the refusal of a
/// single target.
async fn acted(
    session: &ConsoleSession,
    (action, reason): (BulkAction<'_>, &str),
    targets: BTreeSet<NamedTarget>,
    dry_run: bool,
) -> HttpResult<(RestOfRequest, Vec<BulkEntry>, StatusCode)> {
    let mut answer = TargetOutcomes::default();
    let mut rest = None;
    if let Some(request) = action.request() {
        let select = TargetSelection::Targets(targets.into_iter().collect());
        let request = ActOnTargets { select, action: request, dry_run };
        (rest, Json(answer)) = routes::target_actions::acted(session.permitted()?, request).await?;
    } else {
        let (server, unit) = (session.permitted()?, action.unit());
        for NamedTarget { kind, name, uid, .. } in targets {
            let instance = (TargetKey::new(&kind, &name), uid.as_deref());
            let done = Box::pin(routes::targets::overridden(&server, instance, unit, (reason, None))).await;
            let outcome = TargetOutcome { uid, ..TargetOutcome::named(kind, name) };
            answer.outcomes.push(match done {
                Ok(_) => outcome,
                Err(HttpProblem(problem)) => outcome.refused(problem),
            });
        }
    }
    let mut outcomes: Vec<_> = answer.outcomes.into_iter().map(|outcome| with_no_effect(action, outcome)).collect();
    if let Some(TargetSelection::Targets(late)) = answer.next {
        outcomes.extend(late.into_iter().map(|NamedTarget { kind, name, uid, .. }| {
            let error = Some("the request has taken too long: select the target again".to_owned());
            TargetOutcome { uid, error, ..TargetOutcome::named(kind, name) }
        }));
    }
    let refusal = if let [only] = &outcomes[..] { only.clone().into_problem() } else { None };
    let status = refusal.and_then(|problem| StatusCode::from_u16(problem.status).ok()).unwrap_or(StatusCode::OK);
    Ok((rest, outcomes.into_iter().map(|outcome| ebb_console::bulk_outcome(action, outcome)).collect(), status))
}

/// Returns the action and the targets of a form, each instance once. Without targets, an upgrade has the users of other versions.
async fn selection<'a>(
    session: &ConsoleSession,
    fields: &'a FormFields,
) -> HttpResult<(BulkAction<'a>, BTreeSet<NamedTarget>)> {
    let invalid = |detail: String| HttpProblem::new(ErrorCode::InvalidQuery, detail);
    // A button of equal failures has the number of its group.
    let (group, retry) = (fields.get("group"), Some(BulkAction::Retry).filter(|_| !fields.get("group").is_empty()));
    let name = if group.is_empty() { "target".to_owned() } else { format!("group-{group}") };
    let action = retry.or_else(|| BulkAction::parse(fields.get("action")));
    let action = action.ok_or_else(|| invalid("the form has no action: open the list again".to_owned()))?;
    let is_override = action.request().is_none();
    session.caller.require(if is_override { ApiPermission::Operate } else { ApiPermission::WriteTargets })?;
    let targets: Option<BTreeSet<NamedTarget>> = fields.all(&name).map(ebb_console::selected_target).collect();
    let mut targets =
        targets.ok_or_else(|| invalid("the form has an invalid target: open the list again".to_owned()))?;
    if let (BulkAction::Upgrade(plugin), true) = (action, targets.is_empty()) {
        let name = plugin.split_once('@').map_or(plugin, |(name, _)| name);
        let users = Box::pin(plugins::users(session, name)).await?.unwrap_or_default();
        let others = users.of_others(plugin).take(TargetSelection::MAX_TARGETS);
        targets.extend(others.map(|TargetInfo { kind, name, uid, .. }| {
            let (kind, name, uid) = (kind.clone(), name.clone(), Some(uid.clone()));
            NamedTarget { kind, name, uid, ..NamedTarget::default() }
        }));
    }
    let (found, max) = (targets.len(), TargetSelection::MAX_TARGETS);
    match found {
        0 => Err(invalid("no target is selected: go back and select at least one".to_owned())),
        _ if found > max => Err(invalid(format!("{found} targets are selected, at most {max} are allowed"))),
        _ => Ok((action, targets)),
    }
}

async fn consequences(session: &ConsoleSession, action: BulkAction<'_>, target: NamedTarget) -> BulkEntry {
    if action.request().is_none() {
        return (target, Ok(String::new()));
    }
    let found = async {
        let path = Path((target.kind.clone(), target.name.clone()));
        let Json(why) = Box::pin(routes::targets::why(path, session.permitted()?)).await?;
        let key = TargetKey::new(&target.kind, &target.name);
        let server = session.permitted::<WriteTargets>()?;
        let head = server.instance(key, target.uid.as_deref()).await?;
        if action == BulkAction::Retry
            && let Some(early) =
                Box::pin(early_start::start_early(&server.env, (key, Some(&head.uid)), None)).await?.transpose()?
        {
            return HttpResult::Ok((Some(early.run), Ok(ebb_console::early_start(&early.units))));
        }
        let waiting = head.waiting.as_ref().map(|waiting| waiting.uid.as_str());
        let run = why.cause.as_ref().map(|cause| cause.run.clone()).filter(|_| action == BulkAction::Retry);
        HttpResult::Ok((run, ebb_console::bulk_consequences(action, &why, waiting, head.source.as_deref())))
    };
    let found = found.await;
    match found {
        Ok((run, consequences)) => (NamedTarget { run, ..target }, consequences),
        Err(HttpProblem(problem)) => (target, Err(problem.detail)),
    }
}

/// Returns an outcome as a refusal if it is the deletion of a stuck target, which the API accepts and which begins nothing.
fn with_no_effect(action: BulkAction<'_>, outcome: TargetOutcome) -> TargetOutcome {
    let begins_nothing = action == BulkAction::Delete && outcome.error.is_none();
    let stuck = outcome.phase.filter(|phase| begins_nothing && *phase == TargetPhase::Stuck);
    match stuck.and_then(ebb_console::no_deletion) {
        Some(reason) => outcome.refused(HttpProblem::new(ErrorCode::Stale, reason).0),
        None => outcome,
    }
}
