//! Reads a page of what exists at the sender of a source, and asks for one thing.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_documents::EventSource;
use ebb_documents::event::listing::{ListedTarget, ListedThing};
use ebb_documents::event::{EventListing, EventOutcome, EventRequest};
use ebb_egress::HttpResponse;
use ebb_protocol::{Millis, limits};
use ebb_store::ListPass;
use serde_json::{Value, json};

use super::fetch::{self, FetchProblem, LIST, RequestPlace};
use crate::run::request::further_page::page_after;
use crate::run::request_headers::is_same_origin;
use crate::{Env, offload, response_body};

/// The time after which a list that is not read is begun again.
pub(super) const MAX_AGE: Millis = Millis(2 * 3_600_000);

type ReadPage = (Vec<ListedThing>, Option<String>);

/// Returns the things of the page at which an observation continues, and the URL of the next page.
pub(super) async fn page(
    env: &Env,
    source: &Arc<EventSource>,
    (listing, part): (&EventListing, &str),
    pass: &ListPass,
) -> Result<ReadPage, FetchProblem> {
    let wrong = |error: &dyn std::fmt::Display| FetchProblem::Wrong(error.to_string());
    let request = source.list_request(listing, part).map_err(|error| wrong(&error))?;
    let place = pass.url.clone().map_or(RequestPlace::Path(request.path), RequestPlace::Url);
    let connection = (request.connection.as_str(), request.headers);
    let (url, response) = fetch::ask(env, &source.name, connection, place, "the list").await?;
    let value = value(&response).map_err(FetchProblem::Wrong)?;
    let permit = env.cache.budgets.event_values.reserve(limits::JSON_VALUES).await;
    let (of_source, of_listing, of_part) = (Arc::clone(source), listing.clone(), part.to_owned());
    let (seen, of_url) = (pass.seen, url.clone());
    let read = move || of_source.listed_page(&of_listing, (&of_part, seen, &of_url), &value);
    let read = offload(read).await?;
    drop(permit);
    let page = read.map_err(|error| wrong(&error))?;
    let declared = listing.has_next().then_some(page.next);
    Ok((page.things, next_page(&url, declared, pass.seen == 0, &response)?))
}

/// Returns the URL of the page after that of `url`, as [`page_after`] does. It is another one at the same origin.
pub(super) fn next_page(
    url: &str,
    declared: Option<Option<String>>,
    is_first: bool,
    response: &HttpResponse,
) -> Result<Option<String>, FetchProblem> {
    match page_after(url, declared, is_first, response).map_err(FetchProblem::Wrong)? {
        Some(next) if !is_same_origin(&next, url) => {
            Err(FetchProblem::Wrong("the next page is at another origin".to_owned()))
        }
        Some(next) if next == url => Err(FetchProblem::Wrong("the next page is the same one".to_owned())),
        next => Ok(next),
    }
}

/// Asks for one thing. Returns the evidence that it does not exist, or `None` if it exists. `Err` is the reason why the answer
/// shows neither.
pub(super) async fn confirm(
    env: &Env,
    source: &Arc<EventSource>,
    (listing, part): (&EventListing, &str),
    target: &ListedTarget,
    EventRequest { connection, path, headers }: EventRequest,
) -> Result<Option<String>, FetchProblem> {
    let shown = path.clone();
    let sent = fetch::send(env, &source.name, (&connection, headers), RequestPlace::Path(path), LIST);
    let (_, response) = sent.await?;
    let answered = format!("GET {shown} was answered {}", response.status_text());
    match response.status {
        404 | 410 => Ok(Some(answered)),
        200 => {
            let item = response_body::parse(&response.body, limits::JSON_VALUES)
                .map_err(|problem| FetchProblem::Wrong(format!("the answer to GET {shown} has {problem}")))?;
            match source.listed_thing(listing, part, item).map_err(|error| FetchProblem::Wrong(error.to_string()))? {
                thing if (&thing.kind, &thing.name) != (&target.kind, &target.name) => {
                    let name = limits::message(&thing.name);
                    Err(FetchProblem::Wrong(format!("the answer to GET {shown} is about {}/{name}", thing.kind)))
                }
                ListedThing { uid: Some(uid), .. } if uid != target.uid && !target.uid.is_empty() => {
                    Ok(Some(format!("GET {shown} shows another one with its name")))
                }
                ListedThing { outcome: EventOutcome::Delete { reason, .. }, .. } => {
                    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                    Ok(Some(format!("GET {shown} shows its end{reason}")))
                }
                _ => Ok(None),
            }
        }
        _ if response.is_limited() => Err(FetchProblem::Later(answered, response.retry_after(env.now()))),
        _ => Err(FetchProblem::Wrong(answered)),
    }
}

/// Returns the value of `response`.
fn value(response: &HttpResponse) -> Result<Value, String> {
    let body = response_body::parse(&response.body, limits::JSON_VALUES);
    let body = body.map_err(|problem| format!("a page has {problem}"))?;
    let headers: BTreeMap<&String, &String> = response.headers.iter().map(|(name, value)| (name, value)).collect();
    Ok(json!({"status": response.status, "headers": headers, "body": body}))
}
