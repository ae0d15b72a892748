//! Tokens, keys and ids.

use ebb_engine::{Attempt, Epoch, Hook, Timestamp, Unit};
use ebb_protocol::callback_token::{TokenClaims, TokenError, TokenKind};
use ebb_protocol::id::{self, RunId};
use ebb_protocol::limits;
use ebb_protocol::sign::{MessageId, WebhookKeys, WebhookSecret};

use crate::InputParts;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// Runs a token and ids. The first part is a token, the second has the names of target, resource and unit, one per
/// line.
///
/// A token that was minted here must contain its ids. Any other token must be rejected.
pub(crate) fn tokens(parts: &InputParts<'_>) {
    let text = parts.get(0);
    let keys = WebhookKeys::from(WebhookSecret::from_bytes(&[3; 32]).expect("32 bytes are a secret"));
    match TokenClaims::verify(text, &keys, NOW) {
        Ok(claims) | Err(TokenError::Expired(claims)) => {
            assert_eq!(claims.sign(&keys), text, "another spelling of a token is a token");
        }
        Err(error) => assert!(!error.to_string().contains(text) || text.len() < 8, "{error}"),
    }
    assert!(WebhookKeys::parse(text).err().is_none_or(|error| !error.to_string().is_empty()));
    let mut names = parts.get(1).lines();
    let [kind, name, resource, unit] = std::array::from_fn(|_| names.next().unwrap_or_default());
    let instance = id::instance_key(kind, name, unit);
    for hook in [Hook::PreStart, Hook::PostStart, Hook::PreStop, Hook::PostStop] {
        let run = RunId::new(&instance, text.len() as u64 + 1, hook);
        assert_eq!(run.as_str().parse::<RunId>().as_ref(), Ok(&run));
        assert_eq!(run.hook(), hook);
        altered(&keys, run, text);
    }
    let key = id::unit_key(&instance, resource, unit);
    assert!(key.len() <= id::MAX_UNIT_KEY && key.starts_with(|c: char| c.is_ascii_lowercase()), "{key}");
    assert!(key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{key}");
    if let Ok(run) = text.parse::<RunId>() {
        assert_eq!(run.as_str(), text);
        assert_eq!(run.sibling(run.hook()).hook(), run.hook());
    }
    assert!(MessageId::parse(text).ok().is_none_or(|id| id.as_str() == text));
    let message = limits::message(text);
    assert!(message.len() <= limits::MESSAGE, "{}", message.len());
}

/// Checks that a token is rejected after one byte has changed.
fn altered(keys: &WebhookKeys, run: RunId, text: &str) {
    let claims = TokenClaims {
        run,
        unit: Unit(1),
        attempt: Attempt(2),
        epoch: Epoch(3),
        expiry: Timestamp(NOW.0 + 1),
        kind: TokenKind::Webhook,
        remaining_results: 0,
    };
    let token = claims.sign(keys);
    assert_eq!(TokenClaims::verify(&token, keys, NOW).as_ref(), Ok(&claims));
    for (at, byte) in text.bytes().enumerate().take(8).filter(|(_, byte)| byte.is_ascii_graphic()) {
        let mut bytes = token.clone().into_bytes();
        let at = (at * 31 + text.len()) % bytes.len();
        if bytes[at] != byte {
            bytes[at] = byte;
            let altered = String::from_utf8(bytes).expect("ASCII stays ASCII");
            assert!(TokenClaims::verify(&altered, keys, NOW).is_err(), "{altered} for {token}");
        }
    }
}
