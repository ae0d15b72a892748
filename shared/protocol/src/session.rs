//! Sessions of the console. The id of a session is a secret of one browser, and is not stored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::id::short_digest;
use crate::source_signature::same;

/// The characters of the digests that are made of an id: 160 bits.
const DIGEST: usize = 32;

/// The id of a session: 256 random bits as text.
pub struct SessionId(Zeroizing<String>);

impl SessionId {
    pub fn issue(random: [u64; 4]) -> Self {
        let bytes = Zeroizing::new(random.map(u64::to_be_bytes).concat());
        Self(Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes.as_slice())))
    }

    /// Returns the id in the value of a cookie, or `None` for a text that is none.
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == 32);
        is_id.then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// Returns the value of the cookie.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the name under which the session is stored.
    pub fn digest(&self) -> String {
        short_digest(&["console session", self.reveal()], DIGEST)
    }

    /// Returns what is stored about the token behind the session. A reader of the table cannot guess a weak token with it,
    /// because the id is not stored.
    pub fn proof_of(&self, token_digest: &str) -> String {
        short_digest(&["console token", self.reveal(), token_digest], DIGEST)
    }

    /// Returns true if the proof is that of a token.
    pub fn proves(&self, proof: &str, token_digest: &str) -> bool {
        same(proof, self.proof_of(token_digest))
    }

    /// Returns the text that a form of the session has to send.
    pub fn form_token(&self) -> String {
        short_digest(&["console form", self.reveal()], DIGEST)
    }

    /// Returns true if a form was made for the session.
    pub fn has_form_token(&self, given: &str) -> bool {
        same(self.form_token(), given)
    }
}

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionId").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_proves_its_token_and_its_forms() {
        let id = SessionId::issue([1, 2, 3, u64::MAX]);
        assert_eq!(SessionId::parse(id.reveal()).unwrap().digest(), id.digest());
        let other = SessionId::issue([1, 2, 3, 4]);
        let proof = id.proof_of("sha256:a");
        assert!(id.proves(&proof, "sha256:a") && !id.proves(&proof, "sha256:b") && !other.proves(&proof, "sha256:a"));
        assert!(id.has_form_token(&id.form_token()) && !other.has_form_token(&id.form_token()));
        for derived in [id.digest(), proof, id.form_token()] {
            assert!(derived.len() == 32 && !derived.contains(id.reveal()));
        }
        assert!(!format!("{id:?}").contains(id.reveal()));
    }

    #[test]
    fn other_texts_are_no_ids() {
        let id = SessionId::issue([7; 4]);
        let longer = format!("{}A", id.reveal());
        for text in ["", "a", &longer, &id.reveal()[1..], &id.reveal().replace('A', "+"), "../../w#1"] {
            assert!(SessionId::parse(text).is_none(), "{text}");
        }
    }
}
