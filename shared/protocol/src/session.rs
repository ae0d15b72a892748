//! Sessions of browsers and of the command line, and sign-ins that begin one. Their secrets are not stored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ebb_engine::Timestamp;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::api_token::random_text;
use crate::id::short_digest;
use crate::source_signature::same;

/// The characters of the digests that are made of an id: 160 bits.
const DIGEST: usize = 32;
/// The characters of a form token before its digest.
const SALT: usize = 16;

/// The beginning of every token of the command line. Scanners for leaked secrets can search for it.
const TOKEN: &str = "ebbs_";

/// The id of a session: 256 random bits as text. The id of a session of the command line is a bearer token, and no cookie.
pub struct SessionId(Zeroizing<String>);

/// Returns true for 256 bits as text: an id, a code challenge, or a text of [`SessionId::issue`].
pub fn is_random_text(text: &str) -> bool {
    URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == 32)
}

/// Returns the code challenge of a verifier (RFC 7636), by the method `S256`.
pub fn code_challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

impl SessionId {
    pub fn issue(random: [u64; 4]) -> Self {
        Self(random_text(random))
    }

    /// Returns a new token of the command line.
    pub fn issue_token(random: [u64; 4]) -> Self {
        Self(Zeroizing::new(format!("{TOKEN}{}", random_text(random).as_str())))
    }

    /// Returns the id in the value of a cookie, or `None` for a text that is none.
    pub fn parse(text: &str) -> Option<Self> {
        is_random_text(text).then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// Returns the id that is a token of the command line, or `None` for another text.
    pub fn parse_token(text: &str) -> Option<Self> {
        text.strip_prefix(TOKEN).is_some_and(is_random_text).then(|| Self(Zeroizing::new(text.to_owned())))
    }

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

    pub fn has_form_token(&self, given: &str) -> bool {
        given.split_at_checked(SALT).is_some_and(|(salt, _)| same(self.form_token_with(salt), given))
    }
}

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionId").finish_non_exhaustive()
    }
}

/// A sign-in at an issuer that a browser has begun. The browser keeps it in a cookie, and the server does not store it.
///
/// `state`, `nonce` and verifier are digests of the whole cookie. A cookie with another issuer, page or time therefore fits no answer.
pub struct PendingSignIn {
    pub issuer: String,
    /// The page to which the sign-in leads.
    pub next: String,
    pub began: Timestamp,
    cookie: Zeroizing<String>,
}

impl PendingSignIn {
    /// Begins a sign-in. `secret` is random, and used for nothing else.
    pub fn begin(secret: &SessionId, began: Timestamp, issuer: &str, next: &str) -> Self {
        let (of_issuer, of_next) = (URL_SAFE_NO_PAD.encode(issuer), URL_SAFE_NO_PAD.encode(next));
        let cookie = Zeroizing::new(format!("{}.{}.{of_issuer}.{of_next}", secret.reveal(), began.0));
        Self { issuer: issuer.to_owned(), next: next.to_owned(), began, cookie }
    }

    /// Returns the sign-in in the value of a cookie, or `None` for a text that is none.
    pub fn parse(cookie: &str) -> Option<Self> {
        let mut parts = cookie.split('.');
        let (secret, began) = (SessionId::parse(parts.next()?)?, parts.next()?.parse().ok()?);
        let mut text = || String::from_utf8(URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok();
        let pending = Self::begin(&secret, Timestamp(began), &text()?, &text()?);
        (pending.reveal() == cookie).then_some(pending)
    }

    /// Returns the value of the cookie. It has letters, digits, `-`, `_` and `.`.
    pub fn reveal(&self) -> &str {
        &self.cookie
    }

    fn derived(&self, purpose: &str) -> String {
        short_digest(&["console sign-in", purpose, self.reveal()], DIGEST)
    }

    /// Returns the parameter `state`, which the issuer returns to the browser.
    pub fn state(&self) -> String {
        self.derived("state")
    }

    /// Returns true if the browser that began the sign-in brings the answer to it.
    pub fn has_state(&self, given: &str) -> bool {
        same(self.state(), given)
    }

    /// Returns the claim `nonce` of the identity token.
    pub fn nonce(&self) -> String {
        self.derived("nonce")
    }

    pub fn has_nonce(&self, given: &str) -> bool {
        same(self.nonce(), given)
    }

    /// Returns the code verifier (RFC 7636): 64 characters.
    pub fn verifier(&self) -> Zeroizing<String> {
        Zeroizing::new(self.derived("verifier") + &self.derived("verifier, second part"))
    }

    /// Returns the code challenge of the verifier, by the method `S256`.
    pub fn challenge(&self) -> String {
        code_challenge(&self.verifier())
    }
}

impl std::fmt::Debug for PendingSignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingSignIn").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_sign_in_is_bound_to_its_cookie() {
        let begin = |secret: u64, at: u64, issuer: &str, next: &str| {
            PendingSignIn::begin(&SessionId::issue([secret; 4]), Timestamp(at), issuer, next)
        };
        let pending = begin(1, 7, "https://issuer.test", "/console/a?b=c;d");
        assert!(pending.reveal().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
        let parsed = PendingSignIn::parse(pending.reveal()).unwrap();
        assert_eq!(
            (parsed.issuer.as_str(), parsed.next.as_str(), parsed.began.0),
            ("https://issuer.test", "/console/a?b=c;d", 7)
        );
        assert!(parsed.has_state(&pending.state()) && parsed.has_nonce(&pending.nonce()));
        let texts = [pending.state(), pending.nonce(), pending.verifier().to_string(), pending.challenge()];
        for (at, text) in texts.iter().enumerate() {
            assert!(!texts[..at].contains(text) && !pending.reveal().contains(text.as_str()));
        }
        assert_eq!((pending.verifier().len(), pending.challenge().len()), (64, 43));
        for (secret, at, issuer, next) in crate::tests::rows::<(u64, u64, String, String)>("other_sign_ins") {
            let other = begin(secret, at, &issuer, &next);
            assert!(!other.has_state(&pending.state()) && !other.has_nonce(&pending.nonce()));
            assert_ne!(other.verifier().as_str(), pending.verifier().as_str());
        }
        let value = pending.reveal();
        for wrong in
            ["", "a", &value[1..], &value[..value.len() - 1], &format!("{value}.x"), &value.replace(".7.", ".07.")]
        {
            assert!(PendingSignIn::parse(wrong).is_none(), "{wrong}");
        }
        assert!(!format!("{pending:?}").contains(&value[..43]));
    }

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
        // A token is no cookie, and the session of one is not that of the other.
        let (id, token) = (SessionId::issue([7; 4]), SessionId::issue_token([7; 4]));
        let parsed = SessionId::parse_token(token.reveal()).unwrap();
        assert!(SessionId::parse(token.reveal()).is_none() && SessionId::parse_token(id.reveal()).is_none());
        assert!(parsed.digest() == token.digest() && token.digest() != id.digest());
        let longer = format!("{}A", id.reveal());
        for text in ["", "a", &longer, &id.reveal()[1..], &id.reveal().replace('A', "+"), "../../w#1"] {
            assert!(SessionId::parse(text).is_none(), "{text}");
        }
    }
}
