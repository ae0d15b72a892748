//! Sessions of the console. The id of a session is a secret of one browser, and is not stored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::id::short_digest;
use crate::source_signature::same;

/// The characters of the digests that are made of an id: 160 bits.
const DIGEST: usize = 32;
/// The characters of a form token before its digest.
const SALT: usize = 16;

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

    /// Returns a text that a form of the session has to send: 16 characters of `random` and a digest.
    ///
    /// Each response has another text. The size of a compressed response therefore reveals nothing about one that is valid,
    /// although the response repeats text of others.
    pub fn form_token(&self, random: u64) -> String {
        self.form_token_with(&format!("{random:016x}"))
    }

    fn form_token_with(&self, salt: &str) -> String {
        format!("{salt}{}", short_digest(&["console form", self.reveal(), salt], DIGEST))
    }

    /// Returns true if a form was made for the session.
    pub fn has_form_token(&self, given: &str) -> bool {
        given.split_at_checked(SALT).is_some_and(|(salt, _)| same(self.form_token_with(salt), given))
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
        let (form, next) = (id.form_token(7), id.form_token(8));
        assert!(id.has_form_token(&form) && id.has_form_token(&next) && !other.has_form_token(&form));
        for wrong in ["", &form[1..], &form[..16], &format!("{}{}", &next[..16], &form[16..]), &form.to_uppercase()] {
            assert!(!id.has_form_token(wrong), "{wrong}");
        }
        // No text of more than a few characters is in two tokens.
        assert!((16..=44).all(|from| !next.contains(&form[from..from + 4])), "{form} {next}");
        for derived in [id.digest().as_str(), proof.as_str(), &form[16..]] {
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
