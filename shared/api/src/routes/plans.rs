//! Handles previews of plans: `/v1/plans`.

use axum::Json;
use ebb_protocol::api::{PlanPreview, PreviewPlan};

use super::JsonBody;
use super::permitted::{Permitted, ReadPlugins};
use crate::HttpResult;
use crate::queries::plans;

/// Compiles a document with the published plugins and returns its plan. Stores and starts nothing.
#[utoipa::path(post, path = "/v1/plans", operation_id = "previewPlan", tag = "plugins", request_body = PreviewPlan, responses(
    (status = 200, body = PlanPreview),
    (status = 422, description = "The document has errors."),
))]
pub(crate) async fn preview(
    server: Permitted<ReadPlugins>,
    JsonBody(request): JsonBody<PreviewPlan>,
) -> HttpResult<Json<PlanPreview>> {
    Ok(Json(plans::preview(&server.env, &request.document).await?))
}
