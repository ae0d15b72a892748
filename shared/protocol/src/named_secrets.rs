//! Secrets of a deployment that documents name.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

/// The value of a secret. It is wiped from memory when it is dropped.
pub type SecretText = Zeroizing<String>;

/// Reads secrets by name.
pub trait SecretReader: fmt::Debug + Send + Sync {
    /// Returns the value of a secret, or `None` if no secret has the name.
    ///
    /// # Errors
    /// Returns a text for operators if the secrets cannot be read. It contains no value.
    fn secret(&self, name: &str) -> Result<Option<SecretText>, String>;

    /// Returns the value of a secret for a check, which does not send it.
    ///
    /// # Errors
    /// Returns the text of [`secret`](Self::secret).
    fn checked(&self, name: &str) -> Result<Option<SecretText>, String> {
        self.secret(name)
    }
}

/// Secrets by name, in memory. The values are never printed.
#[derive(Default, PartialEq, Eq)]
pub struct NamedSecrets(BTreeMap<String, SecretText>);

impl NamedSecrets {
    /// Parses a JSON object of texts by name. A name has a letter or `_` first, then also digits, and at most 63
    /// characters.
    ///
    /// # Errors
    /// Returns a text for operators. It contains no value.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let texts: BTreeMap<String, String> =
            serde_json::from_slice(json).map_err(|_| "expected a JSON object of texts by name".to_owned())?;
        let secrets = Self(texts.into_iter().map(|(name, text)| (name, Zeroizing::new(text))).collect());
        if secrets.0.keys().all(|name| is_secret_name(name)) {
            return Ok(secrets);
        }
        Err("a name is invalid; expected A-Z, a-z or _ first, then also 0-9, at most 63 characters".to_owned())
    }
}

pub fn is_secret_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_letter) && name.len() <= 63 && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

impl SecretReader for NamedSecrets {
    fn secret(&self, name: &str) -> Result<Option<SecretText>, String> {
        Ok(self.0.get(name).cloned())
    }
}

impl fmt::Debug for NamedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_debug_texts_contain_no_value() {
        for text in ["", "\"canary\"", "{\"A\": 1}", "{\"-canary\": \"x\"}", "{\"A\": [\"canary\"]}"] {
            assert!(!NamedSecrets::parse(text.as_bytes()).unwrap_err().contains("canary"), "{text}");
        }
        let secrets = NamedSecrets::parse(br#"{"TOKEN": "canary"}"#).unwrap();
        assert_eq!(format!("{secrets:?}"), "{\"TOKEN\"}");
        assert_eq!(secrets.secret("TOKEN").unwrap().unwrap().as_str(), "canary");
        assert_eq!(secrets.secret("OTHER"), Ok(None));
    }
}
