//! Encryption of queued batches with XChaCha20-Poly1305, under a key derived from the secret of the cluster. A reader
//! of the table can neither read nor change them.

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};

use crate::sign::{WebhookKeys, WebhookSecret};

/// Random bytes per encryption, never used twice.
pub const NONCE: usize = 24;

/// Encrypts `plain`. The associated data `about` must be the same for decryption, so that a ciphertext is valid for
/// one cluster and one id. The ciphertext is 40 bytes longer than `plain`.
pub fn seal(secret: &WebhookSecret, nonce: [u8; NONCE], about: &str, plain: &[u8]) -> Vec<u8> {
    let payload = Payload { msg: plain, aad: about.as_bytes() };
    let sealed = cipher(secret).encrypt(&XNonce::from(nonce), payload);
    let mut all = nonce.to_vec();
    all.extend(sealed.expect("nothing that memory holds is too long for the cipher"));
    all
}

/// Decrypts a text that was encrypted with one of `keys`. Returns `None` for another key, other associated data or a
/// changed text.
pub fn open(keys: &WebhookKeys, about: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, rest) = sealed.split_first_chunk::<NONCE>()?;
    let nonce = XNonce::from(*nonce);
    keys.iter().find_map(|secret| cipher(secret).decrypt(&nonce, Payload { msg: rest, aad: about.as_bytes() }).ok())
}

fn cipher(secret: &WebhookSecret) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&Key::from(*secret.derive(b"ebb batch 1")))
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
}
