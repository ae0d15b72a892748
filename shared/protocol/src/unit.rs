//! Headers of requests to webhook units, and variables of scripts.

/// The header with the key that all attempts of a unit share. Receivers create an object once per key.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header of an undo with the [`IDEMPOTENCY_KEY`] of its setup unit, which may have failed before it reported an
/// id.
pub const UNDOES_IDEMPOTENCY_KEY: &str = "ebb-undoes-idempotency-key";
/// The same as a variable of a script.
pub const UNDOES_IDEMPOTENCY_KEY_VARIABLE: &str = "EBB_UNDOES_IDEMPOTENCY_KEY";
/// The header with the URL for a [`crate::callback::Callback`].
pub const CALLBACK_URL: &str = "ebb-callback-url";
/// The header with the bearer token for that URL.
pub const CALLBACK_TOKEN: &str = "ebb-callback-token";
/// The header with the number of the attempt.
pub const ATTEMPT: &str = "ebb-attempt";
/// The header with the attempt as a W3C trace context, if spans are collected. The CloudEvents attribute has the same
/// name.
pub const TRACEPARENT: &str = "traceparent";
/// The same as a variable of a script.
pub const TRACEPARENT_VARIABLE: &str = "TRACEPARENT";
