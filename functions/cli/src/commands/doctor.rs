//! `ebb doctor`: checks each component of a deployment.

use std::ops::RangeInclusive;
use std::time::Duration;

use ebb_protocol::api::ListingState;
use ebb_protocol::{CheckList, HealthCheck, Millis, SourceInfo, SubscriptionInfo, rfc3339};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{ApiClient, CliError, Exit, OutputArgs, Result, labels, output, timing};

/// The maximum accepted difference between the clocks, in seconds. The server rejects webhooks whose time differs by 5
/// minutes.
const MAX_CLOCK_SKEW: i64 = 60;
/// The time for which a rejected event of a source is reported.
const REPORTED: Duration = Duration::from_secs(24 * 60 * 60);
/// The age of a waiting notification that is reported. A shorter outage of its receiver ends within it.
const LONG_WAIT: Duration = Duration::from_secs(15 * 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum CheckResult {
    Passed,
    Warning,
    Failed,
    Skipped,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DoctorCheck {
    check: String,
    result: CheckResult,
    detail: String,
}

impl DoctorCheck {
    fn new(check: &str, result: CheckResult, detail: impl Into<String>) -> Self {
        Self { check: check.to_owned(), result, detail: detail.into() }
    }
}

pub(crate) async fn run(client: &ApiClient, output: OutputArgs) -> Result<Exit> {
    let sent = timing::now().as_millisecond();
    let response = client.fetch::<CheckList>(&["checks"]).await;
    let received = timing::now().as_millisecond();
    let mut checks = Vec::new();
    match response {
        Ok(list) => {
            checks.push(DoctorCheck::new("api", CheckResult::Passed, format!("version {}", list.version)));
            checks.push(clock(&list, sent..=received));
            checks.push(signature(client).await);
            checks.push(callbacks(client, &list.callback_url).await);
            checks.extend(list.checks.into_iter().map(of_server));
            checks.extend(warnings(client, "sources", "no event was rejected in the last day", rejection).await);
            checks.extend(warnings(client, "subscriptions", "no notification is late or given up", undelivered).await);
        }
        // Without a connection, all other checks would fail with the same error.
        Err(error) if error.is_unreachable() => return Err(error),
        Err(error) => {
            checks.push(DoctorCheck::new("api", CheckResult::Failed, failure(&error)));
            checks.push(signature(client).await);
        }
    }
    output.write(&checks, |checks| text(checks))?;
    let has_failed = checks.iter().any(|check| check.result == CheckResult::Failed);
    Ok(if has_failed { Exit::Failed } else { Exit::Done })
}

fn failure(error: &CliError) -> String {
    let message = error.message();
    match error.problem().map(|problem| problem.status) {
        Some(401) => error.message_with_steps(),
        Some(403) => format!("{message}: set EBB_TOKEN to a token with the role operator"),
        _ => message,
    }
}

/// Compares the server's clock with this machine's at the time of the request, which may wait for relays.
fn clock(list: &CheckList, request: RangeInclusive<i64>) -> DoctorCheck {
    let there = i64::try_from(list.now_ms).unwrap_or(i64::MAX);
    let apart = there.saturating_sub(there.clamp(*request.start(), *request.end())) / 1000;
    let direction = if apart < 0 { "behind" } else { "ahead of" };
    let difference = format!("the server is {} s {direction} this machine", apart.abs());
    if apart.abs() <= MAX_CLOCK_SKEW {
        return DoctorCheck::new("clock", CheckResult::Passed, difference);
    }
    let fix = "set the clock of this machine; signatures that are 5 minutes off are rejected";
    DoctorCheck::new("clock", CheckResult::Failed, format!("{difference}: {fix}"))
}

/// Sends a signed event of an unknown type. The server verifies its signature and then rejects the type.
async fn signature(client: &ApiClient) -> DoctorCheck {
    if client.server.webhook_secret.is_none() {
        return DoctorCheck::new("signature", CheckResult::Skipped, "EBB_WEBHOOK_SECRET is not set");
    }
    let wrong = match client.probe_signature().await {
        Ok(Some(problem)) if problem.status == 422 => {
            let detail = "the server accepts the signature of lifecycle webhooks";
            return DoctorCheck::new("signature", CheckResult::Passed, detail);
        }
        Ok(Some(problem)) if problem.status == 401 => {
            format!("{}: compare EBB_WEBHOOK_SECRET with the server's keys", problem.detail)
        }
        Ok(Some(problem)) => problem.detail,
        Ok(None) => "the server accepted an event of an unknown type".to_owned(),
        Err(error) => error.message(),
    };
    DoctorCheck::new("signature", CheckResult::Failed, wrong)
}

async fn callbacks(client: &ApiClient, url: &str) -> DoctorCheck {
    let response = match url.parse() {
        Ok(parsed) => client.probe_callback(parsed).await.ok(),
        Err(_) => return DoctorCheck::new("callbacks", CheckResult::Failed, format!("{url} is not a URL")),
    };
    let wrong = match response {
        Some(Some(problem)) if problem.status == 401 => {
            return DoctorCheck::new("callbacks", CheckResult::Passed, format!("{url} responds"));
        }
        Some(Some(problem)) => format!("{url}: {}", problem.detail),
        Some(None) => format!("{url} accepts callbacks without a token: it belongs to another server"),
        None => format!("no valid response from {url}, the callback URL of units: check the parameter Url"),
    };
    DoctorCheck::new("callbacks", CheckResult::Failed, wrong)
}

/// Returns the warnings about what the API lists in a collection, or that all of it passed. An empty list has no check.
async fn warnings<T: DeserializeOwned>(
    client: &ApiClient,
    collection: &str,
    passed: &str,
    warning: fn(&T) -> Option<DoctorCheck>,
) -> Vec<DoctorCheck> {
    match client.all(collection).await {
        Ok(listed) => {
            let checked: Vec<_> = listed.iter().map(warning).collect();
            let has_passed = !checked.is_empty() && checked.iter().all(Option::is_none);
            let passed = has_passed.then(|| DoctorCheck::new(collection, CheckResult::Passed, passed));
            checked.into_iter().flatten().chain(passed).collect()
        }
        Err(error) => vec![DoctorCheck::new(collection, CheckResult::Failed, failure(&error))],
    }
}

/// Returns a warning about a source whose lists are incomplete, or that has rejected an event in the last day.
fn rejection(source: &SourceInfo) -> Option<DoctorCheck> {
    if let Some(ListingState { problem: Some(why), problem_since: Some(since), .. }) = &source.listing {
        let (since, why) = (timing::clock(since), output::joined_lines(why));
        let detail = format!("its lists are incomplete since {since}, and delete nothing: {why}");
        return Some(DoctorCheck::new(&format!("source/{}", source.name), CheckResult::Warning, detail));
    }
    let rejected = source.rejected.as_ref()?;
    let last = rfc3339(rejected.last.time);
    timing::since(&last, timing::now()).filter(|age| *age < REPORTED)?;
    let (name, events) = (&source.name, if rejected.count == 1 { "event" } else { "events" });
    let why = output::joined_lines(&rejected.last.detail);
    let (count, since, last) = (rejected.count, timing::clock(&rejected.since), timing::clock(&last));
    let counts = format!("{count} {events} rejected since {since}, the last at {last}: {why}");
    let detail = format!("{counts}; `ebb get source {name}` lists them");
    Some(DoctorCheck::new(&format!("source/{name}"), CheckResult::Warning, detail))
}

/// Returns a warning about a subscription that cannot send, or whose notifications were given up or wait for long.
fn undelivered(info: &SubscriptionInfo) -> Option<DoctorCheck> {
    let SubscriptionInfo { name, waiting, oldest, last_error, undelivered, problem, unreadable, .. } = info;
    let problem = unreadable.as_ref().or(problem.as_ref());
    let age = oldest.as_ref().and_then(|at| timing::since(at, timing::now())).unwrap_or_default();
    (*undelivered > 0 || age >= LONG_WAIT || problem.is_some()).then_some(())?;
    let oldest = oldest.as_ref().map(|at| format!(", the oldest since {}", timing::clock(at))).unwrap_or_default();
    let why = problem.or(last_error.as_ref().map(|error| &error.reason));
    let why = why.map(|why| format!(": {}", output::joined_lines(why))).unwrap_or_default();
    let counts = format!("{undelivered} notifications given up in 30 days, {waiting} waiting{oldest}{why}");
    let detail =
        format!("{counts}; `ebb get subscription {name}` lists them, `ebb subscription retry {name}` sends them");
    Some(DoctorCheck::new(&format!("subscription/{name}"), CheckResult::Warning, detail))
}

fn of_server(check: HealthCheck) -> DoctorCheck {
    let result = if check.passed { CheckResult::Passed } else { CheckResult::Failed };
    DoctorCheck::new(&check.name, result, format!("{} (in {})", check.detail, Millis(check.duration_ms)))
}

fn text(checks: &[DoctorCheck]) -> String {
    let rows = checks.iter().map(|check| {
        let result = labels::name(&check.result);
        let is_wrong = matches!(check.result, CheckResult::Warning | CheckResult::Failed);
        [check.check.clone(), if is_wrong { result.to_uppercase() } else { result }, check.detail.clone()]
    });
    output::table(&["CHECK", "RESULT", "DETAIL"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures::rows;

    #[test]
    fn clocks_may_differ_by_a_minute() {
        let list =
            |now_ms| CheckList { version: String::new(), now_ms, callback_url: String::new(), checks: Vec::new() };
        for (server_ms, result, text) in rows::<(u64, String, String)>("clocks_may_differ_by_a_minute") {
            let check = clock(&list(server_ms), 95_000..=100_000);
            assert!(output::json(&check.result) == result && check.detail.contains(&text), "{check:?}");
        }
    }
}
