//! Fetches the deliveries that GitHub could not deliver. It does not send them again by itself.
//!
//! 1. The attempts are listed from the newest one back to those that are handled. A delivery without a success has failed.
//! 2. Failed deliveries are fetched, the oldest first, and received like others: their signature is verified over the payload.
//! 3. Then all attempts up to the time of the list are handled. What a death repeats is a delivery that was received before.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use ebb_documents::EventSource;
use ebb_documents::event::EventListing;
use ebb_documents::model::ReplayDoc;
use ebb_egress::HttpResponse;
use ebb_protocol::{ErrorCode, Millis, Timestamp, limits, short_digest};
use ebb_store::{ListPass, ReplayState};
use http::HeaderMap;
use regex::{Captures, Regex};
use serde::Deserialize;

use super::delivery::{self, DeliveryRequest};
use super::fetch::{self, FetchProblem, RequestPlace};
use super::list::{MAX_AGE, next_page};
use crate::{Env, FlowResult, Rejection, RequestError, response_body};

/// The time between two lists of a source without `exists`.
const EVERY: Millis = Millis(15 * 60_000);
/// Younger attempts are left to the next list: one that fails late is listed among earlier ones.
const SETTLED: Millis = Millis(2 * 60_000);
/// The time for which GitHub keeps deliveries.
const KEPT: Millis = Millis(3 * 24 * 3_600_000);
/// Maximum pages of a list, with 100 attempts each.
const MAX_PAGES: u32 = 200;
/// Maximum deliveries that a sweep fetches.
const MAX_FETCHED: usize = 50;

/// An escape of JSON.
static ESCAPE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\\(?:u[0-9a-f]{4}|.)").expect("the pattern is a literal"));

/// The last failed attempt of each delivery, or nothing if one has succeeded.
type Attempts = BTreeMap<String, Option<(Timestamp, u64)>>;

#[derive(Deserialize)]
struct ListedAttempt {
    id: u64,
    guid: String,
    #[serde(with = "ebb_protocol::time")]
    delivered_at: Timestamp,
    redelivery: bool,
    status_code: i64,
}

/// Continues to fetch the failed deliveries of a source, until `end`. Returns true if the lists of the source have to wait for
/// another sweep, and the wait until then or until the next list.
pub(super) async fn replay(
    env: &Env,
    source: &Arc<EventSource>,
    (known, attempts): (&mut Option<ReplayState>, &mut Attempts),
    end: Timestamp,
) -> FlowResult<(bool, Millis)> {
    let Some(webhook) = &source.replay else {
        *known = None;
        return Ok((false, EVERY));
    };
    let question = short_digest(&["replay", &webhook.connection.value, &webhook.path.value], 24);
    let before = known.take().filter(|before| before.question == question);
    let state = known.insert(before.unwrap_or_else(|| ReplayState { question, ..ReplayState::default() }));
    let since = state.problem.take().map_or(env.now(), |(since, _)| since);
    // A list begins with its first page.
    let is_continued = |pass: &ListPass| pass.pages > 0 && pass.begun.plus(MAX_AGE) > env.now();
    let mut pass = state.pass.take().filter(is_continued).unwrap_or_else(|| {
        attempts.clear();
        ListPass { begun: env.now(), ..ListPass::default() }
    });
    let replay = Replay { env, source, webhook, end };
    match replay.run(&mut pass, &mut state.until, attempts).await {
        Ok(true) => Ok((false, EVERY)),
        Ok(false) => {
            state.pass = Some(pass);
            Ok((true, Millis(1_000)))
        }
        Err(problem) => {
            // A limit counts all requests with a connection.
            let is_shared = |listing: &EventListing| listing.connection == webhook.connection.value;
            let is_limit = problem.is_limit() && source.listing.as_ref().is_some_and(is_shared);
            let (why, wait) = problem.shown()?;
            state.problem = Some((since, limits::message(&why)));
            state.pass = wait.map(|_| pass);
            Ok((is_limit, wait.unwrap_or(EVERY)))
        }
    }
}

struct Replay<'a> {
    env: &'a Env,
    source: &'a Arc<EventSource>,
    webhook: &'a ReplayDoc,
    end: Timestamp,
}

