//! Declared parameters.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::placed::At;

/// A parameter. A sandbox has to set a parameter without a default, unless `required` is `false` or `optional` is `true`.
#[serde_with::apply(bool => #[serde(default)])]
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Param", rename_all = "camelCase", deny_unknown_fields)]
pub struct ParamDoc {
    #[serde(rename = "type")]
    pub kind: ParamKind,
    /// Free text.
    pub description: Option<String>,
    /// The value if the sandbox sets none.
    pub default: Option<At<Value>>,
    /// If `false`, the parameter may be missing without a default.
    pub required: Option<At<bool>>,
    /// If `true`, the value may be `null` or missing. A missing value is `null`.
    pub optional: bool,
    /// The allowed values.
    #[serde(rename = "enum")]
    pub one_of: Option<At<Vec<At<Value>>>>,
    /// The least number.
    pub minimum: Option<At<f64>>,
    /// The greatest number.
    pub maximum: Option<At<f64>>,
    /// The least number of characters.
    pub min_length: Option<At<u32>>,
    /// The greatest number of characters.
    pub max_length: Option<At<u32>>,
    /// A regular expression for the whole text.
    pub pattern: Option<At<String>>,
    /// If `true`, the value stays in its cluster, or is stored encrypted.
    pub sensitive: bool,
}

impl ParamDoc {
    /// Returns true if a missing value is no error.
    pub fn is_optional(&self) -> bool {
        let not_required = self.required.as_ref().is_some_and(|required| !required.value);
        self.default.is_none() && (self.optional || not_required)
    }

    /// Returns the allowed values. None are listed if all are allowed.
    pub fn allowed(&self) -> impl Iterator<Item = &Value> {
        self.one_of.iter().flat_map(|values| values.value.iter().map(|value| &value.value))
    }
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename = "ParamType", rename_all = "camelCase")]
pub enum ParamKind {
    #[default]
    String,
    Integer,
    Number,
    Boolean,
    Object,
    Array,
}
