//! Handles the feed of changed targets: `/v1/changes`.

use axum::Json;
use ebb_protocol::{ChangeList, ErrorCode, TargetAccess};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::queries::target_changes;
use crate::{HttpProblem, HttpResult, Permitted, Query, ReadTargets};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangesQuery {
    /// The `seq` of the former answer. Without it, `reload` is true.
    #[param(pattern = "^[A-Za-z0-9_=-]+$")]
    pub(crate) since: Option<String>,
}

/// The place for which the numbers of a limited caller are encrypted: they count the changes of all targets.
const CHANGES: &str = "changes";
/// The number without changes after it that are known.
const UNKNOWN: u64 = 0;

/// Returns the targets that have changed since a former request. Poll it in place of a list, every 1 to 30 seconds. After a
/// pause of minutes, and for 10 s after it, `reload` is true. A change can be missing if a function was ended by force, so read
/// everything again from time to time. Limited scopes show the targets that they cover now.
#[utoipa::path(get, path = "/v1/changes", operation_id = "listChanges", tag = "targets", params(ChangesQuery), responses(
    (status = 200, body = ChangeList),
))]
pub(crate) async fn list(
    server: Permitted<ReadTargets>,
    Query(ChangesQuery { since }): Query<ChangesQuery>,
) -> HttpResult<Json<ChangeList>> {
    let invalid = || HttpProblem::new(ErrorCode::InvalidQuery, "`since` is not the `seq` of an answer to this caller");
    let number =
        |text: String| server.opened(CHANGES, &text).and_then(|plain| plain.parse::<u64>().ok()).ok_or_else(invalid);
    let since = since.map(number).transpose()?.filter(|number| *number != UNKNOWN);
    let access = Some(server.access()).filter(TargetAccess::is_limited);
    let (last, targets) = target_changes::since(&server.env, access.as_ref(), since).await?;
    let seq = server.sealed(CHANGES, last.unwrap_or(UNKNOWN).to_string());
    Ok(Json(ChangeList { seq, reload: targets.is_none(), targets: targets.unwrap_or_default() }))
}
