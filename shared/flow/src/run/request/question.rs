//! Asks the receiver of a webhook unit, and reads all pages of an answer that is a list.
//!
//! A list without a resource shows its absence only if the list is whole. So the pages after the first one are read: by
//! `Link` with `rel="next"` (RFC 8288), or by `next` of the webhook. The value of the answer has the elements of all pages.
//! An answer whose body speaks of a further page, and says nothing that Ebb can follow, is not whole.

use std::collections::BTreeSet;
use std::time::Duration;

use ebb_documents::render::{RenderedQuestion, RenderedRequest};
use ebb_egress::{BytePermit, CallResult, HttpRequest, HttpResponse};
use ebb_protocol::{Millis, Timestamp, limits};
use serde_json::Value;

use crate::run::request::further_page::{ListState, further_page, lists, page_after};
use crate::run::request::webhook_response::{UnitAnswers, call_failure, value};
use crate::run::request_headers::{CONTENT_TYPE, GET, is_same_origin, question_headers};
use crate::{Env, FlowResult, OriginPermit, RequestCredential, SentRequest, response_body};

const POST: &str = "POST";
/// Maximum pages of a list.
const MAX_PAGES: usize = 50;
/// Maximum bytes of all pages together. They have at most as many values as one response.
const MAX_BYTES: usize = 2 * limits::RESPONSE_BODY;
/// The wait of a request whose receiver other sweeps already wait for.
pub(super) const POSTPONEMENT: Millis = Millis(5_000);
/// The least time for a further page.
const MIN_PAGE_TIME: Duration = Duration::from_secs(1);
/// The reason why a question before a request shows no absence.
const FIRST_ONLY: &str = "its further pages are not read";

/// A question about what a webhook has made.
pub(super) struct SentQuestion<'a> {
    answers: &'a UnitAnswers<'a>,
    credential: &'a RequestCredential,
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
    pub(super) fn one(answers: &UnitAnswers<'_>, (response, bytes): (HttpResponse, BytePermit)) -> Self {
        let has_pages = !answers.has_next(false) || answers.has_next(true);
        let unread = further_page(&response, ListState { is_first: true, has_ended: false }).filter(|_| has_pages);
        Self { unread, response, _bytes: bytes }
    }
}

impl<'a> SentQuestion<'a> {
    pub(super) fn new(
        answers: &'a UnitAnswers<'_>,
        credential: &'a RequestCredential,
        (purpose, question): (&'a str, &'a RenderedQuestion),
        request: &'a RenderedRequest,
    ) -> FlowResult<Self> {
        let headers = headers(answers, credential, (purpose, question), request)?;
        Ok(Self { answers, credential, purpose, question, request, headers })
    }

