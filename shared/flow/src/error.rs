//! What can go wrong inside a function.

use ebb_documents::diagnostic::Diagnostics;
use ebb_store::StoreError;

/// Why a function did not do its work. What the caller did wrong is an answer ([`ebb_api::HttpProblem`]), not this.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The table or the bucket gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The same item was changed by others again and again: the caller should come again.
    #[error("{0} is being changed by others; try again")]
    Contended(String),
    /// Something stored is not what we write.
    #[error("{0}")]
    Broken(String),
    /// Something stored is lost or damaged: the same call fails until it is restored.
    #[error("{what}; {fix}")]
    Damaged { what: String, fix: &'static str },
}

impl FlowError {
    /// Returns true if the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(StoreError::Retryable { .. }) | Self::Contended(_))
    }
}

/// The error of a request that can be rejected.
#[derive(Debug)]
pub enum RequestError<R> {
    /// The request is at fault.
    Rejected(R),
    Failed(FlowError),
}

impl<R> RequestError<R> {
    /// Converts the rejection.
    pub fn map<S>(self, convert: impl FnOnce(R) -> S) -> RequestError<S> {
        match self {
            Self::Rejected(rejection) => RequestError::Rejected(convert(rejection)),
            Self::Failed(error) => RequestError::Failed(error),
        }
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
