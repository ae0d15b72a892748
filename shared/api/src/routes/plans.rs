//! Handles previews of plans: `/v1/plans`.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use ebb_protocol::api::{PlanPreview, PreviewPlan};

use super::auth::ApiPermission;
use crate::queries::plans;
use crate::{HttpProblem, ServerState};

/// Compiles a document with the published plugins and returns its plan. Stores and starts nothing.
#[utoipa::path(post, path = "/v1/plans", operation_id = "previewPlan", tag = "plugins", request_body = PreviewPlan, responses(
    (status = 200, body = PlanPreview),
    (status = 413, description = "The body is larger than 5 MiB."),
    (status = 422, description = "The document has errors."),
))]
pub(crate) async fn preview(
    State(server): State<ServerState>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<PlanPreview>, HttpProblem> {
    server.authorize(&headers, ApiPermission::ReadPlugins).await?;
    let request: PreviewPlan = super::read_json(body).await?;
    Ok(Json(plans::preview(&server.env, server.store.as_ref(), &request.document).await?))
}
