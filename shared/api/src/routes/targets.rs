//! Handles targets and decisions of operators: `/v1/targets`.

use axum::Json;
use axum::body::Body;
use axum::http::StatusCode;
use ebb_protocol::{
    ErrorCode, ForceCompleteUnit, ForceDeleteTarget, HistoryChange, OverrideResponse, RejectedEvent, RetryResponse,
    RetryTarget, TargetDetail, TargetDiagnosis, TargetKey, limits, rfc3339,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::permitted::{Operate, Permitted, ReadTargets, WriteTargets};
use super::{JsonBody, NoQuery, Path, Query};
use crate::queries::{sources, target_history, targets, why};
use crate::{ApiPermission, HttpProblem, HttpResult, ServerState};
use ebb_flow::advance::early_start;
use ebb_flow::instance::history::Decision;
use ebb_flow::instance::target_outputs::SensitiveValues;
use ebb_flow::operator::overrides;
use ebb_flow::operator::repair::{self, RepairMode, RepairSource};

pub(super) fn unknown(TargetKey { kind, name }: TargetKey<'_>) -> HttpProblem {
    HttpProblem::not_found(format!("{kind} {name:?} does not exist"))
}

/// Returns the problem of a target that does not exist, with the reason if an event of it was rejected.
async fn missing(server: &ServerState, key: TargetKey<'_>) -> HttpProblem {
    match sources::rejected_event_of(&server.env.store, key).await {
        Ok(Some((source, RejectedEvent { time, delivery, detail, .. }, end))) => {
            let event = format!("source {source} rejected the event {delivery} at {}", rfc3339(time));
            let fix = match end {
                Some(end) => format!("the later event {end} has ended the target, so no event needs to be sent again"),
                None => "fix the cause, then send the event again from the sender".to_owned(),
            };
            let detail = format!("{} {:?} does not exist. {event}: {detail}\n{fix}", key.kind, key.name);
            HttpProblem::new(ErrorCode::EventRejected, detail)
        }
        Ok(None) => unknown(key),
        Err(error) => error.into(),
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DetailQuery {
    /// Limits the outputs to those of a resource, `RESOURCE`, or to one, `RESOURCE/OUTPUT`, without `env`.
    outputs: Option<String>,
    /// Returns the sensitive outputs that Ebb stores. Scope: `targets:reveal`, beside `read`.
    reveal: bool,
}

/// Returns a target with its resources, outputs, runs and units. Without `reveal`, a sensitive value is a reference to a
/// Secret, or `{"sensitive": true}`.
#[utoipa::path(get, path = "/v1/targets/{kind}/{name}", operation_id = "getTarget", tag = "targets", params(DetailQuery), responses(
    (status = 200, body = TargetDetail),
))]
pub(crate) async fn get(
    Path((kind, name)): Path<(String, String)>,
    server: Permitted<ReadTargets>,
    Query(DetailQuery { outputs, reveal }): Query<DetailQuery>,
) -> HttpResult<Json<TargetDetail>> {
    let key = TargetKey::new(&kind, &name);
    let mut values = SensitiveValues::Hidden;
    let target = server.present(key).await?;
    if reveal {
        server.caller.require(ApiPermission::RevealTargets)?;
        target.iter().try_for_each(|target| server.check_permission(ApiPermission::RevealTargets, target))?;
        values = SensitiveValues::Revealed;
    }
    let Some(target) = target else { return Err(missing(&server, key).await) };
    let found = targets::get(&server.env, target, outputs.as_deref(), values);
    let (mut found, revealed) = Box::pin(found).await?;
    found.info.owner_name = server.tokens.issuers.owner_name(found.info.owner.as_deref());
    if reveal {
        server.caller.log_reveal(format_args!("{key}"), &revealed);
    }
    Ok(Json(found))
}

/// Explains the state of a target: the cause, the remaining resources and the next steps.
#[utoipa::path(get, path = "/v1/targets/{kind}/{name}/why", operation_id = "explainTarget", tag = "targets", responses(
    (status = 200, body = TargetDiagnosis),
))]
pub(crate) async fn why(
    Path((kind, name)): Path<(String, String)>,
    server: Permitted<ReadTargets>,
) -> HttpResult<Json<TargetDiagnosis>> {
    let key = TargetKey::new(&kind, &name);
    match server.present(key).await? {
        Some(target) => {
            let mut diagnosis = Box::pin(why::why(&server.env, target.clone())).await?;
            // A limited caller does not see subscriptions.
            if !server.access().is_limited() {
                diagnosis.notes.extend(target_history::unaccepted(&server.env.store, &target).await?);
            }
            Ok(Json(diagnosis))
        }
        None => Err(missing(&server, key).await),
    }
}