    pub(super) fn method(&self) -> &'static str {
        if self.question.body.is_some() { POST } else { GET }
    }

    /// Sends the question. Returns its first page, or `None` as [`Self::ask`] does.
    pub(super) async fn ask_once(&self) -> Option<CallResult<WholeAnswer>> {
        let url = self.question.url.as_str();
        let message = (self.method(), url, self.headers.clone(), body(self.question));
        let answer = send(self.answers, self.credential, message, budget(self.answers)).await?;
        Some(answer.map(|(response, _bytes)| {
            let next = next_page(self.answers, (url, true), &response);
            let unread = next.map_or_else(Some, |next| next.map(|_| FIRST_ONLY.to_owned()));
            WholeAnswer { unread, response, _bytes: BytePermit::default() }
        }))
    }

    /// Sends the question. Returns `None` if it must not start any more, because the sweep has waited too long.
    pub(super) async fn ask(&self) -> FlowResult<Option<CallResult<WholeAnswer>>> {
        let (answers, credential) = (self.answers, self.credential);
        let (url, begun) = (self.question.url.as_str(), answers.attempt.env.now());
        let message = (self.method(), url, self.headers.clone(), body(self.question));
        Ok(match send(answers, credential, message, budget(answers)).await {
            Some(Ok(first)) if self.method() == GET => {
                Some(Ok(read_pages(answers, credential, (self.purpose, self.request), (url, begun), first).await?))
            }
            Some(Ok(first)) => Some(Ok(WholeAnswer::one(answers, first))),
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }
}

/// Returns the time that a question before the request of its dispatch leaves to that.
pub(crate) fn reserved(env: &Env) -> Duration {
    env.settings.response_timeout * 2 / 3
}

/// Returns the time for a request, or for all pages of a question.
pub(super) fn budget(answers: &UnitAnswers<'_>) -> Duration {
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
    let permit = OriginPermit::acquire(env, answers.attempt.unit.cluster.as_deref(), url).await?;
    let answer = credential.call(env, HttpRequest::new(method, url, headers, body, timeout)).await;
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
        let next = match next_page(answers, (&url, seen.len() == 1), &page) {
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
        if !(200..300).contains(&page.status) || page.status == 202 {
            break Some(format!("page {} was answered {}", seen.len(), page.status));
        }
        let sent = SentRequest { method: GET, url: &next, headers: &[], opened: &answers.opened };
        match answers.judged(&sent, &page) {
            Ok((judged, _)) if (200..300).contains(&judged.status) => {}
            Ok((judged, _)) => break Some(format!("page {} counts as {}", seen.len(), judged.status)),
            Err(failure) => break Some(format!("page {}: {}", seen.len(), failure.reason.message)),
        }
        size += page.body.len();
        let before = all.take().map_or_else(|| parsed(&first), Ok);
        let merged = before.and_then(|before| joined(before, parsed(&page)?));
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
    match response_body::parse(&response.body, limits::JSON_VALUES) {
        Ok(body @ (Value::Array(_) | Value::Object(_))) => Ok(body),
        Ok(_) => Err("a page is neither a list nor an object".to_owned()),
        Err(problem) => Err(format!("a page has {problem}")),
    }
}

/// Returns the URL of the page after an answer of a URL, of the first page or a later one, or `None` after the last one.
///
/// # Errors
/// Returns the reason why it is not known.
fn next_page(answers: &UnitAnswers<'_>, of: (&str, bool), page: &HttpResponse) -> Result<Option<String>, String> {
    let (url, is_first) = of;
    if !(200..300).contains(&page.status) {
        return Ok(None);
    }
    if !answers.has_next(false) {
        return page_after(url, None, is_first, page);
    }
    let value = value(page).map_err(|failure| failure.reason.message)?;
    let next = answers.context().next_page(url, &value).map_err(|error| error.to_string())?;
    // Without an expression, the API has no pages.
    if next.is_none() && !answers.has_next(true) {
        return Ok(None);
    }
    page_after(url, Some(next), is_first, page)
}

/// Returns true if a page has nothing that those before do not have. Some servers leave an empty list out, or send `null`.
fn lacks_only_lists(before: &Value, page: &Value) -> bool {
    match (before, page) {
        (Value::Object(before), Value::Object(page)) => {
            page.iter().all(|(name, of)| before.get(name).is_some_and(|before| lacks_only_lists(before, of)))
        }
        (before, page) => !before.is_object() && (!before.is_array() || page.is_null()),
    }
}

/// Returns [`merged`] of a page with those before. A page with none of the lists that have elements is an error.
fn joined(before: Value, page: Value) -> Result<Value, String> {
    let kept = lists(&before, Some(&page)).into_iter().map(|(count, is_kept)| (count > 0, is_kept)).max();
    match kept.is_some_and(|(_, is_kept)| !is_kept) && !lacks_only_lists(&before, &page) {
        true => Err("it has no list".to_owned()),
        false => merged(before, page),
    }
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
                let value = if let Some(before) = all.remove(&name) { merged(before, value)? } else { value };
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
pub(super) fn shown<'a>(sent: &'a SentQuestion<'_>, url: &'a str) -> SentRequest<'a> {
    SentRequest { method: sent.method(), url, headers: &sent.headers, opened: &sent.answers.opened }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_have_the_elements_of_all() {
        let page = |items: Value, more: bool| json!({"a": {"items": items}, "more": more});
        let all = |second| joined(page(json!([1]), true), second);
        assert_eq!(all(page(json!([2]), false)), Ok(page(json!([1, 2]), false)));
        assert_eq!(all(page(Value::Null, false)), Ok(page(json!([1]), false)));
        assert_eq!(merged(json!([1]), json!([2])), Ok(json!([1, 2])));
        all(page(json!("x"), false)).unwrap_err();
        all(json!("<html>")).unwrap_err();
        assert_eq!([json!({"message": "m"}), json!({"a": null})].map(|page| all(page).is_err()), [true; 2]);
        joined(json!({"result": [1], "errors": []}), json!({"errors": [1]})).unwrap_err();
    }
}
