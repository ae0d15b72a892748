//! Tells whether an answer announces a further page of a list that no `next` names.
//!
//! Names of members are in lower case without `_`, `-` and `.`. Lists of names are texts with spaces between them.

use std::sync::LazyLock;

use ebb_egress::HttpResponse;
use ebb_protocol::limits;
use regex::Regex;
use serde_json::Value;
use url::Url;

use crate::response_body;

/// Maximum depth at which a body announces a further page.
const HINT_DEPTH: usize = 12;
const CONTENT_RANGE: &str = "content-range";

/// The members that announce a further page by `true`, and the last one by `false`.
const FLAGS: &str = "hasmore hasmoreitems hasmorestreams hasnext hasnextpage istruncated moreitems";
/// The members that do so the other way round.
const ENDS: &str = "islast islastpage";
/// The members that announce a part by `true`, and say nothing by `false`.
const PARTS: &str = "incompleteresults more truncated";
/// The members that announce a further page by a text, and the begin of those of DynamoDB.
const LINKS: &str = "@odatanextlink continuationtoken continue paginationtoken";
const LAST_KEY: &str = "lastevaluated";
/// The ends of such names that begin with `next`. `next` itself is one, too.
const NEXT: &str = "bookmark continuationtoken cursor fileid filename href id key link marker offset page pagecursor \
                    pagestart pagetoken pageuri pageurl recordsurl token uri url";
/// The members beside a list that state a cursor.
const CURSORS: &str = "cursor endcursor marker offset";
/// The members that state the number of all elements.
const TOTALS: &str = "matchcount nbhits numfound numrows total totalcount totalelements totalentries totalhits totalitems \
                      totalrecords totalresults totalsize";
/// The members that do so beside a list and a limit.
const COUNTS: [(&str, &str); 2] = [("count", "limit offset pagesize perpage"), ("size", "pagelen")];
/// The members that state the number of pages, and the present one.
const PAGES: &str = "lastpage nbpages pagecount pages totalpages";
const PRESENT: &str = "page currentpage pagenumber number";
/// The members that can hold such members, and those that have the elements beside other lists.
const HOLDERS: &str = "_links cursors links meta metadata page pageinfo pagination paging pagingmetadata responsemetadata \
                       resultinfo resultsetmetadata";
const ELEMENTS: [&str; 8] = ["data", "entries", "items", "records", "resources", "results", "rows", "values"];

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a literal")
}

/// The target of a header `Link` with `rel="next"` (RFC 8288).
static NEXT_LINK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r#"(?i)<([^<>]*)>[^<]*?;\s*rel\s*=\s*(?:"(?:[^"<]*\s)?next(?:\s[^"<]*)?"|next\s*(?:[;,]|$))"#)
});
/// The headers that announce a further page by its address, and those that state the number of all elements or pages.
static NEXT_HEADER: LazyLock<Regex> = LazyLock::new(|| {
    pattern("^(?:.*-)?(?:next-?(?:page|cursor|token|range|link|url|offset|marker)|continuation(?:-?token)?)$")
});
static TOTAL_HEADER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        "^(?:x-)?(?:pagination-|page-|result-|results-)?total(?:-?(?:count|results|items|elements|entries|records|size))?$",
    )
});
static PAGES_HEADER: LazyLock<Regex> = LazyLock::new(|| pattern("(?:^|-)(?:total-?pages|page-?count)$"));
/// The elements and attributes of XML that announce a further page, and the last one.
static MORE_XML: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)<(?:\w+:)?(?:next(?:\w*(?:token|marker)|page\w*|link|cursor|ur[il]|key)?|marker|continuationtoken|paginationtoken)>\s*[^<\s]|<(?:\w+:)?istruncated>\s*true|\bnext(?:page)?ur[il]\s*=\s*["'][^"']|<(?:\w+:)?link\b[^>]*\brel\s*=\s*["']next["']"#,
    )
});
static LAST_XML: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)<(?:\w+:)?istruncated>\s*false"));

/// The position of a page in its list.
#[derive(Clone, Copy)]
pub(super) struct ListState {
    pub(super) is_first: bool,
    /// True if the webhook has said that this is the last page.
    pub(super) has_ended: bool,
}

/// Returns the URL of the page after an answer of a URL, or `None` after the last one. `declared` is the page that an expression
/// gives, if there is one; otherwise the header `Link` has it.
///
/// # Errors
/// Returns the reason why it is not known.
pub(crate) fn page_after(
    url: &str,
    declared: Option<Option<String>>,
    is_first: bool,
    page: &HttpResponse,
) -> Result<Option<String>, String> {
    let has_ended = match declared {
        Some(Some(next)) => return Ok(Some(next)),
        declared => declared.is_some(),
    };
    let mut links = page.headers.iter().filter(|(name, _)| name == "link" && !has_ended);
    if let Some(link) = links.find_map(|(_, value)| NEXT_LINK.captures(value)?.get(1)) {
        let next = Url::parse(url).and_then(|url| url.join(link.as_str()));
        return next.map(|next| Some(next.into())).map_err(|_| "the next page has no URL".to_owned());
    }
    further_page(page, ListState { is_first, has_ended }).map_or(Ok(None), Err)
}

