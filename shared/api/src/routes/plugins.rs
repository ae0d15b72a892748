//! Handles plugins and their versions, and previews of plans: `/v1/plugins`, `/v1/plans`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use ebb_protocol::{DocumentBody, OWN_HOOKS, PlanPreview, PluginDetail, PluginInfo, PluginList, SigningSecrets};

use super::permitted::{self, Permitted, ReadPlugins};
use super::target_requests::DryRunQuery;
use crate::queries::{plans, plugins};
use crate::{ApiPermission, HttpProblem, HttpResult, JsonBody, NoQuery, Path, Query, ServerState, no_store};

/// Lists all versions of all plugins that are not withdrawn.
#[utoipa::path(get, path = "/v1/plugins", operation_id = "listPlugins", tag = "plugins", responses(
    (status = 200, body = PluginList),
))]
pub(crate) async fn list(_: NoQuery, server: Permitted<ReadPlugins>) -> HttpResult<Json<PluginList>> {
    Ok(Json(PluginList { plugins: plugins::list(&server.env.store).await? }))
}

/// Publishes a version. A version is immutable. Publishing the same document again changes nothing, or reverses a
/// withdrawal. Scope: `plugins:write` or `plugins:write:NAME`.
#[utoipa::path(post, path = "/v1/plugins", operation_id = "publishPlugin", tag = "plugins", request_body = DocumentBody, responses(
    (status = 200, body = PluginInfo, description = "The same document was published before."),
    (status = 201, body = PluginInfo),
))]
pub(crate) async fn publish(
    server: Permitted<permitted::PublishPlugin>,
    JsonBody(request): JsonBody<DocumentBody>,
) -> HttpResult<(StatusCode, Json<PluginInfo>)> {
    let now = server.env.now();
    let permit = |name: &str| server.caller.require(ApiPermission::WritePlugin(name));
    let (info, is_new) = plugins::publish(&server.env.store, &request.document, now, permit).await?;
    if !is_new {
        return Ok((StatusCode::OK, Json(info)));
    }
    server.caller.log_change("publish plugin", format_args!("{}@{}", info.name, info.version));
    Ok((StatusCode::CREATED, Json(info)))
}

/// Lists the versions of a plugin that are not withdrawn, the highest first.
#[utoipa::path(get, path = "/v1/plugins/{name}", operation_id = "listPluginVersions", tag = "plugins", responses(
    (status = 200, body = PluginList),
))]
pub(crate) async fn versions(
    _: NoQuery,
    Path(name): Path<String>,
    server: Permitted<ReadPlugins>,
) -> HttpResult<Json<PluginList>> {
    let plugins = plugins::versions(&server.env.store, &name).await?;
    if plugins.is_empty() {
        return Err(HttpProblem::not_found(format!("no plugin {name:?} is published")));
    }
    Ok(Json(PluginList { plugins }))
}

/// Returns the secrets that sign the requests of a plugin's webhook units. Existing targets continue to use them after
/// all versions are withdrawn. `_target` has those of the own units of targets. Scope: `plugins:write` or `plugins:write:NAME`.
#[utoipa::path(get, path = "/v1/plugins/{name}/signing-secret", operation_id = "getSigningSecrets", tag = "plugins", responses(
    (status = 200, body = SigningSecrets),
))]
pub(crate) async fn signing_secrets(
    State(server): State<ServerState>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> HttpResult<(HeaderMap, Json<SigningSecrets>)> {
    server.authorize(&headers, ApiPermission::WritePlugin(&name)).await?;
    if name != OWN_HOOKS && server.env.store.list_versions(&name).await?.is_empty() {
        return Err(HttpProblem::not_found(format!("no plugin {name:?} is published")));
    }
    let keys = server.env.settings.unit_keys.for_plugin(&name);
    let secrets = keys.reveal().iter().map(|secret| secret.to_string()).collect();
    Ok((no_store(), Json(SigningSecrets { plugin: name, secrets })))
}

/// Returns a version with its document, also a withdrawn one. `latest` is the highest version that is not withdrawn, and
/// `2` or `2.1` the highest one with these numbers.
#[utoipa::path(get, path = "/v1/plugins/{name}/versions/{version}", operation_id = "getPluginVersion", tag = "plugins", responses(
    (status = 200, body = PluginDetail),
))]
pub(crate) async fn get(
    Path((name, version)): Path<(String, String)>,
    server: Permitted<ReadPlugins>,
) -> HttpResult<Json<PluginDetail>> {
    let found = plugins::get(&server.env.store, &name, &version).await?;
    found.map(Json).ok_or_else(|| HttpProblem::not_found(format!("plugin {name}@{version} is not published")))
}

/// Withdraws a version: new targets cannot use it, existing targets keep it. `latest` is the highest version that is not
/// withdrawn. Scope: `plugins:write` or `plugins:write:NAME`.
#[utoipa::path(delete, path = "/v1/plugins/{name}/versions/{version}", operation_id = "deletePluginVersion", tag = "plugins", params(DryRunQuery), responses(
    (status = 204),
))]
pub(crate) async fn delete(
    State(server): State<ServerState>,
    headers: HeaderMap,
    Path((name, version)): Path<(String, String)>,
    Query(DryRunQuery { dry_run }): Query<DryRunQuery>,
) -> HttpResult<StatusCode> {
    let caller = server.authorize(&headers, ApiPermission::WritePlugin(&name)).await?;
    if dry_run && plugins::get(&server.env.store, &name, &version).await?.is_some() {
        return Ok(StatusCode::NO_CONTENT);
    }
    if dry_run || !plugins::withdraw(&server.env.store, &name, &version, server.env.now()).await? {
        return Err(HttpProblem::not_found(format!("plugin {name}@{version} is not published")));
    }
    caller.log_change("withdraw plugin", format_args!("{name}@{version}"));
    Ok(StatusCode::NO_CONTENT)
}

/// Compiles a document with the published plugins and returns its plan. Stores and starts nothing.
#[utoipa::path(post, path = "/v1/plans", operation_id = "previewPlan", tag = "plugins", request_body = DocumentBody, responses(
    (status = 200, body = PlanPreview),
))]
pub(crate) async fn preview(
    server: Permitted<ReadPlugins>,
    JsonBody(request): JsonBody<DocumentBody>,
) -> HttpResult<Json<PlanPreview>> {
    Ok(Json(plans::preview(&server.env, &request.document).await?))
}