/// Retries the failed units of a failed or stuck target, or starts the units of another one that wait for a time. With
/// `plugin`, the teardown of a stuck target continues with the units of another version of a plugin, with `document` with the
/// own units of a corrected document. Scope: `targets:write`.
#[utoipa::path(post, path = "/v1/targets/{kind}/{name}/retry", operation_id = "retryTarget", tag = "targets", request_body(content = Option<RetryTarget>, description = "Optional."), responses(
    (status = 200, body = RetryResponse, description = "The changes of a dry run."),
    (status = 202, body = RetryResponse),
))]
pub(crate) async fn retry(
    Path((kind, name)): Path<(String, String)>,
    server: Permitted<WriteTargets>,
    _: NoQuery,
    body: Body,
) -> HttpResult<(StatusCode, Json<RetryResponse>)> {
    let key = TargetKey::new(&kind, &name);
    let RetryTarget { uid, plugin, document, dry_run } = super::read_optional_json(body).await?;
    // The body can arrive slowly, and another owner can get the name meanwhile.
    let uid = server.instance(key, uid.as_deref()).await?.uid;
    let source = RepairSource::of(plugin.as_deref(), document.as_deref())?;
    if dry_run && source.is_none() {
        let detail = "`dryRun` needs `plugin` or `document`; `GET …/why` lists the failed units";
        return Err(HttpProblem::new(ErrorCode::MissingField, detail));
    }
    let (mode, status) = match dry_run {
        true => (RepairMode::Preview, StatusCode::OK),
        false => (RepairMode::Make, StatusCode::ACCEPTED),
    };
    Ok((status, Json(Box::pin(retried(&server, (key, &uid), source, mode)).await?)))
}

/// Retries the failed or waiting units of the instance `uid` of a target, which the caller may change, or continues its teardown
/// with the units of `source`. Only that has a preview.
pub(crate) async fn retried(
    server: &Permitted<WriteTargets>,
    (key, uid): (TargetKey<'_>, &str),
    source: Option<RepairSource<'_>>,
    mode: RepairMode,
) -> HttpResult<RetryResponse> {
    let by = Some(server.caller.name());
    if let Some(source) = source {
        return Ok(repair::repair(&server.env, (key, Some(uid)), (source, by), mode).await?);
    }
    let decision = Decision { change: HistoryChange::Retried, by, reason: None };
    Ok(early_start::retry_now(&server.env, (key, Some(uid)), decision).await??)
}

/// Overrides the failed unit `unit` of the present instance or, without it, all units that are not done. The operator that is
/// stored is the one of the request, otherwise the verified name of the caller.
pub(crate) async fn overridden(
    server: &Permitted<Operate>,
    (key, uid): (TargetKey<'_>, Option<&str>),
    unit: Option<&str>,
    (reason, by): (&str, Option<String>),
) -> HttpResult<(StatusCode, Json<OverrideResponse>)> {
    let uid = server.instance(key, uid).await?.uid;
    let by = by.or_else(|| Some(limits::excerpt(server.caller.own_name()?, overrides::MAX_OPERATOR - 1)));
    let caller = Some(server.caller.name());
    let response = overrides::force(&server.env, (key, Some(&uid)), unit, (reason, by.as_deref()), caller).await??;
    Ok((StatusCode::ACCEPTED, Json(response)))
}

/// Marks a failed unit of a stuck target's teardown as complete. The teardown continues. The resources that the unit
/// removes may still exist. Scope: `operate`.
#[utoipa::path(post, path = "/v1/targets/{kind}/{name}/force-complete", operation_id = "forceCompleteUnit", tag = "targets", request_body = ForceCompleteUnit, responses(
    (status = 202, body = OverrideResponse),
))]
pub(crate) async fn force_complete(
    Path((kind, name)): Path<(String, String)>,
    server: Permitted<Operate>,
    JsonBody(request): JsonBody<ForceCompleteUnit>,
) -> HttpResult<(StatusCode, Json<OverrideResponse>)> {
    let instance = (TargetKey::new(&kind, &name), request.uid.as_deref());
    overridden(&server, instance, Some(&request.unit), (&request.reason, request.by)).await
}

/// Force-deletes a stuck target. Its remaining resources may still exist. Scope: `operate`.
#[utoipa::path(post, path = "/v1/targets/{kind}/{name}/force-delete", operation_id = "forceDeleteTarget", tag = "targets", request_body = ForceDeleteTarget, responses(
    (status = 202, body = OverrideResponse),
))]
pub(crate) async fn force_delete(
    Path((kind, name)): Path<(String, String)>,
    server: Permitted<Operate>,
    JsonBody(request): JsonBody<ForceDeleteTarget>,
) -> HttpResult<(StatusCode, Json<OverrideResponse>)> {
    let instance = (TargetKey::new(&kind, &name), request.uid.as_deref());
    overridden(&server, instance, None, (&request.reason, request.by)).await
}
