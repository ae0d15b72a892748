//! Variables of a function, from its environment or from a secret of AWS Secrets Manager.
//!
//! More users can read a function's environment than a secret.

use std::collections::BTreeMap;

use aws_config::SdkConfig;
use aws_sdk_secretsmanager::error::DisplayErrorContext;
use serde_json::Value;

use crate::function_error::FunctionError;

const SECRET_NAME: &str = "EBB_SECRET_ARN";
/// The variables that the secret may contain, separated by blanks. The template never puts them into the environment.
pub const SECRET_VARIABLES: &str = "EBB_WEBHOOK_SECRETS EBB_PLATFORM_SECRETS EBB_UNIT_SECRETS EBB_TOKEN_SECRETS \
                                    EBB_API_TOKENS EBB_OIDC EBB_CLUSTERS EBB_SECRETS OTEL_EXPORTER_OTLP_HEADERS";

#[derive(Default, PartialEq, Eq)]
pub(crate) struct FunctionVariables {
    secret: BTreeMap<String, String>,
}

impl FunctionVariables {
    /// Reads the secret that `EBB_SECRET_ARN` names, if it names one.
    ///
    /// # Errors
    /// Returns an error if the secret cannot be read, or is not a JSON object of [`SECRET_VARIABLES`].
    pub(crate) async fn read(config: &SdkConfig) -> Result<Self, FunctionError> {
        let Ok(name) = Self::default().required(SECRET_NAME) else { return Ok(Self::default()) };
        let request = aws_sdk_secretsmanager::Client::new(&crate::aws::with_long_timeouts(config))
            .get_secret_value()
            .secret_id(&name);
        let response = request
            .send()
            .await
            .map_err(|error| FunctionError::Secret { reason: DisplayErrorContext(&error).to_string(), name })?;
        let secret = parse_secret(response.secret_string().unwrap_or_default());
        secret.map(|secret| Self { secret }).map_err(|reason| FunctionError::Invalid { name: SECRET_NAME, reason })
    }

    /// Returns a variable of the environment, otherwise that of the secret, otherwise an empty text.
    pub(crate) fn optional(&self, name: &'static str) -> String {
        let variable = std::env::var(name).ok().filter(|value| !value.is_empty());
        variable.or_else(|| self.secret.get(name).cloned()).unwrap_or_default()
    }

    /// # Errors
    /// Returns [`FunctionError::Missing`] if it is empty.
    pub(crate) fn required(&self, name: &'static str) -> Result<String, FunctionError> {
        Some(self.optional(name)).filter(|value| !value.is_empty()).ok_or(FunctionError::Missing(name))
    }

    /// # Errors
    /// Returns [`FunctionError::Missing`] if it is empty, and [`FunctionError::Invalid`] if it cannot be parsed.
    pub(crate) fn parsed<T, E: std::fmt::Display>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, FunctionError> {
        parse(&self.required(name)?).map_err(|error| FunctionError::Invalid { name, reason: error.to_string() })
    }

    /// Returns a parsed variable, or the default if it is empty.
    ///
    /// # Errors
    /// Returns [`FunctionError::Invalid`] if it cannot be parsed.
    pub(crate) fn parsed_if_any<T: Default, E: std::fmt::Display>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, FunctionError> {
        if self.optional(name).is_empty() { Ok(T::default()) } else { self.parsed(name, parse) }
    }
}

/// Parses a secret. Errors contain no part of it.
fn parse_secret(text: &str) -> Result<BTreeMap<String, String>, String> {
    let values: BTreeMap<String, Value> =
        serde_json::from_str(text).map_err(|_| "the secret is not a JSON object".to_owned())?;
    if values.keys().any(|name| SECRET_VARIABLES.split(' ').all(|known| known != name)) {
        return Err(format!("the secret has an unknown name; expected {}", SECRET_VARIABLES.replace(' ', ", ")));
    }
    let text = |value| match value {
        Value::String(text) => text,
        // `EBB_CLUSTERS` and `EBB_SECRETS` are objects, `EBB_OIDC` is a list.
        other => other.to_string(),
    };
    Ok(values.into_iter().map(|(name, value)| (name, text(value))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_contains_variables() {
        let text = r#"{"EBB_TOKEN_SECRETS": "whsec_a", "EBB_CLUSTERS": {"eu": {"secret": "whsec_x"}}}"#;
        let secret = parse_secret(text).unwrap();
        let expected = [("EBB_CLUSTERS", r#"{"eu":{"secret":"whsec_x"}}"#), ("EBB_TOKEN_SECRETS", "whsec_a")];
        assert_eq!(secret, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn errors_do_not_contain_the_secret() {
        for text in ["", "canary", "[\"canary\"]", "{\"canary\": 1}", "{\"EBB_TOKEN_SECRETS\": \"canary\""] {
            assert!(!parse_secret(text).unwrap_err().contains("canary"), "{text}");
        }
    }
}
