//! HTTP Digest (RFC 7616) with `qop=auth`, and that of RFC 2069.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use md5::Md5;
use sha2::{Digest as _, Sha256};

use crate::HttpResponse;

/// A challenge of a server. Each use counts, because a server refuses a count that it has seen.
pub struct DigestChallenge {
    params: BTreeMap<String, String>,
    hash: fn(&str) -> String,
    uses: AtomicU32,
}

impl DigestChallenge {
    /// Returns the first challenge of a response whose algorithm is known.
    pub fn of(response: &HttpResponse) -> Option<Self> {
        let mut challenges = response.headers.iter().filter(|(name, _)| name == "www-authenticate");
        challenges.find_map(|(_, value)| Self::parse(value))
    }

    fn parse(header: &str) -> Option<Self> {
        let at = header.to_ascii_lowercase().find("digest ")?;
        let params = params(&header[at + "digest ".len()..]);
        let hash: fn(&str) -> String = match params.get("algorithm").map(|name| name.to_ascii_lowercase()).as_deref() {
            None | Some("md5" | "md5-sess") => |text| hex::encode(Md5::digest(text)),
            Some("sha-256" | "sha-256-sess") => |text| hex::encode(Sha256::digest(text)),
            Some(_) => return None,
        };
        let is_known = params.get("qop").is_none_or(|list| list.split(',').any(|qop| qop.trim() == "auth"));
        let is_complete = params.contains_key("realm") && params.contains_key("nonce");
        (is_known && is_complete).then_some(Self { params, hash, uses: AtomicU32::new(0) })
    }

    /// Returns true if the other challenge is the same one.
    pub fn is(&self, other: &Self) -> bool {
        self.param("nonce") == other.param("nonce")
    }

    fn param(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }

    /// Returns the header `Authorization` of a request. `uri` has path and query. `cnonce` is a random text without
    /// quotation marks.
    pub fn authorize(&self, (user, password): (&str, &str), (method, uri): (&str, &str), cnonce: &str) -> String {
        let (hash, nonce, realm) = (self.hash, self.param("nonce"), self.param("realm"));
        let mut secret = hash(&format!("{user}:{realm}:{password}"));
        if self.param("algorithm").to_ascii_lowercase().ends_with("-sess") {
            secret = hash(&format!("{secret}:{nonce}:{cnonce}"));
        }
        let request = hash(&format!("{method}:{uri}"));
        let count = format!("{:08x}", self.uses.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        let user = user.replace('\\', "\\\\").replace('"', "\\\"");
        let mut header = format!("Digest username=\"{user}\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{uri}\"");
        let response = match self.params.contains_key("qop") {
            true => {
                header.push_str(&format!(", qop=auth, nc={count}, cnonce=\"{cnonce}\""));
                hash(&format!("{secret}:{nonce}:{count}:{cnonce}:auth:{request}"))
            }
            false => hash(&format!("{secret}:{nonce}:{request}")),
        };
        header.push_str(&format!(", response=\"{response}\""));
        for name in ["algorithm", "opaque"].into_iter().filter(|name| self.params.contains_key(*name)) {
            let quote = if name == "opaque" { "\"" } else { "" };
            header.push_str(&format!(", {name}={quote}{}{quote}", self.param(name)));
        }
        header
    }
}

/// Returns the parameters of the first challenge of a list, by their names in lower case.
fn params(text: &str) -> BTreeMap<String, String> {
    let (mut rest, mut found) = (text, BTreeMap::new());
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([',', ' ', '\t']);
        let after = after.trim_start();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        // Another scheme begins.
        if name.contains(' ') {
            break;
        }
        found.insert(name.to_ascii_lowercase(), value.trim_end().to_owned());
        rest = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7616, 3.9.1 and of RFC 2069, 2.4 with its erratum: a header, the password and the response. It is
    /// null if nothing can be answered.
    #[test]
    fn published_challenges_get_their_published_responses() {
        let rows: Vec<(String, String, Option<String>)> =
            serde_json::from_str(include_str!("../tests/challenges.json")).unwrap();
        for (header, password, response) in rows {
            let challenge = DigestChallenge::parse(&header);
            assert_eq!(challenge.is_some(), response.is_some(), "{header}");
            let (Some(challenge), Some(response)) = (challenge, response) else { continue };
            let cnonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
            let answer = || challenge.authorize(("Mufasa", password.as_str()), ("GET", "/dir/index.html"), cnonce);
            let (authorized, again) = (answer(), answer());
            assert!(authorized.contains(&format!("response=\"{response}\"")), "{authorized}");
            assert_eq!(again.contains("nc=00000002"), header.contains("qop"), "{again}");
        }
    }
}
