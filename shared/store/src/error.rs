//! The error of the store.

/// An operation without a usable response. A failed condition is a response, not an error.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The table throttled the request, it conflicted with a transaction, or no response arrived. The call can be
    /// repeated. A write may have happened.
    #[error("{operation}: {reason}")]
    Retryable { operation: &'static str, reason: String },
    /// A defect or a broken installation: the table does not exist, a permission is missing, or an item is unreadable.
    #[error("{operation}: {reason}")]
    Broken { operation: &'static str, reason: String },
}
