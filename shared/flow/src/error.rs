//! Errors of functions.

use ebb_documents::diagnostic::Diagnostics;
use ebb_protocol::error_code::{ErrorCode, RefusedRequest};
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

/// The error of a request that can be rejected.
#[derive(Debug)]
pub enum RequestError<R = RefusedRequest> {
    /// The caller has to change the request.
    Rejected(R),
    Failed(FlowError),
}

impl<R> RequestError<R> {
    pub fn map<S>(self, convert: impl FnOnce(R) -> S) -> RequestError<S> {
        match self {
            Self::Rejected(rejection) => RequestError::Rejected(convert(rejection)),
            Self::Failed(error) => RequestError::Failed(error),
        }
    }
}

impl RequestError {
    /// Returns a refusal. `detail` describes the reason and its fix.
    pub fn refused(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self::Rejected(RefusedRequest::new(code, detail))
    }
}

impl From<RefusedRequest> for RequestError {
    fn from(refusal: RefusedRequest) -> Self {
        Self::Rejected(refusal)
    }
}

impl<R> From<FlowError> for RequestError<R> {
    fn from(error: FlowError) -> Self {
        Self::Failed(error)
    }
}

impl<R> From<StoreError> for RequestError<R> {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Diagnostics> for RequestError<Diagnostics> {
    fn from(errors: Diagnostics) -> Self {
        Self::Rejected(errors)
    }
}
