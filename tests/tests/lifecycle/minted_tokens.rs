//! Tokens that rows make: callback tokens, identity tokens of the receiver, and forgeries of named tokens.

use ebb_protocol::api_token::token_digest;
use ebb_protocol::{SessionId, TokenClaims, TokenKind};

use super::replaced;
use crate::harness::*;
use crate::security::identity_tokens::IdentityToken;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum MintedToken {
    Callback(CallbackToken),
    Identity(IdentityToken),
    /// The text of a named token, for its parts.
    Named(String),
    /// A text with a secret after its first `=`: the cookie of a session, or a link.
    After(String),
}

/// A callback token, valid for a minute and of the first attempt of the first unit, unless the row has others.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CallbackToken {
    /// The sandbox and the hook, such as `a/preStart`.
    run: String,
    unit: u32,
    attempt: Option<u32>,
    epoch: Option<u32>,
    /// The seconds from now to its expiry.
    seconds: Option<i64>,
    /// True for the token of a script.
    relay: bool,
    /// True for a token that another control plane has signed.
    foreign: bool,
}

impl CallbackToken {
    fn signed(self, harness: &Harness) -> String {
        let (name, hook) = self.run.split_once('/').unwrap();
        let kind = if self.relay { TokenKind::Relay } else { TokenKind::Webhook };
        let expiry = Timestamp(now().0.saturating_add_signed(self.seconds.unwrap_or(60) * 1_000));
        let run = run_id(name, hook.parse().unwrap());
        let claims = fakes::claims(run, self.attempt.unwrap_or(1), kind, expiry);
        let epoch = self.epoch.map_or(claims.epoch, Epoch);
        let claims = TokenClaims { unit: Unit(self.unit), epoch, ..claims };
        if self.foreign {
            return claims.sign(&WebhookSecret::from_bytes(&[7; 32]).unwrap().into());
        }
        claims.sign(&harness.stack().env().settings.token_keys)
    }
}

/// Takes `mint` out of a row. Returns names and their texts: each token, and before it the parts of an identity token
/// (`HEAD_`, `CLAIMS_`, `PROOF_`), those of a named one (`ID_`, `SECRET_`), the digest of that or of a session (`DIGEST_`),
/// the token in capitals (`UPPER_`), and without its last character (`SHORT_`).
pub(super) fn mint(harness: &Harness, row: &mut Value, kept: &[(String, String)]) -> Vec<(String, String)> {
    let minted = row.as_object_mut().unwrap().remove("mint").unwrap_or_else(|| json!({}));
    let mut texts = Vec::new();
    for (name, token) in minted.as_object().unwrap() {
        let token = replaced(token.to_string(), kept);
        let token: MintedToken =
            serde_json::from_str(&token).unwrap_or_else(|error| panic!("{name}: {error}: {token}"));
        let text = match token {
            MintedToken::Callback(token) => token.signed(harness),
            MintedToken::Identity(token) => token.signed(harness.receiver.url()),
            MintedToken::Named(token) => {
                let (id, secret) = token.strip_prefix("ebbt_").and_then(|rest| rest.split_once('_')).unwrap();
                let digest = token_digest(&token);
                let parts = [("ID", id), ("SECRET", secret), ("DIGEST", &digest)];
                texts.extend(parts.map(|(part, text)| (format!("{part}_{name}"), text.to_owned())));
                token
            }
            MintedToken::After(text) => {
                let secret = text.split(['=', ';']).nth(1).unwrap().to_owned();
                texts.extend(SessionId::parse(&secret).map(|id| (format!("DIGEST_{name}"), id.digest())));
                secret
            }
        };
        let parts = ["HEAD", "CLAIMS", "PROOF"].into_iter().zip(text.split('.'));
        let upper = text.to_uppercase();
        let parts = parts.chain([("SHORT", &text[..text.len() - 1]), ("UPPER", upper.as_str())]);
        texts.extend(parts.map(|(part, text)| (format!("{part}_{name}"), text.to_owned())));
        texts.push((name.clone(), text));
    }
    texts
}
