//! Maps errors of the SDK, and repeats requests that the SDK does not repeat.

use std::time::Duration;

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use backon::{ExponentialBuilder, Retryable as _};

use crate::error::StoreError;

/// Error codes of requests that may succeed later.
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

/// Returns true if a write conflicted with a transaction. The SDK does not repeat such writes.
fn is_conflict<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    code == Some("TransactionConflictException")
}

/// Returns five growing pauses with jitter. Without jitter their sum is 775 ms.
pub(crate) fn pauses() -> ExponentialBuilder {
    let first = Duration::from_millis(25);
    ExponentialBuilder::default().with_min_delay(first).with_max_times(5).with_jitter()
}

/// Sends a write again while it conflicts with a transaction, until the pauses are used up.
pub(crate) async fn past_conflicts<T, E, Sent>(send: impl FnMut() -> Sent) -> Result<T, SdkError<E, HttpResponse>>
where
    E: ProvideErrorMetadata,
    Sent: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
{
    send.retry(pauses()).when(is_conflict).await
}
