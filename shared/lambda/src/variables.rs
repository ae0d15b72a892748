//! What a function is told: variables of its environment, and those that a secret of AWS Secrets Manager holds.
//!
//! Whoever may look at a function sees the variables of its environment, and few may look at a secret.

use std::collections::BTreeMap;

use aws_config::SdkConfig;
use aws_sdk_secretsmanager::error::DisplayErrorContext;
use serde_json::Value;

use crate::FunctionError;

/// Names the secret, by its ARN or its name.
const SECRET_NAME: &str = "EBB_SECRET_ARN";
/// What it may hold, which is never in a function's configuration.
pub const SECRET_VARIABLES: [&str; 7] = [
    "EBB_WEBHOOK_SECRETS",
    "EBB_PLATFORM_SECRETS",
    "EBB_UNIT_SECRETS",
    "EBB_TOKEN_KEYS",
    "EBB_API_TOKENS",
    "EBB_CLUSTERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];

/// The variables of one function.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct FunctionVariables {
    secret: BTreeMap<String, String>,
}

impl FunctionVariables {
    /// Reads the secret that `EBB_SECRET_ARN` names, if it names one.
    ///
    /// # Errors
    /// It cannot be read, or is not what is expected.
    pub(crate) async fn read(config: &SdkConfig) -> Result<Self, FunctionError> {
        let Ok(name) = Self::default().required(SECRET_NAME) else { return Ok(Self::default()) };
        let asked = aws_sdk_secretsmanager::Client::new(&crate::aws::with_long_timeouts(config))
            .get_secret_value()
            .secret_id(&name);
        let answer = asked
            .send()
            .await
            .map_err(|error| FunctionError::Secret { reason: DisplayErrorContext(&error).to_string(), name })?;
        let secret = parse_secret(answer.secret_string().unwrap_or_default());
        secret.map(|secret| Self { secret }).map_err(invalid)
    }

    /// A variable that may be missing: the environment's, else the secret's, else nothing.
    pub(crate) fn optional(&self, name: &'static str) -> String {
        let own = std::env::var(name).ok().filter(|value| !value.is_empty());
        own.or_else(|| self.secret.get(name).cloned()).unwrap_or_default()
    }

    /// A variable that has to be there.
    ///
    /// # Errors
    /// [`FunctionError::Missing`].
    pub(crate) fn required(&self, name: &'static str) -> Result<String, FunctionError> {
        Some(self.optional(name)).filter(|value| !value.is_empty()).ok_or(FunctionError::Missing(name))
    }

    /// A variable that has to be there, as what it means.
    ///
    /// # Errors
    /// [`FunctionError`].
    pub(crate) fn parsed<T, E: std::fmt::Display>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, FunctionError> {
        parse(&self.required(name)?).map_err(|error| FunctionError::Invalid { name, reason: error.to_string() })
    }
}

fn invalid(reason: &'static str) -> FunctionError {
    FunctionError::Invalid { name: SECRET_NAME, reason: reason.to_owned() }
}

/// What a secret says. No reason repeats any of it.
fn parse_secret(text: &str) -> Result<BTreeMap<String, String>, &'static str> {
    let held: BTreeMap<String, Value> = serde_json::from_str(text).map_err(|_| "the secret is no JSON object")?;
    if held.keys().any(|name| !SECRET_VARIABLES.contains(&name.as_str())) {
        return Err("the secret has a name that is none of EBB_WEBHOOK_SECRETS, EBB_PLATFORM_SECRETS, \
                    EBB_UNIT_SECRETS, EBB_TOKEN_KEYS, EBB_API_TOKENS, EBB_CLUSTERS, OTEL_EXPORTER_OTLP_HEADERS");
    }
    let text = |value| match value {
        Value::String(text) => text,
        // Clusters are an object, which nobody has to put into a string.
        other => other.to_string(),
    };
    Ok(held.into_iter().map(|(name, value)| (name, text(value))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_holds_variables() {
        let text = r#"{"EBB_TOKEN_KEYS": "a:b", "EBB_CLUSTERS": {"eu": {"secret": "whsec_x"}}}"#;
        let variables = FunctionVariables { secret: parse_secret(text).unwrap() };
        assert_eq!(variables.optional("EBB_TOKEN_KEYS"), "a:b");
        assert_eq!(variables.optional("EBB_CLUSTERS"), r#"{"eu":{"secret":"whsec_x"}}"#);
        assert!(matches!(variables.required("EBB_API_TOKENS"), Err(FunctionError::Missing("EBB_API_TOKENS"))));
    }

    #[test]
    fn what_is_wrong_with_a_secret_is_said_without_it() {
        for text in ["", "canary", "[\"canary\"]", "{\"canary\": 1}", "{\"EBB_TOKEN_KEYS\": \"canary\""] {
            assert!(!parse_secret(text).unwrap_err().contains("canary"), "{text}");
        }
    }
}
