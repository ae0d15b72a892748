//! The requests of `ebb top` for what its screen shows.

use std::time::{Duration, Instant};

use ebb_protocol::{RunDetail, TargetDetail, UnitDetail, UnitState, limits};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::page::{PageContent, PageUnit, TargetPage, TargetView, readable};
use super::state::{TopAnswer, TopEvent, TopPoll};
use crate::commands::logs;
use crate::{ApiClient, CliError, Result, TargetRef, why};

/// The pause between two polls of a page.
const PAUSE: Duration = Duration::from_secs(2);
/// The pause after a slow request, as a multiple of its duration.
const PAUSE_FACTOR: u32 = 5;

/// Polls what is wanted, at once when that changes, until the receiver of the answers is dropped.
pub(super) async fn poll(client: ApiClient, mut wanted: watch::Receiver<TopPoll>, answers: UnboundedSender<TopEvent>) {
    loop {
        let poll = wanted.borrow_and_update().clone();
        let sent = Instant::now();
        let answer = tokio::select! {
            answer = ask(&client, &poll) => answer,
            Ok(()) = wanted.changed() => continue,
        };
        let answer = TopEvent::Answered(poll, answer.map_err(|error| error.message()));
        if answers.send(answer).is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE.max(sent.elapsed() * PAUSE_FACTOR)) => {}
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

pub(super) async fn ask(client: &ApiClient, poll: &TopPoll) -> Result<TopAnswer> {
    let (target, view, unit) = match poll {
        TopPoll::List(selection) => {
            let (targets, warnings) = client.targets(selection, &[]).await?;
            return Ok(TopAnswer::List(targets, warnings.into_iter().collect()));
        }
        TopPoll::Page(target, view, unit) => (target, *view, unit.as_ref()),
    };
    let detail = client.existing(target).await?;
    let content = match view {
        TargetView::Tree => PageContent::Tree,
        TargetView::Why => PageContent::Why(limits::printable(&why::text(&client.why(target).await?))),
        TargetView::Log => log(client, target, &detail, unit).await?,
    };
    Ok(TopAnswer::Page(Box::new(TargetPage { detail, content })))
}

/// Returns the log of a unit, or of another one if the target does not have it.
async fn log(
    client: &ApiClient,
    target: &TargetRef,
    detail: &TargetDetail,
    wanted: Option<&PageUnit>,
) -> Result<PageContent> {
    let units = readable(detail);
    let shown = units.iter().position(|unit| Some(&PageUnit::from(*unit)) == wanted).or_else(|| telling(&units));
    let shown = shown.ok_or_else(|| CliError::failed(format!("no unit of {target} has a log yet")))?;
    let (run, unit) = units[shown];
    let (attempt, text) = match client.log(&run.id, &unit.key, None).await? {
        Some(tail) => (tail.attempt, logs::clean(&tail.text())),
        None => (None, String::new()),
    };
    Ok(PageContent::Log { shown, attempt: attempt.unwrap_or(unit.attempt), text })
}

/// Returns the position of the first failed unit of the last run, or else of its first running unit, or else of its last
/// unit.
fn telling(units: &[(&RunDetail, &UnitDetail)]) -> Option<usize> {
    let (last, _) = units.last()?;
    let find =
        |states: &[UnitState]| units.iter().position(|(run, unit)| run.id == last.id && states.contains(&unit.state));
    let running = || find(&[UnitState::Running, UnitState::Retrying]);
    find(&[UnitState::Failed]).or_else(running).or(units.len().checked_sub(1))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::extract::Request;
    use axum::http::{Method, StatusCode};
    use axum::response::{IntoResponse as _, Response};
    use ebb_protocol::api::{TargetInfo, TargetSelector};
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::commands::top::change::{ChangeVerb, TargetChange};
    use crate::progress::{fixtures, labels};

    fn failed() -> TargetInfo {
        fixtures::target("failed", fixtures::NOW).info
    }

    async fn respond(request: Request) -> Response {
        let json = |value: serde_json::Value| axum::Json(value).into_response();
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let given = |name: &str| body[name].as_str().map(str::to_owned);
        match (&parts.method, parts.uri.path()) {
            (_, "/v1/targets") => json(json!({"targets": [failed()], "damaged": ["no plan"]})),
            (&Method::GET, "/v1/targets/sandbox/pr-1") => json(serde_json::to_value(fixtures::busy()).unwrap()),
            (_, "/v1/targets/sandbox/pr-1/why") => json(json!({
                "target": "sandbox/pr-1", "phase": "failed", "summary": "no \u{1b}[2Jspace", "remaining": [], "nextSteps": [],
                "failed": [
                    {"unit": "db/make", "attempt": 1, "attemptInSeries": 1, "reason": {"code": "exit", "message": "full"}},
                ],
            })),
            (_, "/v1/targets/sandbox/pr-1/retry") => json(
                json!({"run": given("uid"), "units": [given("plugin").unwrap_or_else(|| "queue/create".to_owned())]}),
            ),
            (_, "/v1/targets/sandbox/pr-1/force-complete") => {
                json(json!({"run": given("uid"), "units": [given("unit"), given("reason")]}))
            }
            (_, "/v1/runs/k3-1-pre-start/logs") if parts.uri.query() == Some("unit=queue%2Fcreate") => {
                ([("ebb-attempt", "3")], "no \u{1b}[2Jspace\n").into_response()
            }
            (_, "/v1/runs/k3-1-pre-start/logs") => ([("ebb-attempt", "1")], "made\n").into_response(),
            _ => {
                let of = given("uid")
                    .or(parts.uri.query().map(str::to_owned))
                    .filter(|of| !of.is_empty())
                    .unwrap_or_else(|| "pr-1".to_owned());
                let problem = json!({"status": 403, "code": "forbidden", "detail": format!("{of} is of token ann")});
                (StatusCode::FORBIDDEN, axum::Json(problem)).into_response()
            }
        }
    }

    #[tokio::test]
    async fn pages_are_polled_and_changes_are_sent() {
        let client = fixtures::client_of(Router::new().fallback(respond)).await;
        let named = fixtures::instance().target;
        let page = |view, unit| TopPoll::Page(named.clone(), view, unit);
        let [run, hook, key] = ["k3-1-pre-start", "preStart", "db/provision"].map(str::to_owned);
        let foreign = TargetRef { name: "pr-2".to_owned(), ..named.clone() };
        let (wanted, polls) = watch::channel(TopPoll::List(TargetSelector::default()));
        let (sender, mut answers) = mpsc::unbounded_channel();
        let polling = tokio::spawn(poll(client.clone(), polls, sender));
        for (wish, expected) in [
            (TopPoll::List(TargetSelector::default()), "[\"pr-1\"] [\"cannot read a target: no plan\"]"),
            (page(TargetView::Tree, None), "starting"),
            (
                page(TargetView::Why, None),
                "sandbox/pr-1 has failed: no \u{fffd}[2Jspace\n\nalso failed\n  db/make, attempt 1: full (exit)\n",
            ),
            // Of all units, the failed one is shown.
            (page(TargetView::Log, None), "unit 3, attempt 3: no \u{fffd}[2Jspace\n"),
            (page(TargetView::Log, Some(PageUnit { run, hook, key })), "unit 0, attempt 1: made\n"),
            (TopPoll::Page(foreign, TargetView::Tree, None), "error: pr-1 is of token ann"),
        ] {
            wanted.send(wish.clone()).unwrap();
            let answer = loop {
                match answers.recv().await.unwrap() {
                    TopEvent::Answered(poll, answer) if poll == wish => break answer,
                    _ => {}
                }
            };
            let text = match answer {
                Ok(TopAnswer::List(targets, warnings)) => {
                    format!("{:?} {warnings:?}", targets.iter().map(|target| &target.name).collect::<Vec<_>>())
                }
                Ok(TopAnswer::Page(page)) => match page.content {
                    PageContent::Tree => labels::name(&page.detail.info.phase),
                    PageContent::Why(text) => text,
                    PageContent::Log { shown, attempt, text } => format!("unit {shown}, attempt {attempt}: {text}"),
                },
                Err(error) => format!("error: {error}"),
            };
            assert_eq!(text, expected, "{wish:?}");
        }
        // Without a page to show, the polls end.
        drop((wanted, answers));
        polling.await.unwrap();
        let mut changes = Vec::new();
        for (verb, uid, unit, text) in [
            (ChangeVerb::Retry, "a", "", ""),
            (ChangeVerb::RetryWith, "a", "", " db@1.0.1 "),
            (ChangeVerb::ForceComplete, "a", "db/drop", "no space"),
            (ChangeVerb::Delete, "a", "", ""),
            (ChangeVerb::ForceDelete, "a", "", "no space"),
            (ChangeVerb::Delete, "b", "", ""),
        ] {
            let [uid, unit, text] = [uid, unit, text].map(str::to_owned);
            let asked = TargetChange { verb, target: TargetInfo { uid, ..failed() }, unit, text };
            changes.push(asked.send(client.clone()).await);
        }
        let refused = " is of token ann; ask a person with the scope `operate` for a token with that scope: ebb token create \
                       NAME --scope SCOPE";
        // Each request names the UID of the shown instance, which the server repeats.
        let expected = [
            Ok("Retrying in a: queue/create".to_owned()),
            Ok("Retrying in a: db@1.0.1".to_owned()),
            Ok("Overrode db/drop, no space; the run a continues".to_owned()),
            Err(format!("sandbox/pr-1: uid=a{refused}")),
            Err(format!("sandbox/pr-1: a{refused}")),
            Err("sandbox/pr-1: another instance has this name now, and nothing was changed: open it again".to_owned()),
        ];
        assert_eq!(changes, expected);
    }
}
