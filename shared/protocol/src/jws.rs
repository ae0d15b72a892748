//! JSON Web Signatures (RFC 7515) of which the payload is the body, or has its hash.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ebb_engine::{JwsAlgorithm, Millis, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// How far the clock of a sender may be ahead.
const MAX_AHEAD: Millis = Millis(60_000);

/// A token in a header. Its algorithm is that of the source, whatever the token says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct JwsScheme {
    pub header: String,
    /// The text before the token.
    #[cfg_attr(test, serde(default))]
    pub prefix: String,
    pub algorithm: JwsAlgorithm,
    /// The claim with the SHA-256 of the body in hexadecimal. Without it, the payload is detached: it is the body.
    pub body_hash: Option<String>,
    /// The required claim `iss`.
    pub issuer: Option<String>,
}

impl JwsScheme {
    /// Returns the signed bytes of a token, and its signature, which the caller compares.
    ///
    /// # Errors
    /// Returns what is wrong if the token has another form or algorithm, has expired, or is about another body.
    pub(crate) fn opened<'a>(
        &self,
        token: &'a str,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(Vec<u8>, &'a str), &'static str> {
        let token = token.strip_prefix(&self.prefix).ok_or("it does not begin with the `prefix` of the source")?;
        let parts: Vec<&str> = token.split('.').collect();
        let [head, payload, signature] = parts[..] else { return Err("it is no JSON Web Signature of three parts") };
        let header = decoded(head).ok_or("its header is not JSON in base64url")?;
        if header["alg"] != self.algorithm.parts().0 {
            return Err("its algorithm is not that of the source");
        }
        // RFC 7797: the payload is signed as it is. Other critical extensions are not known.
        let is_raw = header["b64"] == false && self.body_hash.is_none();
        if header["crit"] != Value::Null && !(is_raw && header["crit"] == json!(["b64"])) {
            return Err("it has an extension that is not known");
        }
        let Some(claim) = &self.body_hash else {
            let signed = match (payload, is_raw) {
                ("", true) => [head.as_bytes(), b".", body].concat(),
                ("", false) => format!("{head}.{}", URL_SAFE_NO_PAD.encode(body)).into_bytes(),
                _ => return Err("its payload is not detached"),
            };
            return Ok((signed, signature));
        };
        let claims = decoded(payload).ok_or("its payload is not JSON in base64url")?;
        if claims[claim].as_str().is_none_or(|hash| hash != body_hash(body)) {
            return Err("it has no hash of the exact bytes of the body");
        }
        if self.issuer.as_ref().is_some_and(|issuer| claims["iss"] != *issuer.as_str()) {
            return Err("it is of another issuer");
        }
        let time = |claim: &str| claims.get(claim).map(|seconds| seconds.as_f64().map(|seconds| seconds * 1000.0));
        if time("exp").is_some_and(|end| end.is_none_or(|end| end <= now.0 as f64)) {
            return Err("its `exp` is past or not a number");
        }
        if time("nbf").is_some_and(|start| start.is_none_or(|start| start > now.plus(MAX_AHEAD).0 as f64)) {
            return Err("its `nbf` is in the future or not a number");
        }
        Ok((format!("{head}.{payload}").into_bytes(), signature))
    }

    /// Returns the signed bytes of a token for a body, and the token up to its signature.
    pub(crate) fn unsigned(&self, body: &[u8]) -> (Vec<u8>, String) {
        let encoded = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let head = encoded(json!({"alg": self.algorithm.parts().0}));
        let Some(claim) = &self.body_hash else {
            let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(body)).into_bytes();
            return (signed, format!("{}{head}..", self.prefix));
        };
        let mut claims = json!({claim.as_str(): body_hash(body)});
        if let Some(issuer) = &self.issuer {
            claims["iss"] = issuer.as_str().into();
        }
        let token = format!("{head}.{}", encoded(claims));
        (token.clone().into_bytes(), format!("{}{token}.", self.prefix))
    }
}

fn body_hash(body: &[u8]) -> String {
    hex::encode(Sha256::digest(body))
}

fn decoded(part: &str) -> Option<Value> {
    serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).ok()?).ok().filter(Value::is_object)
}
