//! What can go wrong between us and the table or the bucket.

/// Why an operation of the store gave no answer. A condition that does not hold is an answer, not an error.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Throttled, in conflict with another transaction, or no answer: the same call may succeed later. Whether a
    /// write was made is unknown.
    #[error("{operation}: {reason}")]
    Retryable {
        operation: &'static str,
        /// What the service or the transport said.
        reason: String,
    },
    /// Our mistake or a broken installation: no such table, no right, an item that cannot be read.
    #[error("{operation}: {reason}")]
    Broken { operation: &'static str, reason: String },
}
