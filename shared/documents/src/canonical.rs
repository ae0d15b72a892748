//! The canonical encoding of a plan, and digests.

use sha2::{Digest, Sha256};

use crate::plan::{PLAN_VERSION, Plan};

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not JSON, or its JSON is not a plan.
    #[error("the plan is not valid: {0}")]
    Json(#[from] serde_json::Error),
    /// A newer or older program wrote the plan.
    #[error("the plan has format version {found}; this program reads version {PLAN_VERSION}")]
    Version { found: u32 },
}

impl Plan {
    /// Returns canonical JSON, with sorted keys and without blanks. Equal plans have equal bytes.
    pub fn to_json(&self) -> String {
        let mut value = serde_json::to_value(self).expect("a plan has only string keys and finite numbers");
        value.sort_all_objects();
        value.to_string()
    }

    /// Parses the JSON of [`Self::to_json`].
    ///
    /// # Errors
    /// Returns [`PlanError`] if the text is not a plan, or if the plan has another format version.
    pub fn from_json(json: &str) -> Result<Self, PlanError> {
        #[derive(serde::Deserialize)]
        struct PlanVersion {
            v: u32,
        }
        let version: PlanVersion = serde_json::from_str(json)?;
        if version.v != PLAN_VERSION {
            return Err(PlanError::Version { found: version.v });
        }
        Ok(serde_json::from_str(json)?)
    }

    /// Returns `sha256:` and the hash of [`Self::to_json`] in lower-case hexadecimal.
    pub fn digest(&self) -> String {
        self.encoded().0
    }

    /// Returns [`Self::digest`] and [`Self::to_json`].
    pub fn encoded(&self) -> (String, String) {
        let json = self.to_json();
        (digest(&json), json)
    }
}

/// Returns `sha256:` and the hash of a text in lower-case hexadecimal.
pub(crate) fn digest(text: &str) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_another_version_is_rejected() {
        // Another version may have other fields.
        let error = Plan::from_json(r#"{"v": 2, "what": "comes"}"#).unwrap_err();
        assert!(matches!(error, PlanError::Version { found: 2 }), "{error}");
        assert!(matches!(Plan::from_json("{}"), Err(PlanError::Json(_))));
    }
}
