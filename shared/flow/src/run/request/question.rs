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

/// The members of a body that announce a further page by `true`, and the last one by `false`, in lower case without `_`, `-` and `.`.
const FLAGS: [&str; 7] =
    ["hasmore", "hasmoreitems", "hasmorestreams", "hasnext", "hasnextpage", "istruncated", "moreitems"];
/// The members that do so the other way round.
const ENDS: [&str; 2] = ["islast", "islastpage"];
/// The members that announce a part by `true`, and say nothing by `false`.
const PARTS: [&str; 3] = ["incompleteresults", "more", "truncated"];
/// The members that announce a further page by a text, and the begin of those of DynamoDB.
const LINKS: [&str; 4] = ["@odatanextlink", "continuationtoken", "continue", "paginationtoken"];
const LAST_KEY: &str = "lastevaluated";
/// The ends of such names that begin with `next`.
const NEXT: [&str; 22] = [
    "",
    "bookmark",
    "continuationtoken",
    "cursor",
    "fileid",
    "filename",
    "href",
    "id",
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
/// The members beside a list that state a cursor.
const CURSORS: [&str; 4] = ["cursor", "endcursor", "marker", "offset"];
/// The members that state the number of all elements.
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
/// The members that do so beside a list and a limit.
const COUNTS: [(&str, &[&str]); 2] = [("count", &["limit", "offset", "pagesize", "perpage"]), ("size", &["pagelen"])];
/// The members that state the number of pages, and the present one.
const PAGES: [&str; 5] = ["lastpage", "nbpages", "pagecount", "pages", "totalpages"];
const PRESENT: [&str; 4] = ["page", "currentpage", "pagenumber", "number"];
/// The members that can hold such members, and those that have the elements beside other lists.
const HOLDERS: [&str; 13] = [
    "_links",
    "cursors",
    "links",
    "meta",
    "metadata",
    "page",
    "pageinfo",
    "pagination",
    "paging",
    "pagingmetadata",
    "responsemetadata",
    "resultinfo",
    "resultsetmetadata",
];
const ELEMENTS: [&str; 8] = ["data", "entries", "items", "records", "resources", "results", "rows", "values"];

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a literal")
}

/// The headers that announce a further page by its address, and those that state the number of all elements or pages.
static NEXT_HEADER: LazyLock<Regex> = LazyLock::new(|| {
    pattern("^(?:.*-)?(?:next-?(?:page|cursor|token|range|link|url|offset|marker)|continuation(?:-?token)?)$")
});
static TOTAL_HEADER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        "^(?:x-)?(?:pagination-|page-|result-|results-)?total(?:-?(?:count|results|items|elements|entries|records|size))?$",
    )
});
static PAGES_HEADER: LazyLock<Regex> = LazyLock::new(|| pattern("(?:^|-)(?:total-?pages|page-?count)(?:-count)?$"));
/// The elements and attributes of XML that announce a further page, and the last one.
static MORE_XML: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)<(?:\w+:)?(?:next(?:\w*(?:token|marker)|page\w*|link|cursor|ur[il]|key)?|marker|continuationtoken|paginationtoken)>\s*[^<\s]|<(?:\w+:)?istruncated>\s*true|\bnext(?:page)?ur[il]\s*=\s*["'][^"']|<(?:\w+:)?link\b[^>]*\brel\s*=\s*["']next["']"#,
    )
});
static LAST_XML: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)<(?:\w+:)?istruncated>\s*false"));

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
    pub(super) fn one(answers: &UnitAnswers<'_>, (response, bytes): (HttpResponse, BytePermit)) -> Self {
        let has_pages = !answers.has_next(false) || answers.has_next(true);
        let unread = further_page(&response, ListState { is_first: true, has_ended: false }).filter(|_| has_pages);
        Self { unread, response, _bytes: bytes }
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
            false => further_page(page, ListState { is_first, has_ended: true }).map_or(Ok(None), Err),
        };
    }
    let links = page.headers.iter().filter(|(name, _)| name == "link");
    if let Some(link) = links.filter_map(|(_, value)| NEXT_LINK.captures(value)?.get(1)).next() {
        let next = Url::parse(url).and_then(|url| url.join(link.as_str()));
        return next.map(|next| Some(next.into())).map_err(|_| "the next page has no URL".to_owned());
    }
    further_page(page, ListState { is_first, has_ended: false }).map_or(Ok(None), Err)
}

/// What is known of the list that a page belongs to.
#[derive(Clone, Copy)]
struct ListState {
    is_first: bool,
    /// True if the webhook has said that this is the last page.
    has_ended: bool,
}

