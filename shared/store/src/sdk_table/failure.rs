//! Maps errors of the SDK.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use crate::error::StoreError;

/// Error codes of requests that may succeed later.
const PASSING: &str = "\
    InternalFailure InternalServerError ItemCollectionSizeLimitExceeded LimitExceededException \
    ProvisionedThroughputExceededException ReplicatedWriteConflictException RequestLimitExceeded RequestTimeout \
    ServiceUnavailable SlowDown ThrottlingError ThrottlingException TransactionConflictException \
    TransactionInProgressException";

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
            status >= 500 || status == 429 || PASSING.split(' ').any(|passing| passing == code)
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
pub(super) fn is_conflict<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> bool {
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    code == Some("TransactionConflictException")
}
