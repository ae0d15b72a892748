//! Handles the list of targets: `GET /v1/targets`.

use std::collections::BTreeSet;

use axum::Json;
use ebb_protocol::api::{TargetPage, TargetState};
use ebb_protocol::api_token::TargetAccess;
use ebb_protocol::error_code::ErrorCode;
use ebb_protocol::lifecycle::FieldError;
use ebb_protocol::limits;
use ebb_store::TargetList;
use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as ValueError, StrDeserializer};
use utoipa::IntoParams;

use super::Query;
use super::permitted::{Permitted, ReadTargets};
use super::sealed_cursors::{opened, sealed};
use crate::queries::targets::TargetFilter;
use crate::queries::{clusters, targets};
use crate::{HttpProblem, HttpResult};

/// The parameters of a list. The deserialization of axum has no repeated parameters.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", try_from = "Vec<(String, String)>")]
pub(crate) struct ListQuery {
    /// The kind of the targets. By default all kinds.
    #[param(pattern = "^[a-z][a-z0-9-]{0,62}$")]
    kind: Option<String>,
    /// The `nextToken` of the previous page.
    #[param(
        pattern = r"^([A-Za-z0-9_=-]+|[a-z][a-z0-9-]{0,62}/([!\x22$&-.0->@-\[\]-~]{1,253}|[^/#%?\\\s\x00-\x1f\x7f-\x9f]{1,75}))$"
    )]
    next_token: Option<String>,
    /// Lists gone targets instead of active ones. A gone target is listed for 30 days.
    #[serde(default)]
    gone: bool,
    /// Lists only targets without evidence that all their resources were removed.
    #[serde(default)]
    unconfirmed: bool,
    /// Lists only targets in this phase. Repeatable: a target in one of the phases is listed.
    #[serde(default)]
    phase: Vec<TargetState>,
    /// Lists only targets with this label, `KEY=VALUE`. Repeatable: a target with all of the labels is listed.
    #[serde(default)]
    label: Vec<String>,
    /// Lists only targets of this owner, such as `token ci`.
    owner: Option<String>,
    /// Lists only targets that use this plugin, `NAME` or `NAME@VERSION`.
    plugin: Option<String>,
    /// Lists only targets with this text in name, UID, owner, labels, plugins or first cause, in upper or lower case.
    q: Option<String>,
}

impl TryFrom<Vec<(String, String)>> for ListQuery {
    type Error = String;

    fn try_from(pairs: Vec<(String, String)>) -> Result<Self, String> {
        let flag = |name: &str, value: &str| {
            value.parse::<bool>().map_err(|_| format!("`{name}` is {value:?}: expected true or false"))
        };
        let (mut query, mut seen) = (Self::default(), BTreeSet::new());
        for (name, value) in pairs {
            match name.as_str() {
                "phase" => query.phase.push(phase_of(&value)?),
                "label" => query.label.push(value),
                _ if !seen.insert(name.clone()) => return Err(format!("duplicate field `{name}`")),
                "kind" => query.kind = Some(value),
                "nextToken" => query.next_token = Some(value),
                "gone" => query.gone = flag(&name, &value)?,
                "unconfirmed" => query.unconfirmed = flag(&name, &value)?,
                "owner" => query.owner = Some(value),
                "plugin" => query.plugin = Some(value),
                "q" => query.q = Some(value),
                _ => return Err(format!("unknown field `{name}`")),
            }
        }
        Ok(query)
    }
}

fn phase_of(text: &str) -> Result<TargetState, String> {
    let word: StrDeserializer<'_, ValueError> = text.into_deserializer();
    TargetState::deserialize(word).map_err(|error| format!("`phase`: {error}"))
}

impl ListQuery {
    fn filter(self, access: Option<TargetAccess>) -> Result<TargetFilter, FieldError> {
        let Self { kind, unconfirmed, phase: phases, label, owner, plugin, q: text, .. } = self;
        let parts = label.iter().map(|label| match label.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => {
                let problem = format!("is {:?}: expected KEY=VALUE", limits::message(label));
                Err(FieldError { field: "label", problem })
            }
        });
        let labels = parts.collect::<Result<_, FieldError>>()?;
        Ok(TargetFilter { kind, unconfirmed, phases, labels, owner, plugin, text, access })
    }
}

/// The place for which the `nextToken` of a limited caller is encrypted.
const PAGE: &str = "page of targets";

pub(super) fn foreign_token() -> FieldError {
    FieldError { field: "nextToken", problem: "is not the `nextToken` of a page of this caller".to_owned() }
}

/// Lists targets by kind and name: active ones, or gone ones. Reads at most about 1,000 targets. A page can therefore be short
/// or empty although more follow.
#[utoipa::path(get, path = "/v1/targets", operation_id = "listTargets", tag = "targets", params(ListQuery), responses(
    (status = 200, body = TargetPage),
))]
pub(crate) async fn list(
    server: Permitted<ReadTargets>,
    Query(mut query): Query<ListQuery>,
) -> HttpResult<Json<TargetPage>> {
    let list = if query.gone { TargetList::Gone } else { TargetList::Active };
    let invalid = |error: FieldError| HttpProblem::new(ErrorCode::InvalidQuery, error.to_string());
    let (keys, access) = (&server.env.settings.unit_keys, Some(server.access()).filter(TargetAccess::is_limited));
    let token = query.next_token.take().map(|token| match access {
        Some(_) => opened(keys, PAGE, &token).ok_or_else(foreign_token),
        None => Ok(token),
    });
    let token = token.transpose().map_err(invalid)?;
    let filter = query.filter(access).map_err(invalid)?;
    let page = targets::list(&server.env.store, list, &filter, token.as_deref()).await;
    let mut page = page.map_err(|error| error.map(invalid))?;
    if filter.access.is_some() {
        // Both name targets that the caller may not read.
        page.damaged.clear();
        page.next_token = page.next_token.map(|token| sealed(keys, PAGE, &token));
    }
    if list == TargetList::Active {
        page.outages = clusters::outages(&server.env.store).await?.into_values().collect();
    }
    Ok(Json(page))
}
