//! From the SDK's errors to ours, and the few retries that the SDK leaves to its callers.

use std::time::Duration;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use backon::{ExponentialBuilder, Retryable as _};

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
    let reason = ebb_protocol::limits::message(&reason);
    match retryable {
        true => StoreError::Retryable { operation, reason },
        false => StoreError::Broken { operation, reason },
    }
}

/// Whether a write met a transaction on the same item, which the SDK does not try again as it does what is throttled
/// and a transaction that is in progress.
fn is_conflict<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    code == Some("TransactionConflictException")
}

/// The pauses between the tries of a request that meets others: five, each up to twice as long as the one before, with
/// jitter; without it they are 775 ms in sum.
pub(crate) fn pauses() -> ExponentialBuilder {
    let first = Duration::from_millis(25);
    ExponentialBuilder::default().with_min_delay(first).with_max_times(5).with_jitter()
}

/// Sends a write until it does not meet a transaction on the same item, or the pauses are used up.
pub(crate) async fn past_conflicts<T, E, Sent>(send: impl FnMut() -> Sent) -> Result<T, SdkError<E, HttpResponse>>
where
    E: ProvideErrorMetadata,
    Sent: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
{
    send.retry(pauses()).when(is_conflict).await
}
