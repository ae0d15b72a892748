//! The lifetime of a target.

use schemars::JsonSchema;
use serde::Deserialize;

use super::DurationMs;

/// The lifetime of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename = "FullTtl", deny_unknown_fields)]
pub struct TtlDoc {
    /// The time after which the target is deleted.
    pub after: DurationMs,
    /// The start of this time.
    #[serde(default)]
    pub from: TtlFrom,
}

/// The start of the lifetime of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TtlFrom {
    #[default]
    Creation,
    /// The last document or event that was accepted.
    Activity,
}
