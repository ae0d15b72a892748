//! The request that a webhook unit's server gets.

use serde::{Deserialize, Serialize};

/// Header with the key that stays the same over all tries of a unit: create once under it.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Header with the URL for a later [`crate::callback::Callback`].
pub const CALLBACK_URL: &str = "ebb-callback-url";
/// Header with the bearer token for that URL.
pub const CALLBACK_TOKEN: &str = "ebb-callback-token";
/// Header with the number of the try.
pub const ATTEMPT: &str = "ebb-attempt";

/// What a server may answer with in JSON. Any other JSON, or none, with a 2xx status is plain success and is what the
/// document's `response.body` sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedBody {
    /// Seconds after which to ask again.
    #[serde(default)]
    pub retry_after: Option<u64>,
}
