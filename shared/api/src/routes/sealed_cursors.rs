//! Encrypts positions in lists for callers with limited scopes, who could otherwise read in them about targets of others.

use ebb_protocol::seal::{open_value, seal_value};
use ebb_protocol::sign::WebhookKeys;

/// Encrypts a position for a place. It is valid in a query without encoding.
pub(super) fn sealed(keys: &WebhookKeys, place: &str, position: &str) -> String {
    seal_value(keys, place, position.as_bytes()).replace('+', "-").replace('/', "_")
}

/// Decrypts a position that was encrypted for the same place.
pub(super) fn opened(keys: &WebhookKeys, place: &str, sealed: &str) -> Option<String> {
    let position = open_value(keys, place, &sealed.replace('-', "+").replace('_', "/"))?;
    String::from_utf8(position).ok()
}
