//! Handles the history of targets, `/v1/targets/…/history`, and the list of runs, `GET /v1/runs`.

use axum::Json;
use ebb_protocol::{ErrorCode, HistoryDetail, HistoryPage, RunPage, TargetKey, limits};
use serde::Deserialize;
use utoipa::IntoParams;

use super::targets::unknown;
use crate::queries::target_history::{self, RunFilter};
use crate::{HttpProblem, HttpResult, Path, Permitted, Query, ReadTargets};

/// The places for which the `nextToken` of a limited caller is encrypted.
const RUNS: &str = "page of runs";
const HISTORY: &str = "page of a history";

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    /// The `nextToken` of the previous page, or the id of the last entry that is known.
    #[param(pattern = "^[A-Za-z0-9_=-]+$")]
    pub(crate) next_token: Option<String>,
}

/// Returns the history of a target, the newest entry first, with earlier instances of the name: who changed it, when and
/// why, with the runs that began. The first page has the notifications that were not accepted. Limited scopes show the
/// present instance only, and a page can be empty although more follow.
#[utoipa::path(get, path = "/v1/targets/{kind}/{name}/history", operation_id = "getHistory", tag = "targets", params(HistoryQuery), responses(
    (status = 200, body = HistoryPage),
))]
pub(crate) async fn list(
    Path((kind, name)): Path<(String, String)>,
    server: Permitted<ReadTargets>,
    Query(HistoryQuery { next_token }): Query<HistoryQuery>,
) -> HttpResult<Json<HistoryPage>> {
    let key = TargetKey::new(&kind, &name);
    let only = server.check_target(key).await?;
    let place = |token: String| {
        // An entry before the next page may be of an instance that a limited caller may not read.
        let place = server.opened(HISTORY, &token).unwrap_or_else(|| token.clone());
        if target_history::is_entry_id(&place) {
            return Ok(place);
        }
        let text = format!("{:?} is not the `nextToken` of a page of the history", limits::message(&token));
        Err(HttpProblem::new(ErrorCode::InvalidNextToken, text))
    };
    let after = next_token.map(place).transpose()?;
    let store = &server.env.store;
    let mut page = target_history::list(&server.env, key, after.as_deref(), only.as_deref()).await?;
    page.next_token = page.next_token.map(|token| server.sealed(HISTORY, token));
    for entry in &mut page.entries {
        entry.by_name = server.tokens.issuers.owner_name(entry.by.as_deref());
    }
    if after.is_none() {
        match server.env.store.read_target(key).await? {
            // A limited caller does not see subscriptions.
            Some(target) if only.is_none() => {
                page.notifications = target_history::open_notifications(store, &target).await?;
            }
            None if page.entries.is_empty() && page.next_token.is_none() => return Err(unknown(key)),
            _ => {}
        }
    }
    Ok(Json(page))
}

/// Returns an entry of the history with the document that it applied. A document with a literal of a sensitive param is not
/// stored.
#[utoipa::path(get, path = "/v1/targets/{kind}/{name}/history/{id}", operation_id = "getHistoryEntry", tag = "targets", params(
    ("id" = String, Path, description = "The id of the entry.", pattern = "^[0-9][a-z0-9-]{0,199}$"),
), responses(
    (status = 200, body = HistoryDetail),
))]
pub(crate) async fn get(
    Path((kind, name, id)): Path<(String, String, String)>,
    server: Permitted<ReadTargets>,
) -> HttpResult<Json<HistoryDetail>> {
    let key = TargetKey::new(&kind, &name);
    let only = server.check_target(key).await?;
    let found = target_history::get(&server.env, key, &id, only.as_deref()).await?;
    let missing = || HttpProblem::not_found(format!("the history of {key} has no entry {:?}", limits::message(&id)));
    let mut found = found.ok_or_else(missing)?;
    found.entry.by_name = server.tokens.issuers.owner_name(found.entry.by.as_deref());
    Ok(Json(found))
}

/// Lists the runs of the present instances of targets, by the kind and name of the target. Reads the runs of at most 25
/// targets. A page can therefore be empty although more follow.
#[utoipa::path(get, path = "/v1/runs", operation_id = "listRuns", tag = "runs", params(RunFilter), responses(
    (status = 200, body = RunPage),
))]
pub(crate) async fn runs(
    server: Permitted<ReadTargets>,
    Query(mut filter): Query<RunFilter>,
) -> HttpResult<Json<RunPage>> {
    let token = server.opened_token(RUNS, filter.next_token.take())?;
    let mut page = target_history::runs(&server.env, &filter, &server.access(), token.as_deref()).await?;
    page.next_token = page.next_token.map(|token| server.sealed(RUNS, token));
    Ok(Json(page))
}
