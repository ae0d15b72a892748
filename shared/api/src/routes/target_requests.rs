//! Handles requests that create, update and delete targets: `POST /v1/targets`, `DELETE /v1/targets/KIND/NAME`.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use ebb_documents::PluginDoc;
use ebb_flow::lifecycle::Protection;
use ebb_flow::operator::target_request::{self, TargetRequest};
use ebb_flow::{FollowUp, telemetry};
use ebb_protocol::sign::MAX_ID;
use ebb_protocol::{ApplyTarget, ErrorCode, LifecycleResponse, TRACEPARENT, TargetKey, TargetReceipt, limits};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::queries::plans;
use crate::{
    ApiPermission, HttpProblem, HttpResult, Path, Permitted, Query, RestOfRequest, ServerState, WriteTargets,
    background,
};

pub(super) type AcceptedChange = (RestOfRequest, TargetReceipt);
type ReceiptResponse = (StatusCode, RestOfRequest, Json<TargetReceipt>);

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct DryRunQuery {
    /// Checks the request, and writes nothing.
    pub(super) dry_run: bool,
}

/// Creates a target or updates a living one. Scope: `targets:write`, and `operate` for the kind `inventory`.
#[utoipa::path(post, path = "/v1/targets", operation_id = "applyTarget", tag = "targets", request_body = ApplyTarget,
    params(DryRunQuery, ("idempotency-key" = Option<String>, Header, description = "The name of the request, 1 to 128 visible ASCII characters. A repetition begins no second instance.", pattern = "^[!-~]{1,128}$")),
    responses(
    (status = 200, body = TargetReceipt, description = "The effect of the request. With `dryRun`."),
    (status = 202, body = TargetReceipt, description = "Accepted. The target shows the outcome.", links(
        ("getTarget" = (operation_id = "getTarget", parameters(("kind" = "$request.body#/kind"), ("name" = "$request.body#/name")))),
        ("explainTarget" = (operation_id = "explainTarget", parameters(("kind" = "$request.body#/kind"), ("name" = "$request.body#/name")))),
        ("deleteTarget" = (operation_id = "deleteTarget", parameters(("kind" = "$request.body#/kind"), ("name" = "$request.body#/name")))),
    )),
))]
pub(crate) async fn apply(
    headers: HeaderMap,
    server: Permitted<WriteTargets>,
    Query(query): Query<DryRunQuery>,
    body: Body,
) -> HttpResult<ReceiptResponse> {
    let key = idempotency_key(&headers)?;
    let target: ApplyTarget = super::read_json_within(body, limits::WEBHOOK_BODY).await?;
    // An inventory names what others have made.
    if target.kind == PluginDoc::INVENTORY {
        server.caller.require(ApiPermission::Operate)?;
    }
    let request = TargetRequest { target, key, access: server.access(), source: None };
    if query.dry_run {
        return Ok((StatusCode::OK, None, Json(previewed(&server, request).await?)));
    }
    let parent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    telemetry::webhook_received(&request.target.kind, &request.target.name, parent);
    let (rest, receipt) = applied(&server, &request).await?;
    Ok((StatusCode::ACCEPTED, rest, Json(receipt)))
}

pub(super) async fn previewed(server: &Permitted<WriteTargets>, request: TargetRequest) -> HttpResult<TargetReceipt> {
    let env = &server.env;
    let (receipt, plan, notes) = match target_request::preview(env, &request).await {
        Ok(preview) => preview,
        Err(error) => return Err(server.rejected(request.target_key(), error).await),
    };
    let plan = plans::shown_plan(env, (request.target.kind, request.target.name), plan, &notes).await?;
    Ok(TargetReceipt { plan: Some(plan), ..receipt })
}

pub(super) async fn applied(server: &Permitted<WriteTargets>, request: &TargetRequest) -> HttpResult<AcceptedChange> {
    match Box::pin(target_request::apply(&server.env, request)).await {
        Ok((response, follow_ups)) => Ok(accepted(server, request.target_key(), response, follow_ups).await),
        Err(error) => Err(server.rejected(request.target_key(), error).await),
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct DeleteQuery {
    /// The identity of the instance. Without it, every instance of the name is deleted that the scopes cover, also one that
    /// waits for it.
    #[param(pattern = r"^(?!\.{1,2}$)([!\x22$&-.0->@-\[\]-~]{1,128}|[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,75})$")]
    pub(crate) uid: Option<String>,
    /// The generation that the caller has seen. An instance with another one is not deleted. Needs `uid`.
    pub(crate) generation: Option<u64>,
    /// Deletes also a target with a resource that has `protect: true`. Scope: `operate`.
    pub(crate) allow_protected: bool,
}

/// Deletes a target. A repetition changes nothing. Scope: `targets:write`.
#[utoipa::path(delete, path = "/v1/targets/{kind}/{name}", operation_id = "deleteTarget", tag = "targets", params(DeleteQuery), responses(
    (status = 202, body = TargetReceipt, description = "The target stops or has stopped."),
))]
pub(crate) async fn delete(
    Path((kind, name)): Path<(String, String)>,
    server: Permitted<WriteTargets>,
    Query(query): Query<DeleteQuery>,
) -> HttpResult<ReceiptResponse> {
    let instance = (query.uid.as_deref(), query.generation, protection(&server, query.allow_protected)?);
    let (rest, receipt) = deleted(&server, TargetKey::new(&kind, &name), instance).await?;
    Ok((StatusCode::ACCEPTED, rest, Json(receipt)))
}

/// Returns the effect of protected resources on a deletion. Only an operator lifts it.
pub(super) fn protection(server: &Permitted<WriteTargets>, allow_protected: bool) -> HttpResult<Protection> {
    if !allow_protected {
        return Ok(Protection::Respected);
    }
    server.caller.require(ApiPermission::Operate).map(|()| Protection::Lifted)
}

/// Deletes the instance with a UID and generation, or every one that the caller may change, and runs the follow-ups.
pub(crate) async fn deleted(
    server: &Permitted<WriteTargets>,
    key: TargetKey<'_>,
    instance: (Option<&str>, Option<u64>, Protection),
) -> HttpResult<AcceptedChange> {
    match Box::pin(target_request::delete(&server.env, key, instance, &server.access())).await? {
        Some((response, follow_ups)) => Ok(accepted(server, key, response, follow_ups).await),
        None => Err(server.refusal(key).await),
    }
}

/// Runs the follow-ups of a request whose state is durable, and returns its receipt.
async fn accepted(
    server: &ServerState,
    key: TargetKey<'_>,
    response: LifecycleResponse,
    follow_ups: Vec<FollowUp>,
) -> AcceptedChange {
    let rest = background::run_follow_ups(&server.env, follow_ups).await;
    (rest, TargetReceipt::of(response, server.env.target_url(key)))
}

fn idempotency_key(headers: &HeaderMap) -> HttpResult<Option<String>> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| (1..=MAX_ID).contains(&text.len()));
    text.map(|text| Some(text.to_owned())).ok_or_else(|| {
        let detail = format!("`Idempotency-Key` is invalid; expected 1 to {MAX_ID} visible ASCII characters");
        HttpProblem::new(ErrorCode::InvalidHeader, detail)
    })
}
