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
use ebb_engine::{Millis, Timestamp};
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
const HINT_DEPTH: usize = 12;

/// The wait of a request whose receiver other sweeps already wait for.
pub(super) const POSTPONEMENT: Millis = Millis(5_000);
/// The least time for a further page.
const MIN_PAGE_TIME: Duration = Duration::from_secs(1);
/// The reason why a question before a request shows no absence.
const FIRST_ONLY: &str = "its further pages are not read";
const CONTENT_RANGE: &str = "content-range";

/// The members of a body that announce a further page: by `true`, by `false`, or by a text, in lower case without `_`, `-` and `.`.
const FLAGS: [&str; 9] = [
    "hasmore",
    "hasmoreitems",
    "hasmorestreams",
    "hasnext",
    "hasnextpage",
    "incompleteresults",
    "istruncated",
    "more",
    "truncated",
];
const ENDS: [&str; 2] = ["islast", "islastpage"];
const LINKS: [&str; 4] = ["@odatanextlink", "continuationtoken", "continue", "paginationtoken"];
/// The begin of members of DynamoDB that announce a further page.
const LAST_KEY: &str = "lastevaluated";
/// The ends of such names that begin with `next`.
const NEXT: [&str; 20] = [
    "",
    "bookmark",
    "cursor",
    "fileid",
    "filename",
    "href",
    "key",
    "link",
    "marker",
    "offset",
    "page",
    "pagecursor",
    "pagestart",
    "pagetoken",
    "pageuri",
    "pageurl",
    "recordsurl",
    "token",
    "uri",
    "url",
];
/// The members beside a list that state a cursor, unless a flag says that there is no further page.
const CURSORS: [&str; 4] = ["cursor", "endcursor", "marker", "offset"];
/// The members of a list that state the number of all elements, and those that do so beside a limit.
const TOTALS: [&str; 13] = [
    "matchcount",
    "nbhits",
    "numfound",
    "numrows",
    "total",
    "totalcount",
    "totalelements",
    "totalentries",
    "totalhits",
    "totalitems",
    "totalrecords",
    "totalresults",
    "totalsize",
];
const SIZES: [&str; 2] = ["count", "size"];
const LIMITS: [&str; 6] = ["limit", "offset", "pagelen", "pagesize", "perpage", "start"];
/// The members that state the number of pages, and the present one.
const PAGES: [&str; 5] = ["lastpage", "nbpages", "pagecount", "pages", "totalpages"];
const PRESENT: [&str; 4] = ["currentpage", "number", "page", "pagenumber"];

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a literal")
}

/// The headers that announce a further page by its address, and those that state the number of all elements or pages.
static NEXT_HEADER: LazyLock<Regex> = LazyLock::new(|| {
    pattern("^(?:.*-)?(?:next-?(?:page|cursor|token|range|link|url|offset|marker)|continuation(?:-?token)?)$")
});
static TOTAL_HEADER: LazyLock<Regex> =
    LazyLock::new(|| pattern("(?:^|-)total(?:-?(?:count|results|items|elements|entries|records|size))?$"));