/// Returns the reason if an answer says that there is a further page. Only the first page shows by numbers that it is a part. Where the
/// webhook has said that a page is the last one, the number of all elements, and later links, do not contradict it: some servers
/// estimate the one, and send the others always.
fn further_page(page: &HttpResponse, ListState { is_first, has_ended }: ListState) -> Option<String> {
    if page.status == 206 {
        return Some("it is partial (206)".to_owned());
    }
    let body = response_body::parse(&page.body, limits::JSON_VALUES);
    let body = body.as_ref().unwrap_or(&Value::Null);
    let hints = PageHints::of(body);
    let count = hints.count.filter(|_| is_first && !has_ended);
    let number = |value: &str| value.trim().parse::<u64>().ok();
    let present = page.header("x-page").and_then(number).unwrap_or(1);
    let announces = |(name, value): &&(String, String)| match name.as_str() {
        "link" => NEXT_LINK.is_match(value),
        CONTENT_RANGE => ends_early(value) == Some(true),
        name if NEXT_HEADER.is_match(name) => !value.trim().is_empty(),
        name if PAGES_HEADER.is_match(name) => is_first && number(value) > Some(present),
        name if TOTAL_HEADER.is_match(name) => count.is_some_and(|count| number(value) > Some(count)),
        _ => false,
    };
    let of_headers = || page.headers.iter().find(announces).map(|(name, _)| name.clone());
    let of_text = |text: &str| {
        let found = MORE_XML.find(text).filter(|_| !LAST_XML.is_match(text));
        found.map(|found| head(found.as_str()).to_owned())
    };
    let is_last = matches!(hints.flag, Some((_, false))) || (has_ended && !is_first);
    let of_numbers = || {
        let total = hints.total.filter(|(_, total)| count.is_some_and(|count| *total > count));
        hints.pages.filter(|_| is_first).or_else(|| total.map(|(name, total)| format!("{name}: {total}")))
    };
    let member = match (hints.flag, body) {
        (Some((name, true)), _) => Some(name),
        _ if has_ended && !is_first => None,
        (_, Value::String(text)) => of_headers().or_else(|| of_text(text)),
        _ => of_headers().or_else(|| hints.link.or_else(of_numbers).filter(|_| !is_last)),
    }?;
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

/// What a body says about further pages: at its top, beside its lists, and in members that are for pages.
#[derive(Default)]
struct PageHints {
    /// The member that says whether there is a further page. Other members do not count beside it.
    flag: Option<(String, bool)>,
    link: Option<String>,
    pages: Option<String>,
    total: Option<(String, u64)>,
    /// The number of elements.
    count: Option<u64>,
}

impl PageHints {
    fn of(body: &Value) -> Self {
        let mut hints = Self { count: elements(body), ..Self::default() };
        hints.read(body, HINT_DEPTH, true);
        hints
    }

    /// Reads an object. Links and flags count everywhere, and other members in a `place` for pages.
    fn read(&mut self, body: &Value, depth: usize, place: bool) {
        let Some(members) = body.as_object() else { return };
        let has = |names: &[&str]| members.keys().any(|name| names.contains(&plain(name).as_str()));
        for (name, value) in members {
            let plain = plain(name);
            let is = |wanted: bool| *value == Value::Bool(wanted) || *value == if wanted { "true" } else { "false" };
            let is_flag = FLAGS.contains(&plain.as_str());
            let is_end = ENDS.contains(&plain.as_str()) || (plain == "last" && members.contains_key("number"));
            let is_part = place && PARTS.contains(&plain.as_str());
            if ((is_flag || is_part) && is(true)) || (is_end && is(false)) {
                self.flag = Some((name.clone(), true));
            } else if (is_flag && is(false)) || (is_end && is(true)) {
                self.flag.get_or_insert_with(|| (name.clone(), false));
            }
            let is_next = plain.strip_prefix("next").is_some_and(|end| NEXT.contains(&end))
                || plain.starts_with(LAST_KEY)
                || LINKS.contains(&plain.as_str());
            let is_cursor = place && CURSORS.contains(&plain.as_str()) && self.count.is_some() && value.is_string();
            let is_cursor = is_cursor && *value != "" && (plain != "offset" || number(value).is_none());
            if (is_next && is_link(&plain, value)) || is_cursor || names_next(value) {
                self.link.get_or_insert_with(|| name.clone());
            }
            let is_count = |(count, beside): &(&str, &[&str])| {
                plain == *count && has(beside) && members.values().any(Value::is_array)
            };
            let total = number(value).or_else(|| number(value.get("value")?)).filter(|_| place);
            if let Some(total) = total.filter(|_| TOTALS.contains(&plain.as_str()) || COUNTS.iter().any(is_count))
                && self.total.as_ref().is_none_or(|(_, known)| *known < total)
            {
                self.total = Some((name.clone(), total));
            }
        }
        let is_filtered = |name: &str| name.contains("filtered") && (name.contains("total") || name.contains("count"));
        let filtered = members.iter().find(|(name, _)| place && is_filtered(&plain(name)));
        if let Some((name, total)) = filtered.and_then(|(name, value)| Some((name.clone(), number(value)?))) {
            self.total = Some((name, total));
        }
        let of = |names: &[&str]| {
            let found = names.iter().find_map(|wanted| members.iter().find(|(name, _)| plain(name) == *wanted));
            found.and_then(|(name, value)| Some((name, number(value)?)))
        };
        // Some servers number the pages from 0.
        let present = of(&PRESENT).map_or(1, |(_, page)| page.max(1));
        if let Some((name, _)) = of(&PAGES).filter(|(_, pages)| place && self.count.is_some() && *pages > present) {
            self.pages.get_or_insert_with(|| name.clone());
        }
        let Some(depth) = depth.checked_sub(1) else { return };
        for (name, value) in members {
            self.read(value, depth, HOLDERS.contains(&plain(name).as_str()) || concerns_pages(value, depth));
        }
    }
}

/// Returns true if a value has a list, or a member that is for pages.
fn concerns_pages(value: &Value, depth: usize) -> bool {
    value.as_object().is_some_and(|members| {
        members.iter().any(|(name, value)| {
            value.is_array()
                || (value.is_object() && HOLDERS.contains(&plain(name).as_str()))
                || depth.checked_sub(1).is_some_and(|depth| concerns_pages(value, depth))
        })
    })
}

/// Returns the number of elements of a body: of a member with a usual name, which can be a map, or of the longest list.
fn elements(body: &Value) -> Option<u64> {
    let longest = || lists(body, None).into_iter().map(|(count, _)| count).max();
    let named = ELEMENTS.iter().find_map(|wanted| body.get(*wanted)?.as_array());
    let of_map = || ELEMENTS[1..].iter().find_map(|wanted| body.get(*wanted)?.as_object());
    let count = named.map(Vec::len).or_else(longest).or_else(|| of_map().map(serde_json::Map::len));
    count.map(|count| count as u64)
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Returns true if a value has the place of a further page.
fn is_link(name: &str, value: &Value) -> bool {
    let is_place = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_u64() != Some(0),
        _ => false,
    };
    match value {
        Value::Object(link) => match ["href", "url"].iter().find_map(|to| link.get(*to)) {
            Some(to) => is_place(to),
            None => link.values().any(is_place) || (name == "lastevaluatedkey" && !link.is_empty()),
        },
        value => is_place(value),
    }
}

/// Returns true for a list of links with one to the next page.
fn names_next(value: &Value) -> bool {
    let is_next = |link: &Value| link["rel"] == "next" && link["href"].is_string();
    value.as_array().is_some_and(|links| links.iter().any(is_next))
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
        let first = ListState { is_first: true, has_ended: false };
        for line in include_str!("../../../tests/further_pages.txt").lines() {
            let (member, answer) = line.split_once(" | ").unwrap();
            let (headers, body) = match answer.split_once(':') {
                Some((name, value)) if !answer.starts_with(['{', '[', '<']) => {
                    (vec![(name.to_owned(), value.trim().to_owned())], "[1, 2]")
                }
                _ => (Vec::new(), answer),
            };
            let found = further_page(&HttpResponse { headers, ..HttpResponse::new(200, body) }, first);
            let why = format!(
                "its `{member}` announces a further page, which `next` does not give; `next: \"\"` says that there are no pages"
            );
            assert_eq!(found, (member != "-").then_some(why), "{line}");
        }
        let ends = |body: &str| {
            let states = [(false, false), (true, true), (false, true)];
            states.map(|(is_first, has_ended)| {
                further_page(&HttpResponse::new(200, body), ListState { is_first, has_ended }).is_none()
            })
        };
        assert_eq!(ends(r#"{"items": [1], "total": 6}"#), [true; 3]);
        assert_eq!(ends(r#"{"items": [], "paging": {"next": "x"}}"#), [false, false, true]);
        assert_eq!(ends(r#"{"items": [1], "has_more": true}"#), [false; 3]);
        let headers = |at: &str| [("x-page", at), ("x-total-pages", "3")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let page = |at| HttpResponse { headers: headers(at).to_vec(), ..HttpResponse::new(200, "[]") };
        assert_eq!(["1", "3"].map(|at| further_page(&page(at), first).is_some()), [true, false]);
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
