//! The registration of a relay, `POST /v1/clusters/NAME/register`, with a bootstrap token, `ebbc_SECRET`.
//!
//! The relay makes the secret that signs its polls and stores it before it sends it. A repetition with the same token
//! and the same secret has the same result, because the response may be lost.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::api_token::random_text;

/// The version of the messages.
pub const VERSION: u32 = 1;
pub const REGISTRATION_BODY: usize = 4 << 10;
/// The beginning of every bootstrap token. Scanners for leaked secrets can search for it.
const TOKEN_PREFIX: &str = "ebbc_";
/// The number of characters after the prefix: 256 bits in base64.
const TOKEN_LENGTH: usize = 43;
/// The maximum characters of the UID of a cluster.
const MAX_UID: usize = 128;

/// Returns a bootstrap token of 256 random bits.
pub fn issue_token(random: [u64; 4]) -> Zeroizing<String> {
    Zeroizing::new(format!("{TOKEN_PREFIX}{}", random_text(random).as_str()))
}

/// Returns true if a text has the form of a bootstrap token.
pub fn is_token(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.strip_prefix(TOKEN_PREFIX).is_some_and(|rest| rest.len() == TOKEN_LENGTH && rest.bytes().all(plain))
}

/// Returns true if a text can be the UID of a cluster: printable characters of ASCII without spaces, at most 128.
pub fn is_uid(text: &str) -> bool {
    (1..=MAX_UID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The request of a relay. Its text is never printed, because it has the secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RegisterRelay {
    /// The version of the message, 1.
    pub v: u32,
    /// The UID of the namespace `kube-system`. The cluster is pinned to it.
    pub uid: String,
    /// The secret that the relay has made: `whsec_` and 24 to 64 random bytes in base64.
    pub secret: String,
    /// The version of the relay.
    pub version: String,
}

/// The response to a relay whose secret is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RelayRegistration {
    /// The version of the message, 1.
    pub v: u32,
    /// The name of the cluster in documents.
    pub cluster: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_uids_have_a_form() {
        let token = issue_token([1, 2, 3, u64::MAX]);
        assert!(is_token(&token), "{}", *token);
        let longer = format!("{}a", *token);
        for text in ["", "ebbc_", "ebbt_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", &token[1..], &longer] {
            assert!(!is_token(text), "{text}");
        }
        let long = "a".repeat(MAX_UID);
        assert!(is_uid("8c1a2f4e-0000-4000-8000-0123456789ab") && is_uid(&long));
        for text in ["", "a b", "a\u{7}", &format!("{long}a")] {
            assert!(!is_uid(text), "{text:?}");
        }
    }
}
