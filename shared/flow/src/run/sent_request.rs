//! Builds the evidence of a failed webhook request: request and response without credentials.
//!
//! Masks the credentials of the request and every text that looks like one: tokens, passwords in URLs, and JSON members
//! with such names. The sensitive values that the request has are masked, too. Withholds the body of the response if the
//! unit declares a sensitive output.

use std::sync::LazyLock;

use ebb_documents::UnitPlan;
use ebb_egress::HttpResponse;
use ebb_protocol::{Evidence, SecretText, limits, sign, unit as headers};
use regex::Regex;

use crate::response_body::{is_json, unmarked};
use crate::run::masking::{MASK, masked};
use crate::run::request_headers::GET;

/// Minimum length of a credential in a header. Masking shorter values would remove large parts of a response.
const MIN_SECRET: usize = 8;
/// Maximum bytes of a content type or URL.
const MAX_LINE: usize = 512;
/// Maximum number of headers about limits, and maximum bytes of each.
const MAX_LIMITS: usize = 8;
const MAX_LIMIT: usize = 80;
/// Maximum bytes at the begin of a page before its first tag of HTML.
const PAGE_BEGIN: usize = 512;
/// Maximum characters of a response in a message.
const EXCERPT: usize = 80;

/// Patterns of credentials. The first group is kept, the rest is masked.
static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // Secrets of Standard Webhooks, symmetric and asymmetric.
        r"()\bwh(?:sec|sk)_[A-Za-z0-9+/=_-]+",
        // Tokens of callbacks.
        r"()\bebb1\.[A-Za-z0-9._-]+",
        // JSON Web Tokens.
        r"()\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9._-]+",
        r"(?i)(\b(?:bearer|basic|digest)\s+)[A-Za-z0-9+/=._~-]{6,}",
        // The user and password of a URL.
        r#"(\b[A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s"'<>]+@"#,
        // `password=…`, as in query strings, forms and connection strings.
        r#"(?i)([a-z0-9_.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|credential|signature|private[_-]?key)[a-z0-9_.-]*\s*[=:]\s*)[^&\s"'<>,;}]+"#,
        // The same as a JSON member.
        r#"(?i)("[^"]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|credential|authorization|private[_-]?key|dsn)[^"]*"\s*:\s*)(?:"(?:[^"\\]|\\.)*"?|[0-9][^,}\s]*)"#,
        r"()-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    ]
    .map(|pattern| Regex::new(pattern).expect("the pattern is a literal"))
    .into()
});

pub(crate) struct SentRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    pub(crate) headers: &'a [(String, String)],
    /// The texts of the sensitive values that were decrypted for the request.
    pub(crate) opened: &'a [SecretText],
}

