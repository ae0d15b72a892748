//! The error of the start of a function.

#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    #[error("the environment variable {0} is not set")]
    Missing(&'static str),
    /// A variable has an invalid value. The text omits the value, which may be secret.
    #[error("invalid environment variable {name}: {reason}")]
    Invalid { name: &'static str, reason: String },
    #[error("cannot read the secret {name}: {reason}")]
    Secret { name: String, reason: String },
    #[error(transparent)]
    Http(#[from] ebb_egress::HttpClientError),
}
