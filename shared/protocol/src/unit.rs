//! Headers of the request that a webhook unit's server gets.

/// Header with the key that stays the same over all tries of a unit: create once under it.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Header of an undo with the [`IDEMPOTENCY_KEY`] of the unit that it undoes: that unit may have died before it could name
/// what it made.
pub const UNDOES_IDEMPOTENCY_KEY: &str = "ebb-undoes-idempotency-key";
/// The variable of a script with the same.
pub const UNDOES_IDEMPOTENCY_KEY_VARIABLE: &str = "EBB_UNDOES_IDEMPOTENCY_KEY";
/// Header with the URL for a later [`crate::callback::Callback`].
pub const CALLBACK_URL: &str = "ebb-callback-url";
/// Header with the bearer token for that URL.
pub const CALLBACK_TOKEN: &str = "ebb-callback-token";
/// Header with the number of the try.
pub const ATTEMPT: &str = "ebb-attempt";
/// Header with the try as a W3C trace context, if spans are collected; the attribute of CloudEvents has the same name.
pub const TRACEPARENT: &str = "traceparent";
/// The variable of a script with the same.
pub const TRACEPARENT_VARIABLE: &str = "TRACEPARENT";
