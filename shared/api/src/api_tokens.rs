//! The tokens of the configuration.

use std::sync::{Mutex, PoisonError};

use ebb_protocol::{api_token, has_digest};

use crate::{ApiCaller, ApiRole, CallerProof, OidcIssuers};

/// Maximum unused codes of links that sign in once.
const MAX_SIGN_IN_CODES: usize = 16;

/// The valid tokens of the configuration, as digests, and the issuers of identity tokens. The time of a comparison of
/// digests reveals nothing about a token.
#[derive(Debug, Default)]
pub struct ApiTokens {
    tokens: Vec<(String, ApiRole)>,
    pub(crate) issuers: OidcIssuers,
    /// The digests of the codes of links that sign in once, the oldest first. `None` for a server without such links.
    sign_in_codes: Option<Mutex<Vec<String>>>,
}

impl ApiTokens {
    pub fn new<'a>(tokens: impl IntoIterator<Item = (&'a str, ApiRole)>) -> Self {
        let tokens = tokens.into_iter().map(|(token, role)| (api_token::token_digest(token), role)).collect();
        Self { tokens, ..Self::default() }
    }

    /// Accepts identity tokens of `issuers`.
    #[must_use]
    pub fn with_issuers(self, issuers: OidcIssuers) -> Self {
        Self { issuers, ..self }
    }

    /// Accepts a code once, as the first of the tokens. The code has 128 random bits or more.
    #[must_use]
    pub fn with_sign_in_code(self, code: &str) -> Self {
        Self { sign_in_codes: Some(Mutex::new(vec![api_token::token_digest(code)])), ..self }
    }

    /// Returns the caller as which a code signs in. The code is not valid any more.
    pub(crate) fn take_sign_in_code(&self, code: &str) -> Option<ApiCaller> {
        let mut expected = self.sign_in_codes.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let found = expected.iter().position(|expected| has_digest(code, expected))?;
        expected.remove(found);
        // The first token.
        self.role_caller(|_| true)
    }

    /// Returns another code of a link, to the holder of the token as which it signs in. `None` for other tokens, and for a
    /// server without such links. The oldest of too many unused codes is not valid any more.
    pub(crate) fn issue_sign_in_code(&self, token: &str, random: [u64; 2]) -> Option<String> {
        let (own, _) = self.tokens.first()?;
        let codes = self.sign_in_codes.as_ref().filter(|_| has_digest(token, own))?;
        let code = random.map(|part| format!("{part:016x}")).concat();
        let mut codes = codes.lock().unwrap_or_else(PoisonError::into_inner);
        if codes.len() >= MAX_SIGN_IN_CODES {
            codes.remove(0);
        }
        codes.push(api_token::token_digest(&code));
        Some(code)
    }

    /// Returns the caller with the first token of the configuration whose digest is the own one.
    pub(crate) fn role_caller(&self, is_own: impl Fn(&str) -> bool) -> Option<ApiCaller> {
        let (digest, role) = self.tokens.iter().find(|(digest, _)| is_own(digest))?;
        let name = format!("role {role:?}").to_lowercase();
        Some(ApiCaller::new(name, vec![role.scope()], CallerProof::Role(digest.clone())))
    }
}
