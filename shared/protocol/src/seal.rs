//! Encryption with XChaCha20-Poly1305, under keys that are derived from a secret. A reader of the table or bucket can
//! neither read nor change the content.
//!
//! [`seal`] encrypts queued batches under the secret of a cluster, with a random nonce. [`seal_value`] encrypts sensitive
//! values under a root secret of the installation. Its nonce is a keyed digest of the content, so the same value gives
//! the same text: a repeated result is recognised, and the digest of a plan does not change.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use hmac::Mac as _;

use crate::sign::{WebhookKeys, WebhookSecret, hmac_with};

/// Random bytes per encryption, never used twice.
pub const NONCE: usize = 24;

const BATCH: &[u8] = b"ebb batch 1";
const VALUE: &[u8] = b"ebb value 1";
const VALUE_NONCE: &[u8] = b"ebb value nonce 1";

/// Encrypts `plain`. The associated data `about` must be the same for decryption, so that a ciphertext is valid for
/// one cluster and one id. The ciphertext is 40 bytes longer than `plain`.
pub fn seal(secret: &WebhookSecret, nonce: [u8; NONCE], about: &str, plain: &[u8]) -> Vec<u8> {
    seal_for(secret, BATCH, nonce, about, plain)
}

/// Decrypts a text that was encrypted with one of `keys`. Returns `None` for another key, other associated data or a
/// changed text.
pub fn open(keys: &WebhookKeys, about: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    open_for(keys, BATCH, about, sealed)
}

/// Encrypts a sensitive value with the first key. `about` names its place, and must be the same for decryption. Returns
/// base64.
pub fn seal_value(keys: &WebhookKeys, about: &str, plain: &[u8]) -> String {
    let secret = keys.first();
    let mut mac = hmac_with(secret.derive(VALUE_NONCE).as_slice());
    mac.update(&(about.len() as u64).to_be_bytes());
    mac.update(about.as_bytes());
    mac.update(plain);
    let mut nonce = [0; NONCE];
    nonce.copy_from_slice(&mac.finalize().into_bytes()[..NONCE]);
    STANDARD.encode(seal_for(secret, VALUE, nonce, about, plain))
}

/// Decrypts the text of [`seal_value`] with one of `keys`. Returns `None` for another key, another place or a changed
/// text.
pub fn open_value(keys: &WebhookKeys, about: &str, sealed: &str) -> Option<Vec<u8>> {
    open_for(keys, VALUE, about, &STANDARD.decode(sealed).ok()?)
}

fn seal_for(secret: &WebhookSecret, purpose: &[u8], nonce: [u8; NONCE], about: &str, plain: &[u8]) -> Vec<u8> {
    let sealed = cipher(secret, purpose).encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: about.as_bytes() });
    let mut all = nonce.to_vec();
    all.extend(sealed.expect("nothing that memory holds is too long for the cipher"));
    all
}

fn open_for(keys: &WebhookKeys, purpose: &[u8], about: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, rest) = sealed.split_first_chunk::<NONCE>()?;
    let nonce = XNonce::from(*nonce);
    let payload = || Payload { msg: rest, aad: about.as_bytes() };
    keys.iter().find_map(|secret| cipher(secret, purpose).decrypt(&nonce, payload()).ok())
}

fn cipher(secret: &WebhookSecret, purpose: &[u8]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&Key::from(*secret.derive(purpose)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_secret_and_associated_data_open_a_batch() {
        let [ours, old, foreign] = [1, 2, 3].map(|byte| WebhookSecret::from_bytes(&[byte; 32]).unwrap());
        let sealed = seal(&old, [9; NONCE], "eu/1", b"a token");
        assert_eq!(sealed.len(), 7 + 40);
        assert!(!sealed.windows(5).any(|part| part == b"token"));
        let keys = WebhookKeys::new(ours, vec![old]).unwrap();
        assert_eq!(open(&keys, "eu/1", &sealed).as_deref(), Some(&b"a token"[..]));
        assert_eq!(open(&WebhookKeys::from(foreign), "eu/1", &sealed), None);
        assert_eq!(open(&keys, "eu/2", &sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(open(&keys, "eu/1", &changed), None, "byte {at}");
            assert_eq!(open(&keys, "eu/1", &sealed[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn a_value_is_sealed_for_its_place_and_for_the_keys_of_a_rotation() {
        let [old, new, foreign] = [1, 2, 3].map(|byte| WebhookSecret::from_bytes(&[byte; 32]).unwrap());
        let sealed = seal_value(&WebhookKeys::from(old.clone()), "run/1/dsn", b"postgres://");
        assert_eq!(sealed, seal_value(&WebhookKeys::from(old.clone()), "run/1/dsn", b"postgres://"));
        let rotated = WebhookKeys::new(new.clone(), vec![old]).unwrap();
        assert_eq!(open_value(&rotated, "run/1/dsn", &sealed).as_deref(), Some(&b"postgres://"[..]));
        assert_eq!(open_value(&rotated, "run/2/dsn", &sealed), None);
        for keys in [new, foreign] {
            assert_eq!(open_value(&WebhookKeys::from(keys), "run/1/dsn", &sealed), None);
        }
        let others = [("run/2/dsn", &b"postgres://"[..]), ("run/1/dsn", b"postgres:/")];
        for (about, plain) in others {
            assert_ne!(seal_value(&rotated, about, plain)[..32], sealed[..32], "each value has its own nonce");
        }
        assert_eq!(open(&rotated, "run/1/dsn", &STANDARD.decode(&sealed).unwrap()), None, "keys have one purpose");
    }
}
