//! Asks the receiver of a webhook unit, and reads all pages of an answer that is a list.
//!
//! A list without a resource shows its absence only if the list is whole. So the pages after the first one are read: by
//! `Link` with `rel="next"` (RFC 8288), or by `next` of the webhook. The value of the answer has the elements of all pages.
//! An answer whose body speaks of a further page, and says nothing that Ebb can follow, is not whole.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use ebb_documents::render::{RenderedQuestion, RenderedRequest};
use ebb_egress::{BytePermit, CallResult, HttpRequest, HttpResponse};
use ebb_engine::Timestamp;
use ebb_protocol::limits;
use regex::Regex;
use serde_json::Value;
use url::Url;

use crate::run::credential::RequestCredential;
use crate::run::request::webhook_response::{UnitAnswers, call_failure, value};
use crate::run::request_headers::{CONTENT_TYPE, GET, is_same_origin, question_headers};
use crate::run::sent_request::SentRequest;
use crate::{Env, FlowResult, OriginPermit, response_body};

const POST: &str = "POST";
/// Maximum pages of a list.
const MAX_PAGES: usize = 50;
/// Maximum bytes of all pages together. They have at most as many values as one response.
const MAX_BYTES: usize = 2 * limits::RESPONSE_BODY;
/// Maximum depth at which a body says that there is a further page.
const HINT_DEPTH: usize = 3;

/// The least time for a further page.
const MIN_PAGE_TIME: Duration = Duration::from_secs(1);
/// The reason why a question before a request shows no absence.
const FIRST_ONLY: &str = "its further pages are not read";
/// The elements of XML that announce a further page.
const MORE_XML: [&str; 4] = ["<IsTruncated>true", "<NextToken>", "<NextMarker>", "<NextContinuationToken>"];

/// The members of a body that announce a further page: by `true`, or by a text, in lower case without `_`, `-` and `.`.
const FLAGS: [&str; 5] = ["hasmore", "hasnext", "hasnextpage", "istruncated", "truncated"];
const LINKS: [&str; 11] = [
    "next",
    "nextpage",
    "nextcursor",
    "nextpagetoken",
    "nexttoken",
    "nextpageurl",
    "nexturl",
    "nextlink",
    "nextmarker",
    "@odatanextlink",
    "continuationtoken",
];

static NEXT_LINK: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i)<([^<>]*)>[^<]*?;\s*rel\s*=\s*(?:"(?:[^"<]*\s)?next(?:\s[^"<]*)?"|next\s*(?:[;,]|$))"#)
        .expect("the pattern is a literal")
});

/// A question about what a webhook has made.
pub(super) struct SentQuestion<'a> {
    /// The end of the id of its message.
    pub(super) purpose: &'a str,
    pub(super) question: &'a RenderedQuestion,
    /// The request of the webhook, whose headers the question has.
    pub(super) request: &'a RenderedRequest,
    pub(super) headers: Vec<(String, String)>,
}

/// An answer with the elements of all pages.
pub(crate) struct WholeAnswer {
    pub(crate) response: HttpResponse,
    /// The reason why a further page was not read. The absence of an element shows nothing then.
    pub(crate) unread: Option<String>,
    _bytes: BytePermit,
}

impl WholeAnswer {
    /// Returns an answer without the pages after it.
    pub(super) fn one((response, bytes): (HttpResponse, BytePermit)) -> Self {
        Self { unread: further_page(&response), response, _bytes: bytes }
    }
}

impl<'a> SentQuestion<'a> {
    pub(super) fn new(
        answers: &UnitAnswers<'_>,
        credential: &RequestCredential,
        (purpose, question): (&'a str, &'a RenderedQuestion),
        request: &'a RenderedRequest,
    ) -> FlowResult<Self> {
        let headers = headers(answers, credential, (purpose, question), request)?;
        Ok(Self { purpose, question, request, headers })
    }

