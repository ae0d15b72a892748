//! Errors of functions.

use ebb_documents::diagnostic::Diagnostics;
use ebb_protocol::error_code::ErrorCode;
use ebb_store::StoreError;

/// The reason why a function failed. Errors of the caller are results, not errors.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Other writers changed the same item at every attempt. A repetition may succeed.
    #[error("{0} is being changed by others; try again")]
    Contended(String),
    /// Stored data has an unexpected form.
    #[error("{0}")]
    Broken(String),
    /// Stored data is lost or damaged. The call fails until the data is restored.
    #[error("{what}; {fix}")]
    Damaged { what: String, fix: &'static str },
}

impl FlowError {
    /// Returns true if the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(StoreError::Retryable { .. }) | Self::Contended(_))
    }
}

pub type FlowResult<T> = Result<T, FlowError>;

/// The reason why the caller has to change a request.
#[derive(Debug, thiserror::Error)]
pub enum Rejection {
    /// The fields are a code, and the reason with its fix for people.
    #[error("{1}")]
    Refused(ErrorCode, String),
    #[error("{0}")]
    Document(Diagnostics),
}

/// The error of a request that can be rejected.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error(transparent)]
    Failed(#[from] FlowError),
}

impl RequestError {
    /// Returns a refusal. `detail` describes the reason and its fix.
    pub fn refused(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self::Rejected(Rejection::Refused(code, detail.into()))
    }
}

impl From<StoreError> for RequestError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Diagnostics> for RequestError {
    fn from(errors: Diagnostics) -> Self {
        Self::Rejected(Rejection::Document(errors))
    }
}
