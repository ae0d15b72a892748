//! From the SDK's errors to ours, and the few retries that the SDK leaves to its callers.

use std::time::Duration;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use crate::error::StoreError;

/// Codes of services that say "again later".
const PASSING: &[&str] = &[
    "InternalFailure",
    "InternalServerError",
    "ItemCollectionSizeLimitExceeded",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "ReplicatedWriteConflictException",
    "RequestLimitExceeded",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "ThrottlingError",
    "ThrottlingException",
    "TransactionConflictException",
    "TransactionInProgressException",
];

/// What the SDK's error means to a caller.
pub(crate) fn failure<E>(operation: &'static str, error: &SdkError<E, HttpResponse>) -> StoreError
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let retryable = match error {
        SdkError::TimeoutError(_) | SdkError::ResponseError(_) => true,
        SdkError::DispatchFailure(failure) => !failure.is_user(),
        SdkError::ServiceError(service) => {
            let status = service.raw().status().as_u16();
            let code = service.err().code().unwrap_or_default();
            status >= 500 || status == 429 || PASSING.contains(&code)
        }
        _ => false,
    };
    let reason = match error {
        SdkError::ServiceError(service) => {
            let code = service.err().code().unwrap_or("no code");
            format!("{code}: {}", service.err().message().unwrap_or("no message"))
        }
        other => DisplayErrorContext(other).to_string(),
    };
    let reason = ebb_wire::limits::message(&reason);
    match retryable {
        true => StoreError::Retryable { operation, reason },
        false => StoreError::Broken { operation, reason },
    }
}

/// Whether a write met a transaction on the same item, which the SDK does not try again.
pub(crate) fn is_conflict<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    code.is_some_and(|code| matches!(code, "TransactionConflictException" | "TransactionInProgressException"))
}

/// Pauses before the next try of a write that met another one; `None` after the last try. In sum below a second.
pub(crate) struct Pauses {
    next: u64,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { next: 25 }
    }

    /// Waits for up to twice as long as before; false when it is time to give up.
    pub(crate) async fn wait(&mut self) -> bool {
        if self.next > 400 {
            return false;
        }
        let millis = rand::random_range(self.next / 2..=self.next);
        self.next *= 2;
        tokio::time::sleep(Duration::from_millis(millis)).await;
        true
    }
}

/// Sends a write until it does not meet a transaction on the same item, or the pauses are used up.
pub(crate) async fn past_conflicts<T, E, Sent>(
    mut send: impl FnMut() -> Sent,
) -> Result<T, SdkError<E, HttpResponse>>
where
    E: ProvideErrorMetadata,
    Sent: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
{
    let mut pauses = Pauses::new();
    loop {
        match send().await {
            Err(error) if is_conflict(&error) => {
                if !pauses.wait().await {
                    return Err(error);
                }
            }
            answer => return answer,
        }
    }
}