    pub(super) fn method(&self) -> &'static str {
        if self.question.body.is_some() { POST } else { GET }
    }

    /// Sends the question. Returns its first page, or `None` as [`Self::ask`] does.
    pub(super) async fn ask_once(
        &self,
        answers: &UnitAnswers<'_>,
        credential: &RequestCredential,
    ) -> Option<CallResult<WholeAnswer>> {
        let url = self.question.url.as_str();
        let message = (self.method(), url, self.headers.clone(), body(self.question));
        let answer = send(answers, credential, message, budget(answers)).await?;
        Some(answer.map(|(response, _bytes)| WholeAnswer {
            unread: next_page(answers, url, &response).map_or_else(Some, |next| next.map(|_| FIRST_ONLY.to_owned())),
            response,
            _bytes: BytePermit::default(),
        }))
    }

    /// Sends the question. Returns `None` if it must not start any more, because the sweep has waited too long.
    pub(super) async fn ask(
        &self,
        answers: &UnitAnswers<'_>,
        credential: &RequestCredential,
    ) -> FlowResult<Option<CallResult<WholeAnswer>>> {
        let (url, begun) = (self.question.url.as_str(), answers.attempt.env.now());
        let message = (self.method(), url, self.headers.clone(), body(self.question));
        Ok(match send(answers, credential, message, budget(answers)).await {
            Some(Ok(first)) if self.method() == GET => {
                Some(Ok(read_pages(answers, credential, (self.purpose, self.request), (url, begun), first).await?))
            }
            Some(Ok(first)) => Some(Ok(WholeAnswer::one(first))),
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }
}

/// Returns the time that a question before the request of its dispatch leaves to that.
pub(crate) fn reserved(env: &Env) -> Duration {
    env.settings.response_timeout * 2 / 3
}

/// Returns the time for all pages of a question.
fn budget(answers: &UnitAnswers<'_>) -> Duration {
    let all = answers.attempt.env.settings.response_timeout.saturating_sub(answers.spent);
    all.min(Duration::from_millis(answers.attempt.unit.timeout_ms))
}

fn body(question: &RenderedQuestion) -> Vec<u8> {
    question.body.as_ref().map(|body| body.to_string().into_bytes()).unwrap_or_default()
}

fn headers(
    answers: &UnitAnswers<'_>,
    credential: &RequestCredential,
    (purpose, question): (&str, &RenderedQuestion),
    request: &RenderedRequest,
) -> FlowResult<Vec<(String, String)>> {
    let body = body(question);
    let mut list = question_headers(answers.attempt, credential, (purpose, &question.url, &body), request)?;
    if !body.is_empty() {
        list.push((CONTENT_TYPE.to_owned(), "application/json".to_owned()));
    }
    Ok(list)
}

/// Sends a request. Returns `None` if it must not start any more.
async fn send(
    answers: &UnitAnswers<'_>,
    credential: &RequestCredential,
    (method, url, headers, body): (&str, &str, Vec<(String, String)>, Vec<u8>),
    timeout: Duration,
) -> Option<CallResult<(HttpResponse, BytePermit)>> {
    let env = answers.attempt.env;
    let permit = OriginPermit::acquire(env, url).await?;
    let request = HttpRequest { method: method.to_owned(), url: url.to_owned(), headers, body, timeout };
    let answer = credential.call(env, request).await;
    permit.end(env);
    Some(answer)
}

/// Reads the pages after the answer of `url` to a `GET`, which was sent at `begun`.
pub(super) async fn read_pages(
    answers: &UnitAnswers<'_>,
    credential: &RequestCredential,
    (purpose, request): (&str, &RenderedRequest),
    (url, begun): (&str, Timestamp),
    (first, mut bytes): (HttpResponse, BytePermit),
) -> FlowResult<WholeAnswer> {
    let (mut all, mut seen) = (None, BTreeSet::from([url.to_owned()]));
    let (mut url, mut page) = (url.to_owned(), first.clone());
    let mut size = first.body.len();
    let unread = loop {
        let next = match next_page(answers, &url, &page) {
            Ok(Some(next)) => next,
            Ok(None) => break None,
            Err(why) => break Some(why),
        };
        if !is_same_origin(&next, &url) {
            break Some("the next page is at another origin".to_owned());
        }
        if !seen.insert(next.clone()) {
            break Some("the next page is one that was read".to_owned());
        }
        let left = budget(answers).saturating_sub(Duration::from_millis(answers.attempt.env.now().since(begun).0));
        if seen.len() > MAX_PAGES || size > MAX_BYTES || left < MIN_PAGE_TIME {
            break Some(format!("{} pages were read, and there are more", seen.len() - 1));
        }
        let question = RenderedQuestion { url: next.clone(), body: None };
        let of_page = format!("{purpose}-{}", seen.len());
        let headers = headers(answers, credential, (&of_page, &question), request)?;
        // A caller must not hold one permit and wait for another.
        drop(std::mem::take(&mut bytes));
        page = match send(answers, credential, (GET, &next, headers, Vec::new()), left).await {
            Some(Ok((page, permit))) => {
                bytes = permit;
                page
            }
            Some(Err(error)) => break Some(format!("page {}: {}", seen.len(), call_failure(&error).reason.message)),
            None => break Some(format!("page {} must not be asked for any more", seen.len())),
        };
        if !(200..300).contains(&page.status) {
            break Some(format!("page {} was answered {}", seen.len(), page.status));
        }
        size += page.body.len();
        let before = all.take().map_or_else(|| parsed(&first), Ok);
        let merged = before.and_then(|before| merged(before, parsed(&page)?));
        match merged
            .and_then(|all| Ok((limits::check_json_values(all.to_string().as_bytes(), limits::JSON_VALUES)?, all)))
        {
            Ok((_, merged)) => all = Some(merged),
            Err(why) => break Some(format!("page {}: {why}", seen.len())),
        }
        url = next;
    };
    let response = match all {
        Some(all) => HttpResponse { body: all.to_string().into_bytes(), ..first },
        None => first,
    };
    Ok(WholeAnswer { response, unread, _bytes: bytes })
}

fn parsed(response: &HttpResponse) -> Result<Value, String> {
    response_body::parse(&response.body, limits::JSON_VALUES).map_err(|problem| format!("a page has {problem}"))
}

/// Returns the URL of the page after an answer of `url`, or `None` after the last one.
///
/// # Errors
/// Returns the reason why it is not known.
fn next_page(answers: &UnitAnswers<'_>, url: &str, page: &HttpResponse) -> Result<Option<String>, String> {
    if !(200..300).contains(&page.status) {
        return Ok(None);
    }
    if answers.has_next() {
        let page = value(page).map_err(|failure| failure.reason.message)?;
        return answers.context().next_page(url, &page).map_err(|error| error.to_string());
    }
    let links = page.headers.iter().filter(|(name, _)| name == "link");
    if let Some(link) = links.filter_map(|(_, value)| NEXT_LINK.captures(value)?.get(1)).next() {
        let next = Url::parse(url).and_then(|url| url.join(link.as_str()));
        return next.map(|next| Some(next.into())).map_err(|_| "the next page has no URL".to_owned());
    }
    further_page(page).map_or(Ok(None), Err)
}

/// Returns the reason if an answer says that there is a further page.
fn further_page(page: &HttpResponse) -> Option<String> {
    if page.status == 206 {
        return Some("it is partial (206)".to_owned());
    }
    let member = match response_body::parse(&page.body, limits::JSON_VALUES) {
        Ok(Value::String(text)) => MORE_XML.iter().find(|tag| text.contains(*tag)).map(|tag| (*tag).to_owned()),
        Ok(body) => announced(&body, HINT_DEPTH),
        Err(_) => None,
    }?;
    Some(format!("its `{member}` announces a further page, and the webhook has no `next`"))
}

fn announced(body: &Value, depth: usize) -> Option<String> {
    let plain = |name: &str| name.chars().filter(|c| !"_-.".contains(*c)).collect::<String>().to_ascii_lowercase();
    let body = body.as_object()?;
    let number = |names: [&str; 3]| {
        let found = body.iter().find(|(name, value)| value.is_u64() && names.contains(&plain(name).as_str()));
        found.and_then(|(_, value)| value.as_u64())
    };
    let (last, page) = (number(["totalpages", "lastpage", "pagecount"]), number(["page", "currentpage", "pagenumber"]));
    if last.is_some_and(|last| page.is_some_and(|page| page < last)) {
        return Some("page".to_owned());
    }
    body.iter().find_map(|(name, value)| {
        let is_link = match value {
            Value::String(text) => !text.is_empty(),
            Value::Object(link) => link.get("href").is_some_and(Value::is_string),
            Value::Number(number) => number.as_u64() != Some(0),
            Value::Null | Value::Bool(_) | Value::Array(_) => false,
        };
        let has_next = |links: &Vec<Value>| links.iter().any(|link| link["rel"] == "next" && link["href"].is_string());
        let is_announced = (FLAGS.contains(&plain(name).as_str()) && *value == Value::Bool(true))
            || (LINKS.contains(&plain(name).as_str()) && is_link)
            || value.as_array().is_some_and(has_next);
        if is_announced { Some(name.clone()) } else { announced(value, depth.checked_sub(1)?) }
    })
}

/// Returns a page with the elements of the lists of both. Other values are those of the later page.
///
/// # Errors
/// Returns a text if a list or an object of one page has another form in the other one.
fn merged(before: Value, page: Value) -> Result<Value, String> {
    Ok(match (before, page) {
        (Value::Array(mut all), Value::Array(page)) => {
            all.extend(page);
            Value::Array(all)
        }
        (Value::Object(mut all), Value::Object(page)) => {
            for (name, value) in page {
                let value = match all.remove(&name) {
                    Some(before) => merged(before, value)?,
                    None => value,
                };
                all.insert(name, value);
            }
            Value::Object(all)
        }
        // Some servers send `null` for an empty list.
        (before @ (Value::Array(_) | Value::Object(_)), Value::Null) => before,
        (Value::Array(_) | Value::Object(_), _) => return Err("it has another form than the page before".to_owned()),
        (_, page) => page,
    })
}

/// Returns the request of a question for people. `url` has no value of a response.
pub(super) fn shown<'a>(sent: &'a SentQuestion<'_>, url: &'a str, answers: &'a UnitAnswers<'_>) -> SentRequest<'a> {
    SentRequest { method: sent.method(), url, headers: &sent.headers, opened: &answers.opened }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_of_the_next_page() {
        for (link, next) in [
            (r#"</l?page=2>; rel="next""#, Some("/l?page=2")),
            (
                r#"<https://a/l?page=1,2>; rel="prev", <https://a/l?p=3>; title="x"; rel="next""#,
                Some("https://a/l?p=3"),
            ),
            ("</b>; REL=Next", Some("/b")),
            (r#"</b>; rel="last next""#, Some("/b")),
            (r#"</b>; rel="last", </c>; rel="first""#, None),
            (r#"</b>; rel="nextish""#, None),
            ("</b>", None),
        ] {
            let found = NEXT_LINK.captures(link).and_then(|found| Some(found.get(1)?.as_str()));
            assert_eq!(found, next, "{link}");
        }
    }

    #[test]
    fn bodies_that_announce_a_further_page() {
        for (body, member) in [
            (json!({"items": [], "has_more": true}), Some("has_more")),
            (json!({"items": [], "has_more": false, "next": null}), None),
            (json!({"result": {"page_info": {"hasNextPage": true}}}), Some("hasNextPage")),
            (json!({"links": {"next": {"href": "/l?page=2"}}}), Some("next")),
            (json!({"@odata.nextLink": "https://a/l?skip=2"}), Some("@odata.nextLink")),
            (json!({"next": ""}), None),
            (json!([{"next": "x"}]), None),
            (
                json!({"results": [], "links": [{"rel": "self", "href": "/a"}, {"rel": "next", "href": "/b"}]}),
                Some("links"),
            ),
            (json!({"meta": {"page": 1, "total_pages": 2}}), Some("page")),
            (json!({"meta": {"page": 2, "total_pages": 2}}), None),
        ] {
            assert_eq!(announced(&body, HINT_DEPTH).as_deref(), member, "{body}");
        }
    }

    #[test]
    fn pages_have_the_elements_of_all() {
        let page = |items: Value, more: bool| json!({"a": {"items": items}, "more": more});
        let all = |second| merged(page(json!([1]), true), second);
        assert_eq!(all(page(json!([2]), false)), Ok(page(json!([1, 2]), false)));
        assert_eq!(all(page(Value::Null, false)), Ok(page(json!([1]), false)));
        assert_eq!(merged(json!([1]), json!([2])), Ok(json!([1, 2])));
        all(page(json!("x"), false)).unwrap_err();
        all(json!("<html>")).unwrap_err();
    }
}