impl SentRequest<'_> {
    /// Returns the evidence of a failure of `unit`. Without a response, `response` is `None`.
    pub(crate) fn evidence(&self, unit: &UnitPlan, response: Option<&HttpResponse>) -> Evidence {
        let shown = response.filter(|response| !is_hidden(unit, response));
        let body = shown.map(|response| self.scrubbed(&response.body)).unwrap_or_default();
        let kept = head(&body, limits::EVIDENCE);
        let content_type =
            response.and_then(|response| response.header("content-type")).map(|text| self.scrub(head(text, MAX_LINE)));
        let stated = response.into_iter().flat_map(HttpResponse::limit_headers).take(MAX_LIMITS);
        let stated = stated.map(|(name, value)| head(&self.scrub(&format!("{name}: {value}")), MAX_LIMIT).to_owned());
        let stated = stated.collect::<Vec<_>>().join("; ");
        Evidence {
            method: self.method.to_owned(),
            url: self.shown_url(),
            status: response.map(|response| response.status),
            content_type,
            limits: Some(stated).filter(|stated| !stated.is_empty()),
            body: Some(kept.to_owned()).filter(|kept| !kept.is_empty()),
            truncated: kept.len() < body.len(),
            damaged: None,
        }
    }

    /// Returns method and URL of the request, such as `DELETE https://api.example.org/branches/br-1`.
    pub(crate) fn asked(&self) -> String {
        format!("{} {}", self.method, self.shown_url())
    }

    /// Returns the end of a message about a refused request, which names a line feed in its URL, and the expression `of` it.
    pub(crate) fn line_feed(&self, of: Option<&str>) -> String {
        let of = match of {
            Some(text) => format!(", from `{text}`"),
            None if self.url.contains("%0A") => String::new(),
            None => return String::new(),
        };
        format!("; its URL has a line feed, `%0A`{of}: if it is that of a file, add `trim: true` to the output")
    }

    fn shown_url(&self) -> String {
        self.scrub(head(&bare_url(self.url), MAX_LINE))
    }

    /// Returns a description of a response that is not JSON, with its beginning, for the message of a failure. Returns
    /// `None` for JSON.
    pub(crate) fn foreign_format(&self, unit: &UnitPlan, response: &HttpResponse) -> Option<String> {
        if is_json(&response.body) {
            return None;
        }
        let format = response.header("content-type").map_or_else(
            || "without a content type".to_owned(),
            |text| self.scrub(head(text.split(';').next().unwrap_or_default().trim(), MAX_LINE)),
        );
        Some(match response.body.is_empty() {
            true => "the response is empty, not JSON".to_owned(),
            false if has_sensitive_outputs(unit) => format!("the response is {format}, not JSON"),
            false => format!("the response is {format}, not JSON: `{}`", self.excerpt(&response.body)),
        })
    }

    /// Returns true if the request can change something.
    pub(crate) fn is_changing(&self) -> bool {
        self.method != GET
    }

    /// Returns true if a response is an HTML document, and the request asked for none: a page of a sign-in, a proxy or a
    /// gateway.
    pub(crate) fn is_page(&self, response: &HttpResponse) -> bool {
        let body = unmarked(&response.body).trim_ascii_start();
        let begin = String::from_utf8_lossy(&body[..body.len().min(PAGE_BEGIN)]).to_ascii_lowercase();
        let wants_page = self.headers.iter().any(|(name, value)| name == "accept" && value.contains("html"));
        let is_html = response.header("content-type").is_some_and(|text| text.to_ascii_lowercase().contains("html"));
        let has_tag = ["<!doctype html", "<html"].iter().any(|tag| begin.contains(tag));
        !wants_page && begin.starts_with('<') && (has_tag || (is_html && !begin.starts_with("<?xml")))
    }

    /// Returns the status of a response, and the beginning of its body unless the unit declares a sensitive output.
    pub(crate) fn answer(&self, unit: &UnitPlan, response: &HttpResponse) -> String {
        if is_hidden(unit, response) || response.body.is_empty() {
            return response.status_text();
        }
        format!("{} `{}`", response.status_text(), self.excerpt(&response.body))
    }

    /// Returns the beginning of a body on one line, masked.
    fn excerpt(&self, body: &[u8]) -> String {
        limits::excerpt(&self.scrubbed(body).split_whitespace().collect::<Vec<_>>().join(" "), EXCERPT)
    }

    /// Returns up to twice the stored length of a body, masked. The values of the request are masked in the whole body,
    /// because a part of one is not recognised. Another credential at the limit is still recognised by its beginning.
    fn scrubbed(&self, body: &[u8]) -> String {
        let text = masked(&String::from_utf8_lossy(body), &self.secrets().collect::<Vec<_>>());
        self.scrub(head(&text, 2 * limits::EVIDENCE))
    }

    pub(crate) fn scrub(&self, text: &str) -> String {
        let mut text = masked(text, &self.secrets().collect::<Vec<_>>());
        for pattern in PATTERNS.iter() {
            text = pattern.replace_all(&text, format!("${{1}}{MASK}")).into_owned();
        }
        limits::printable(&text)
    }

    /// Returns the values of the request that the server may repeat: Ebb's signatures and tokens, the headers of the
    /// plugin, and sensitive values.
    fn secrets(&self) -> impl Iterator<Item = &str> {
        const PLAIN: [&str; 8] = [
            "content-type",
            "accept",
            "user-agent",
            headers::ATTEMPT,
            headers::CALLBACK_URL,
            headers::TRACEPARENT,
            sign::WEBHOOK_ID,
            sign::WEBHOOK_TIMESTAMP,
        ];
        let secret = self.headers.iter().filter(|(name, _)| !PLAIN.contains(&name.as_str()));
        let secret = secret.map(|(_, value)| value.as_str()).filter(|value| value.len() >= MIN_SECRET);
        secret.chain(self.opened.iter().map(|text| text.as_str()))
    }
}

/// Returns true if the body of a response can have sensitive values. 2xx to an undo or its verification describes what the
/// undone units have made, with the values that they declare as sensitive.
fn is_hidden(unit: &UnitPlan, response: &HttpResponse) -> bool {
    has_sensitive_outputs(unit) || (!unit.undoes.is_empty() && (200..300).contains(&response.status))
}

fn has_sensitive_outputs(unit: &UnitPlan) -> bool {
    unit.outputs.values().any(|output| output.sensitive)
}

/// Returns a URL without user, password, fragment and the values of its query.
fn bare_url(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else { return MASK.to_owned() };
    // This fails for a URL without an authority, which has no user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    let Some(query) = url.query() else { return url.into() };
    let masked = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) => format!("{name}={MASK}"),
        None => MASK.to_owned(),
    });
    let masked = masked.collect::<Vec<_>>().join("&");
    url.set_query(Some(&masked));
    url.into()
}

/// Returns the first bytes of a text, up to a character boundary.
fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests;