/// Returns the reason if an answer says that there is a further page. Only the first page shows by numbers that it is a part. Where the
/// webhook has said that a page is the last one, the number of all elements, and later links, do not contradict it: some servers
/// estimate the one, and send the others always.
pub(super) fn further_page(page: &HttpResponse, ListState { is_first, has_ended }: ListState) -> Option<String> {
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
    let is_last = matches!(hints.flag, Some((_, false)));
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
    Some(announcement(&member))
}

fn announcement(member: &str) -> String {
    format!(
        "its `{member}` announces a further page, and `next` does not name it; write `next: \"\"` if the API has no pages"
    )
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

/// Returns true if a list of names, separated by spaces, has a name.
fn is_in(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| known == name)
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
        let has = |names: &str| members.keys().any(|name| is_in(names, &plain(name)));
        for (name, value) in members {
            let plain = plain(name);
            let is = |wanted: bool| *value == Value::Bool(wanted) || *value == if wanted { "true" } else { "false" };
            let is_flag = is_in(FLAGS, &plain);
            let is_end = is_in(ENDS, &plain) || (plain == "last" && members.contains_key("number"));
            let is_part = place && is_in(PARTS, &plain);
            if ((is_flag || is_part) && is(true)) || (is_end && is(false)) {
                self.flag = Some((name.clone(), true));
            } else if (is_flag && is(false)) || (is_end && is(true)) {
                self.flag.get_or_insert_with(|| (name.clone(), false));
            }
            let is_next = plain.strip_prefix("next").is_some_and(|end| end.is_empty() || is_in(NEXT, end))
                || plain.starts_with(LAST_KEY)
                || is_in(LINKS, &plain);
            let is_cursor = place && is_in(CURSORS, &plain) && self.count.is_some() && value.is_string();
            let is_cursor = is_cursor && *value != "" && (plain != "offset" || number(value).is_none());
            if (is_next && is_link(&plain, value)) || is_cursor || names_next(value) {
                self.link.get_or_insert_with(|| name.clone());
            }
            let is_count = |(count, beside): &(&str, &str)| {
                plain == *count && has(beside) && members.values().any(Value::is_array)
            };
            let total = number(value).or_else(|| number(value.get("value")?)).filter(|_| place);
            if let Some(total) = total.filter(|_| is_in(TOTALS, &plain) || COUNTS.iter().any(is_count))
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
        let of = |names: &str| {
            let found = names.split(' ').find_map(|wanted| members.iter().find(|(name, _)| plain(name) == wanted));
            found.and_then(|(name, value)| Some((name, number(value)?)))
        };
        // Some servers number the pages from 0.
        let present = of(PRESENT).map_or(1, |(_, page)| page.max(1));
        if let Some((name, _)) = of(PAGES).filter(|(_, pages)| place && self.count.is_some() && *pages > present) {
            self.pages.get_or_insert_with(|| name.clone());
        }
        let Some(depth) = depth.checked_sub(1) else { return };
        for (name, value) in members {
            self.read(value, depth, is_in(HOLDERS, &plain(name)) || concerns_pages(value, depth));
        }
    }
}

/// Returns true if a value has a list, or a member that is for pages.
fn concerns_pages(value: &Value, depth: usize) -> bool {
    value.as_object().is_some_and(|members| {
        members.iter().any(|(name, value)| {
            value.is_array()
                || (value.is_object() && is_in(HOLDERS, &plain(name)))
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
pub(super) fn lists(body: &Value, page: Option<&Value>) -> Vec<(usize, bool)> {
    match body {
        Value::Array(all) => vec![(all.len(), page.is_some_and(Value::is_array))],
        Value::Object(all) => all.iter().flat_map(|(name, of)| lists(of, page.and_then(|it| it.get(name)))).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn links_of_the_next_page() {
        for (link, next) in rows::<(String, Option<String>)>("announced_links") {
            let found = NEXT_LINK.captures(&link).and_then(|found| Some(found.get(1)?.as_str()));
            assert_eq!(found, next.as_deref(), "{link}");
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
            assert_eq!(found, (member != "-").then(|| announcement(member)), "{line}");
        }
        for ((is_first, has_ended), headers, body, is_further) in rows::<(_, _, String, bool)>("further_pages") {
            let page = HttpResponse { headers, ..HttpResponse::new(200, &*body) };
            let found = further_page(&page, ListState { is_first, has_ended });
            assert_eq!(found.is_some(), is_further, "{body} {is_first} {has_ended}");
        }
    }
}