static PAGES_HEADER: LazyLock<Regex> = LazyLock::new(|| pattern("(?:^|-)(?:total-?pages|page-?count)(?:-count)?$"));
/// The elements and attributes of XML that announce a further page.
static MORE_XML: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)<(?:\w+:)?(?:next\w*|marker|continuationtoken|paginationtoken)>\s*[^<\s]|<(?:\w+:)?istruncated>\s*true|\bnext(?:page)?ur[il]\s*=\s*["'][^"']|<(?:\w+:)?link\b[^>]*\brel\s*=\s*["']next["']"#,
    )
});

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
        Self { unread: further_page(&response, true, false), response, _bytes: bytes }
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
        Some(answer.map(|(response, _bytes)| {
            let next = next_page(answers, (url, true), &response);
            let unread = next.map_or_else(Some, |next| next.map(|_| FIRST_ONLY.to_owned()));
            WholeAnswer { unread, response, _bytes: BytePermit::default() }
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
        Ok(_) => Err("a page is no list and no object".to_owned()),
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
    if answers.has_next(false) {
        let value = value(page).map_err(|failure| failure.reason.message)?;
        let next = answers.context().next_page(url, &value).map_err(|error| error.to_string())?;
        // Without an expression, the API has no pages.
        return match next.is_some() || !answers.has_next(true) {
            true => Ok(next),
            false => further_page(page, is_first, true).map_or(Ok(None), Err),
        };
    }
    let links = page.headers.iter().filter(|(name, _)| name == "link");
    if let Some(link) = links.filter_map(|(_, value)| NEXT_LINK.captures(value)?.get(1)).next() {
        let next = Url::parse(url).and_then(|url| url.join(link.as_str()));
        return next.map(|next| Some(next.into())).map_err(|_| "the next page has no URL".to_owned());
    }
    further_page(page, is_first, false).map_or(Ok(None), Err)
}

/// Returns the reason if an answer says that there is a further page. Only the first page shows by numbers that it is a part, and
/// by that of all elements only without `next`: some servers estimate it.
fn further_page(page: &HttpResponse, is_first: bool, has_next: bool) -> Option<String> {
    if page.status == 206 {
        return Some("it is partial (206)".to_owned());
    }
    let body = response_body::parse(&page.body, limits::JSON_VALUES);
    let longest =
        body.as_ref().ok().and_then(|body| lists(body, None).into_iter().map(|(count, _)| count as u64).max());
    let longest = longest.map(|longest| if has_next { u64::MAX } else { longest });
    let number = |value: &str| value.trim().parse::<u64>().ok();
    let present = page.header("x-page").and_then(number).unwrap_or(1);
    let announces = |(name, value): &&(String, String)| match name.as_str() {
        "link" => NEXT_LINK.is_match(value),
        CONTENT_RANGE => ends_early(value) == Some(true),
        name if NEXT_HEADER.is_match(name) => !value.trim().is_empty(),
        name if PAGES_HEADER.is_match(name) => is_first && number(value) > Some(present),
        name if TOTAL_HEADER.is_match(name) => is_first && longest.is_some_and(|count| number(value) > Some(count)),
        _ => false,
    };
    let header = page.headers.iter().find(announces).map(|(name, _)| name.clone());
    let of_body = || match &body {
        Ok(Value::String(text)) => MORE_XML.find(text).map(|found| head(found.as_str()).to_owned()),
        Ok(body) => announced(body, HINT_DEPTH).or_else(|| beside_lists(body, (is_first, longest), HINT_DEPTH)),
        Err(_) => None,
    };
    let member = header.or_else(of_body)?;
    Some(format!(
        "its `{member}` announces a further page, which `next` does not give; `next: \"\"` says that there are no pages"
    ))
}

/// Returns an element of XML without what follows its name.
fn head(element: &str) -> &str {
    element.find(['>', '=']).map_or(element, |end| element[..=end].trim_end_matches('='))
}

/// Returns true if a range such as `items 0-9/50` ends before the list.
fn ends_early(range: &str) -> Option<bool> {
    let (range, total) = range.rsplit_once('/')?;
    let last = range.rsplit_once('-')?.1.trim().parse::<u64>().ok()?;
    Some(last.saturating_add(1) < total.trim().parse::<u64>().ok()?)
}

/// Returns a name in lower case without `_`, `-` and `.`.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !"_-.".contains(*c)).collect::<String>().to_ascii_lowercase()
}

fn announced(body: &Value, depth: usize) -> Option<String> {
    body.as_object()?.iter().find_map(|(name, value)| {
        let name_of = plain(name);
        let is_next = name_of.strip_prefix("next").is_some_and(|end| NEXT.contains(&end))
            || name_of.starts_with(LAST_KEY)
            || LINKS.contains(&name_of.as_str());
        let is_place = |value: &Value| match value {
            Value::String(text) => !text.is_empty(),
            Value::Number(number) => number.as_u64() != Some(0),
            _ => false,
        };
        let is_link = match value {
            Value::Object(link) => match ["href", "url"].iter().find_map(|to| link.get(*to)) {
                Some(to) => is_place(to),
                None => link.values().any(is_place) || (name_of == "lastevaluatedkey" && !link.is_empty()),
            },
            value => is_place(value),
        };
        let has_next = |links: &Vec<Value>| links.iter().any(|link| link["rel"] == "next" && link["href"].is_string());
        let is_flag = *value == Value::Bool(true) || *value == "true";
        let is_announced = (FLAGS.contains(&name_of.as_str()) && is_flag)
            || (ENDS.contains(&name_of.as_str()) && *value == Value::Bool(false))
            || (name_of == "last" && *value == Value::Bool(false) && body.get("number").is_some())
            || (is_next && is_link)
            || value.as_array().is_some_and(has_next);
        if is_announced { Some(name.clone()) } else { announced(value, depth.checked_sub(1)?) }
    })
}

/// Returns the member of a body with lists that announces a further page: a cursor, unless a flag says that the page is the last
/// one. In a first page also a number of pages, or of elements above the `longest` list.
fn beside_lists(body: &Value, (is_first, longest): (bool, Option<u64>), depth: usize) -> Option<String> {
    let body = body.as_object()?;
    let number = |names: &[&str]| {
        let found = body.iter().find(|(name, value)| value.is_u64() && names.contains(&plain(name).as_str()));
        found.and_then(|(name, value)| Some((name, value.as_u64()?)))
    };
    let is_last = body.iter().any(|(name, of)| FLAGS.contains(&plain(name).as_str()) && *of == Value::Bool(false));
    let is_cursor = |(name, value): &(&String, &Value)| {
        CURSORS.contains(&plain(name).as_str()) && value.as_str().is_some_and(|cursor| !cursor.is_empty())
    };
    let cursor = body.iter().find(is_cursor).filter(|_| !is_last).map(|(name, _)| name);
    let total = number(&TOTALS).or_else(|| number(&LIMITS).and_then(|_| number(&SIZES))).or_else(|| {
        let (name, total) = body.get_key_value("total")?;
        Some((name, total.get("value")?.as_u64()?))
    });
    let total = total.filter(|(_, total)| longest.is_some_and(|longest| *total > longest));
    // Some servers number the pages from 0.
    let present = number(&PRESENT).map_or(1, |(_, page)| page.max(1));
    let pages = number(&PAGES).filter(|(_, pages)| *pages > present);
    let of_first = total.or(pages).filter(|_| is_first).map(|(name, _)| name);
    let found = cursor.filter(|_| longest.is_some()).or(of_first);
    found.cloned().or_else(|| body.values().find_map(|of| beside_lists(of, (is_first, longest), depth.checked_sub(1)?)))
}

/// Returns the number of elements of each list of a body that is in no other list, and whether `page` has that list, too.
fn lists(body: &Value, page: Option<&Value>) -> Vec<(usize, bool)> {
    match body {
        Value::Array(all) => vec![(all.len(), page.is_some_and(Value::is_array))],
        Value::Object(all) => all.iter().flat_map(|(name, of)| lists(of, page.and_then(|it| it.get(name)))).collect(),
        _ => Vec::new(),
    }
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
    fn answers_that_announce_a_further_page() {
        for line in include_str!("../../../tests/further_pages.txt").lines() {
            let (member, answer) = line.split_once(' ').unwrap();
            let (headers, body) = match answer.split_once(':') {
                Some((name, value)) if !answer.starts_with(['{', '[', '<']) => {
                    (vec![(name.to_owned(), value.trim().to_owned())], "[1, 2]")
                }
                _ => (Vec::new(), answer),
            };
            let found = further_page(&HttpResponse { headers, ..HttpResponse::new(200, body) }, true, false);
            let why = format!(
                "its `{member}` announces a further page, which `next` does not give; `next: \"\"` says that there are no pages"
            );
            assert_eq!(found, (member != "-").then_some(why), "{line}");
        }
        let total = HttpResponse::new(200, r#"{"items": [1], "total": 6}"#);
        assert_eq!([further_page(&total, false, false), further_page(&total, true, true)], [None, None]);
        let headers = |at: &str| [("x-page", at), ("x-total-pages", "3")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let page = |at| HttpResponse { headers: headers(at).to_vec(), ..HttpResponse::new(200, "[]") };
        assert_eq!(["1", "3"].map(|at| further_page(&page(at), true, false).is_some()), [true, false]);
    }

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
