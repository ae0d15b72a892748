//! Reads a page of what exists at the sender of a source, and asks for one thing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_documents::EventSource;
use ebb_documents::event::listing::{ListedTarget, ListedThing};
use ebb_documents::event::{EventListing, EventOutcome, EventRequest};
use ebb_egress::HttpResponse;
use ebb_protocol::limits;
use ebb_store::ListPass;
use serde_json::{Value, json};

use super::fetch::{self, RequestPlace};
use super::reconcile::is_derived;
use crate::run::request::further_page::page_after;
use crate::run::request_headers::is_same_origin;
use crate::{Env, FlowResult, offload, response_body};

const TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a page shows nothing.
pub(super) enum PageProblem {
    /// It can be asked for again, after the wait that the server asks for.
    Later(String, Option<Duration>),
    /// It is no page of such a list.
    Wrong(String),
}

type ReadPage = (Vec<ListedThing>, Option<String>);

/// Returns the things of the page at which an observation continues, and the URL of the next page.
pub(super) async fn page(
    env: &Env,
    source: &Arc<EventSource>,
    (listing, part): (&EventListing, &str),
    pass: &ListPass,
) -> FlowResult<Result<ReadPage, PageProblem>> {
    let request = match source.list_request(listing, part) {
        Ok(request) => request,
        Err(error) => return Ok(Err(PageProblem::Wrong(error.to_string()))),
    };
    let place = pass.url.clone().map_or(RequestPlace::Path(request.path), RequestPlace::Url);
    let connection = (request.connection.as_str(), request.headers);
    let (url, response) = match fetch::send(env, &source.name, connection, place, TIMEOUT).await? {
        Ok(found) => found,
        Err(why) => return Ok(Err(PageProblem::Later(why, None))),
    };
    let answered = format!("the list of the connection {} was answered {}", listing.connection, response.status_text());
    match response.status {
        202 | 206 => return Ok(Err(PageProblem::Wrong(answered))),
        200..=299 => {}
        status if matches!(status, 408 | 500..=599) || response.is_limited() => {
            return Ok(Err(PageProblem::Later(answered, response.retry_after(env.now()))));
        }
        _ => return Ok(Err(PageProblem::Wrong(answered))),
    }
    let value = match value(&response) {
        Ok(value) => value,
        Err(problem) => return Ok(Err(PageProblem::Wrong(problem))),
    };
    let permit = env.cache.budgets.event_values.reserve(limits::JSON_VALUES).await;
    let (of_source, of_listing, of_part) = (Arc::clone(source), listing.clone(), part.to_owned());
    let (seen, of_url) = (pass.seen, url.clone());
    let read = move || of_source.listed_page(&of_listing, (&of_part, seen, &of_url), &value);
    let read = offload(read).await?;
    drop(permit);
    let page = match read {
        Ok(page) => page,
        Err(error) => return Ok(Err(PageProblem::Wrong(error.to_string()))),
    };
    let declared = listing.has_next().then_some(page.next);
    Ok(match page_after(&url, declared, pass.seen == 0, &response) {
        Err(why) => Err(PageProblem::Wrong(why)),
        Ok(Some(next)) if !is_same_origin(&next, &url) => {
            Err(PageProblem::Wrong("the next page is at another origin".to_owned()))
        }
        Ok(Some(next)) if next == url => Err(PageProblem::Wrong("the next page is the same one".to_owned())),
        Ok(next) => Ok((page.things, next)),
    })
}

/// Asks for one thing. Returns the evidence that it does not exist, or `None` if it exists. `Err` is the reason why the answer
/// shows neither.
pub(super) async fn confirm(
    env: &Env,
    source: &Arc<EventSource>,
    (listing, part): (&EventListing, &str),
    target: &ListedTarget,
    EventRequest { connection, path, headers }: EventRequest,
) -> FlowResult<Result<Option<String>, String>> {
    let shown = path.clone();
    let sent = fetch::send(env, &source.name, (&connection, headers), RequestPlace::Path(path), TIMEOUT).await?;
    let (_, response) = match sent {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    Ok(match response.status {
        404 | 410 => Ok(Some(format!("GET {shown} was answered {}", response.status))),
        200 => match response_body::parse(&response.body, limits::JSON_VALUES) {
            Err(problem) => Err(format!("the answer to GET {shown} has {problem}")),
            Ok(item) => match source.listed_thing(listing, part, item) {
                Err(error) => Err(error.to_string()),
                Ok(thing) if (&thing.kind, &thing.name) != (&target.kind, &target.name) => {
                    Err(format!("the answer to GET {shown} is about {}/{}", thing.kind, limits::message(&thing.name)))
                }
                Ok(ListedThing { uid: Some(uid), .. }) if uid != target.uid && !is_derived(&target.uid) => {
                    Ok(Some(format!("GET {shown} shows another one with its name")))
                }
                Ok(ListedThing { outcome: EventOutcome::Delete { reason, .. }, .. }) => {
                    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                    Ok(Some(format!("GET {shown} shows its end{reason}")))
                }
                Ok(_) => Ok(None),
            },
        },
        _ => Err(format!("GET {shown} was answered {}", response.status_text())),
    })
}

/// Returns the value of `response`.
fn value(response: &HttpResponse) -> Result<Value, String> {
    let body = response_body::parse(&response.body, limits::JSON_VALUES);
    let body = body.map_err(|problem| format!("a page has {problem}"))?;
    let headers: BTreeMap<&String, &String> = response.headers.iter().map(|(name, value)| (name, value)).collect();
    Ok(json!({"status": response.status, "headers": headers, "body": body}))
}
