//! The requests of `ebb top`: polls of what a page shows, and changes.

use std::time::{Duration, Instant};

use ebb_protocol::api::{
    ForceCompleteUnit, ForceDeleteTarget, OverrideResponse, RetryResponse, RetryTarget, RunDetail, TargetDetail,
    TargetPhase, UnitDetail, UnitState,
};
use ebb_protocol::limits;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::state::{ChangeVerb, LogUnit, ShownLog, ShownWhy, TargetChange, TopAnswer, TopEvent, TopPoll};
use crate::client::ApiClient;
use crate::commands::unit::override_text;
use crate::commands::{logs, retry};
use crate::exit::{CliError, Result};
use crate::lifecycle;
use crate::target::TargetRef;
use crate::why;

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

/// Returns the answer of the server to a poll.
pub(super) async fn ask(client: &ApiClient, poll: &TopPoll) -> Result<TopAnswer> {
    Ok(match poll {
        TopPoll::List(selection) => {
            let (targets, warnings) = client.targets(selection, &[]).await?;
            TopAnswer::List(targets, warnings.into_iter().collect())
        }
        TopPoll::Tree(target) => TopAnswer::Tree(Box::new(client.existing(target).await?)),
        TopPoll::Why(target) => {
            let why = client.why(target).await?;
            let text = limits::printable(&why::text(&why));
            let failed = why.failed.into_iter().map(|failed| failed.unit).collect();
            TopAnswer::Why(ShownWhy { phase: why.phase, failed, text })
        }
        TopPoll::Log(target, unit) => TopAnswer::Log(log(client, target, unit.as_ref()).await?),
    })
}

/// Sends a change. Returns its result as an event.
pub(super) async fn change(client: ApiClient, change: TargetChange) -> TopEvent {
    let target = TargetRef::from(&change.target);
    let done = changed(&client, &target, change).await;
    TopEvent::Changed(done.map_err(|error| format!("{target}: {}", error.message_with_steps())))
}

async fn changed(client: &ApiClient, target: &TargetRef, change: TargetChange) -> Result<String> {
    let TargetChange { verb, target: info, unit, text } = change;
    let seen = client.existing(target).await?;
    if seen.info.uid != info.uid {
        return Err(CliError::failed("another instance has this name now, and nothing was changed: open it again"));
    }
    let uid = Some(info.uid);
    // The default of the commands.
    let by = std::env::var("USER").ok();
    match verb {
        ChangeVerb::Retry | ChangeVerb::RetryWith => {
            let plugin = (verb == ChangeVerb::RetryWith).then(|| text.trim().to_owned());
            let body = RetryTarget { uid, plugin, dry_run: false };
            let done: RetryResponse = client.act(target, "retry", &body).await?;
            Ok(retry::text(&done, false))
        }
        ChangeVerb::Delete => {
            client.delete_target(target, uid.as_deref()).await?;
            Ok(match info.phase {
                TargetPhase::Stuck => format!("{target} stays stuck until its teardown is retried"),
                _ => format!("{target} is being deleted"),
            })
        }
        ChangeVerb::ForceComplete => {
            let body = ForceCompleteUnit { uid, unit, reason: text, by };
            let done: OverrideResponse = client.act(target, "force-complete", &body).await?;
            Ok(override_text(&done))
        }
        ChangeVerb::ForceDelete => {
            lifecycle::withdraw_waiting(client, target, &seen).await?;
            let body = ForceDeleteTarget { uid, reason: text, by };
            let done: OverrideResponse = client.act(target, "force-delete", &body).await?;
            Ok(override_text(&done))
        }
    }
}

/// Returns the log of a unit, or of another one if the target does not have it.
async fn log(client: &ApiClient, target: &TargetRef, wanted: Option<&LogUnit>) -> Result<ShownLog> {
    let seen = client.existing(target).await?;
    let readable = readable(&seen);
    let units: Vec<LogUnit> = readable.iter().map(|(run, unit)| log_unit(run, unit)).collect();
    let shown = units.iter().position(|unit| Some(unit) == wanted).or_else(|| telling(&readable));
    let none = || CliError::failed(format!("no unit of {target} has a log yet"));
    let shown = shown.ok_or_else(none)?;
    let LogUnit { run, unit, .. } = &units[shown];
    let (attempt, text) = match client.log(run, unit, None).await? {
        Some(tail) => (tail.attempt, logs::clean(&tail.text())),
        None => (None, String::new()),
    };
    let attempt = attempt.unwrap_or(readable[shown].1.attempt);
    Ok(ShownLog { phase: seen.info.phase, units, shown, attempt, text })
}

fn log_unit(run: &RunDetail, unit: &UnitDetail) -> LogUnit {
    LogUnit { run: run.id.clone(), hook: run.hook.clone(), unit: unit.key.clone() }
}

/// Returns the units whose log may be read, in the order of the runs.
fn readable(seen: &TargetDetail) -> Vec<(&RunDetail, &UnitDetail)> {
    let units = seen.runs.iter().flat_map(|run| run.units.iter().map(move |unit| (run, unit)));
    units.filter(|(_, unit)| unit.log || is_started_script(unit)).collect()
}

fn is_started_script(unit: &UnitDetail) -> bool {
    unit.kind == "pod" && !matches!(unit.state, UnitState::Waiting | UnitState::Blocked | UnitState::Skipped)
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
