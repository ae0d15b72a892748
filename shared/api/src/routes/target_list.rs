//! Handles the list of targets: `GET /v1/targets`.

use std::collections::BTreeSet;

use axum::Json;
use ebb_protocol::api::{TargetPage, TargetSelector};
use ebb_store::TargetList;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::queries::{clusters, targets};
use crate::{HttpResult, Permitted, Query, ReadTargets};

/// The parameters of a list beside those of a selector.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(super) struct ListFlags {
    /// Lists gone targets instead of active ones. A gone target is listed for 30 days.
    gone: bool,
    /// Lists only targets without evidence that all their resources were removed.
    unconfirmed: bool,
    /// Adds the keys of the targets.
    keys: bool,
}

/// The parameters of a list. The deserialization of axum has no repeated parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "Vec<(String, String)>")]
pub(crate) struct ListQuery {
    pub(super) selector: TargetSelector,
    pub(super) flags: ListFlags,
}

impl TryFrom<Vec<(String, String)>> for ListQuery {
    type Error = String;

    fn try_from(pairs: Vec<(String, String)>) -> Result<Self, String> {
        let flag = |name: &str, value: &str| {
            value.parse::<bool>().map_err(|_| format!("`{name}` is {value:?}: expected true or false"))
        };
        let phase = |value: String| serde_json::from_value(value.into()).map_err(|error| format!("`phase`: {error}"));
        let (Self { mut selector, mut flags }, mut seen) = (Self::default(), BTreeSet::new());
        for (name, value) in pairs {
            match name.as_str() {
                "phase" => selector.phases.push(phase(value)?),
                "label" => selector.labels.push(value),
                _ if !seen.insert(name.clone()) => return Err(format!("duplicate field `{name}`")),
                "kind" => selector.kind = Some(value),
                "nextToken" => selector.next_token = Some(value),
                "gone" => flags.gone = flag(&name, &value)?,
                "unconfirmed" => flags.unconfirmed = flag(&name, &value)?,
                "keys" => flags.keys = flag(&name, &value)?,
                "owner" => selector.owner = Some(value),
                "plugin" => selector.plugin = Some(value),
                "q" => selector.text = Some(value),
                _ => return Err(format!("unknown field `{name}`")),
            }
        }
        Ok(Self { selector, flags })
    }
}

/// The place for which the `nextToken` of a limited caller is encrypted.
pub(super) const PAGE: &str = "page of targets";

/// Lists targets by kind and name: active ones, or gone ones. Reads at most about 1,000 targets. A page can therefore be short
/// or empty although more follow.
#[utoipa::path(get, path = "/v1/targets", operation_id = "listTargets", tag = "targets", params(TargetSelector, ListFlags), responses(
    (status = 200, body = TargetPage),
))]
pub(crate) async fn list(
    server: Permitted<ReadTargets>,
    Query(ListQuery { mut selector, flags: ListFlags { gone, unconfirmed, keys } }): Query<ListQuery>,
) -> HttpResult<Json<TargetPage>> {
    let list = if gone { TargetList::Gone } else { TargetList::Active };
    let token = server.opened_token(PAGE, selector.next_token.take())?;
    let (env, access) = (&server.env, server.access());
    selector.owner = selector.owner.map(|owner| server.caller.owner(&owner).to_owned());
    let issuers = &server.tokens.issuers;
    let mut page =
        targets::list((env, issuers), (list, unconfirmed, keys), &selector, &access, token.as_deref()).await?;
    if access.is_limited() {
        // They name targets that the caller may not read.
        page.damaged.clear();
    }
    page.next_token = page.next_token.map(|token| server.sealed(PAGE, token));
    if list == TargetList::Active {
        page.outages = clusters::outages(&env.store).await?.into_values().collect();
    }
    Ok(Json(page))
}