impl Replay<'_> {
    /// Returns true if all attempts are handled, and false if another sweep continues.
    async fn run(
        &self,
        pass: &mut ListPass,
        handled: &mut Timestamp,
        attempts: &mut Attempts,
    ) -> Result<bool, FetchProblem> {
        let until = earlier(pass.begun, SETTLED);
        let from = earlier(pass.begun, KEPT).max(*handled);
        while pass.part == 0 {
            if self.env.now() >= self.end {
                return Ok(false);
            }
            let place = match &pass.url {
                Some(url) => RequestPlace::Url(url.clone()),
                None => RequestPlace::Path(format!("{}/deliveries?per_page=100", self.webhook.path.value)),
            };
            let (url, response) = self.ask(place, "the list of deliveries").await?;
            let page: Vec<ListedAttempt> = serde_json::from_slice(response_body::unmarked(&response.body))
                .map_err(|_| FetchProblem::Wrong("the list of deliveries is not that of GitHub".to_owned()))?;
            let next = next_page(&url, None, pass.pages == 0, &response)?;
            let is_last = page.iter().any(|attempt| attempt.delivered_at.plus(SETTLED) <= from);
            for ListedAttempt { id, guid, delivered_at, redelivery, status_code } in page {
                let is_success = matches!(status_code, 200..=299);
                // No attempt was earlier than the first one.
                if is_success && (redelivery || attempts.contains_key(&guid)) {
                    attempts.insert(guid, None);
                } else if !is_success && from < delivered_at && delivered_at <= until {
                    attempts.entry(guid).or_insert(Some((delivered_at, id)));
                }
            }
            pass.pages += 1;
            pass.url = next.filter(|_| !is_last && pass.pages < MAX_PAGES);
            pass.part = usize::from(pass.url.is_none());
        }
        let failed = attempts.iter().filter_map(|(guid, failed)| failed.map(|(at, id)| (at, id, guid.clone())));
        let mut failed: Vec<_> = failed.collect();
        failed.sort();
        for (number, (at, id, guid)) in failed.into_iter().enumerate() {
            if number == MAX_FETCHED || self.env.now() >= self.end {
                return Ok(false);
            }
            // Another attempt can have the same time.
            *handled = earlier(at, Millis(1)).max(*handled);
            match self.receive(id).await {
                Err(FetchProblem::Never(why)) => {
                    let detail = format!("{why}; redeliver it in the settings of the webhook at GitHub");
                    delivery::reject(self.env, (&self.source.name, &guid), None, detail).await;
                }
                received => received?,
            }
            attempts.remove(&guid);
        }
        *handled = until;
        if pass.pages >= MAX_PAGES {
            let why = format!("there are {MAX_PAGES} pages of deliveries or more, and older ones are not fetched");
            return Err(FetchProblem::Wrong(why));
        }
        Ok(true)
    }

    /// Fetches a delivery, and receives it as the endpoint of the source does.
    async fn receive(&self, id: u64) -> Result<(), FetchProblem> {
        let place = RequestPlace::Path(format!("{}/deliveries/{id}", self.webhook.path.value));
        let (_, response) = self.ask(place, "a delivery").await?;
        let permit = self.env.cache.budgets.event_values.reserve(limits::JSON_VALUES).await;
        let fetched = response_body::parse(&response.body, limits::JSON_VALUES)
            .map_err(|problem| FetchProblem::Never(format!("the delivery has {problem}")))?;
        let request = &fetched["request"];
        let headers = HashMap::<String, String>::deserialize(&request["headers"]).unwrap_or_default();
        let headers: HeaderMap = HeaderMap::try_from(&headers).unwrap_or_default();
        let text = request["payload"].to_string();
        // The receipt reserves values, too.
        drop((fetched, permit));
        // GitHub writes control characters with digits in upper case.
        let upper = ESCAPE.replace_all(&text, |found: &Captures<'_>| match &found[0] {
            escape if escape.len() == 6 => format!("\\u{}", escape[2..].to_uppercase()),
            escape => escape.to_owned(),
        });
        for body in [text.as_str(), &*upper] {
            let request = DeliveryRequest { headers: &headers, url_secret: None, body: body.as_bytes() };
            let source = (self.source.name.as_str(), Arc::clone(self.source));
            match Box::pin(delivery::receive(self.env, source, request)).await {
                Ok((_, follow_ups)) => {
                    for follow_up in follow_ups {
                        follow_up.finish(self.env).await?;
                    }
                    return Ok(());
                }
                Err(RequestError::Failed(error)) => return Err(error.into()),
                Err(RequestError::Rejected(Rejection::Refused(code, why))) => match code {
                    ErrorCode::InvalidSignature => {}
                    ErrorCode::InvalidSecrets | ErrorCode::MissingSecret => {
                        return Err(FetchProblem::Later(why, None));
                    }
                    // It is listed as a rejected event.
                    ErrorCode::IncompleteEvent => return Ok(()),
                    _ => return Err(FetchProblem::Never(why)),
                },
                Err(RequestError::Rejected(rejection)) => return Err(FetchProblem::Never(rejection.to_string())),
            }
        }
        Err(FetchProblem::Never("its signature does not fit the payload that GitHub shows".to_owned()))
    }

    async fn ask(&self, place: RequestPlace, what: &str) -> Result<(String, HttpResponse), FetchProblem> {
        let connection = (self.webhook.connection.value.as_str(), Vec::new());
        fetch::ask(self.env, &self.source.name, connection, place, what).await
    }
}

fn earlier(time: Timestamp, by: Millis) -> Timestamp {
    Timestamp(time.0.saturating_sub(by.0))
}
