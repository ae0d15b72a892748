//! The error of the store.

/// An operation without a usable response. A failed condition is a response, not an error.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Throttled, in conflict with a transaction, or no response. The call can be repeated. A write may have happened.
    #[error("{operation}: {reason}")]
    Retryable { operation: &'static str, reason: String },
    /// A defect or a broken installation: no such table, no right, an unreadable item.
    #[error("{operation}: {reason}")]
    Broken { operation: &'static str, reason: String },
}
