//! States and reasons as text.

use std::time::Duration;

use ebb_protocol::api::{AttemptDetail, RelayOutage, TargetInfo, TargetPhase, UnitDetail, UnitState, UnitWait};
use ebb_protocol::{WaitResolution, words};
use jiff::Timestamp;

use crate::{joined_lines, printable, timing};

pub(crate) use ebb_protocol::words::{name, reason, resolution};

/// The age from which a heartbeat is late. Scripts in clusters send one every 15 s.
const LATE: Duration = Duration::from_secs(45);

/// Returns the phase of a target, with notes about its end, such as `gone (expired)`.
pub(crate) fn target_state(target: &TargetInfo) -> String {
    let (phase, notes) = (target.phase.name(), words::target_notes(target));
    if notes.is_empty() { phase.to_owned() } else { format!("{phase} ({})", notes.join(", ")) }
}

/// Returns the phase of a target after its name in a sentence, such as `is ready`.
pub(crate) fn stands(phase: TargetPhase) -> String {
    format!("{} {}", phase.verb(), phase.name())
}

/// Returns the warning about a target that can be used although its postStart has failed.
pub(crate) fn failed_after_ready(target: &TargetInfo) -> Option<String> {
    let cause = target.first_cause.as_deref().map(|cause| format!(": {}", printable(cause))).unwrap_or_default();
    target.usable.then_some(format!("warning: postStart of {}/{} has failed{cause}", target.kind, target.name))
}

/// Returns the state of a unit of a run, with its reason, its start and its deadline.
pub(crate) fn unit(unit: &UnitDetail, units: &[UnitDetail], now: Timestamp) -> String {
    let waiting_for = waiting_for(unit, units);
    let number = words::attempt(unit.attempt, unit.attempt_in_series, Some(unit.max_attempts));
    let attempts = if unit.max_attempts > 1 { format!(", {number}") } else { String::new() };
    let until = |at: Option<&str>| timing::until(at?, now).map(timing::length);
    match unit.state {
        UnitState::Waiting if waiting_for.is_empty() => "ready to dispatch".to_owned(),
        UnitState::Waiting => format!("waits for {}", words::named(&waiting_for, waiting_for.len())),
        UnitState::Running => {
            let since = unit.started.as_deref().and_then(|at| timing::since(at, now));
            let since = since.map_or("sent".to_owned(), |time| format!("running {}", timing::length(time)));
            let next = until(unit.next.as_deref()).map(|time| format!(", next request in {time}"));
            let left = until(unit.deadline.as_deref()).map(|time| format!(", at most {time} more"));
            let silent = late_heartbeat(unit, now).map(|age| format!(", no heartbeat for {}", timing::length(age)));
            let progress = unit.progress.as_deref().map(|line| format!(": {}", printable(line)));
            let objects = unit.objects.filter(|objects| objects.total > 1);
            let objects = objects.map(|count| format!(", {} of {} objects are ready", count.ready, count.total));
            let wait = first_wait(unit).map(|waits| format!(", waits: {}", wait(waits, now)));
            let parts = [next, left, silent, progress, objects, wait].map(Option::unwrap_or_default).concat();
            format!("{since}{attempts}{parts}")
        }
        UnitState::Retrying => {
            let next = until(unit.next.as_deref()).map_or("soon".to_owned(), |time| format!("in {time}"));
            let after = unit.reason.as_ref().map(|cause| format!(", after: {}", reason(cause)));
            format!("{number} {next}{}", after.unwrap_or_default())
        }
        UnitState::Succeeded => {
            let attempts = if unit.attempt > 1 { attempts } else { String::new() };
            format!("succeeded{}{attempts}", took(unit))
        }
        UnitState::Skipped => format!("skipped{}", why(unit)),
        UnitState::Failed => {
            let tolerated = if unit.tolerated { " (tolerated)" } else { "" };
            format!("failed{tolerated}{}{attempts}{}", took(unit), why(unit))
        }
        UnitState::Blocked => {
            let waits = unit.reason.is_none() && !waiting_for.is_empty();
            let waits = waits.then(|| format!(": waits for {}", words::named(&waiting_for, waiting_for.len())));
            format!("blocked{}", waits.unwrap_or_else(|| why(unit)))
        }
        UnitState::Cancelled => format!("cancelled{}{}", took(unit), why(unit)),
    }
}

/// Returns the age of the last heartbeat of a script, if it is late. Receivers of webhooks send theirs when they want.
pub(crate) fn late_heartbeat(unit: &UnitDetail, now: Timestamp) -> Option<Duration> {
    timing::since(unit.heartbeat.as_deref()?, now).filter(|age| unit.kind == "pod" && *age > LATE)
}

/// Returns the wait of a unit that a person has to end, or else its first wait.
pub(crate) fn first_wait(unit: &UnitDetail) -> Option<&UnitWait> {
    unit.waits.iter().find(|wait: &&UnitWait| wait.resolves != WaitResolution::Itself).or(unit.waits.first())
}

/// Returns a wait, such as `Deployment units/web: image "x" cannot be pulled for 12.0s, fails in 48.0s unless this ends`.
pub(crate) fn wait(UnitWait { object, message, since, fails_at, .. }: &UnitWait, now: Timestamp) -> String {
    let since = since.as_deref().and_then(|at| timing::since(at, now));
    let since = since.map(|time| format!(" for {}", timing::length(time))).unwrap_or_default();
    let fails = fails_at.as_deref().and_then(|at| timing::until(at, now));
    let fails = fails.map(|time| format!(", fails in {} unless this ends", timing::length(time))).unwrap_or_default();
    format!("{}: {}{since}{fails}", printable(object), joined_lines(message))
}

/// Returns an outage of a cluster, with its start, its reason and the units that wait.
pub(crate) fn outage(outage: &RelayOutage) -> String {
    format!("cluster {} {}", printable(&outage.cluster), timing::clocks(&words::silence(outage)))
}

/// Returns an attempt before the last one, such as `attempt 1 failed in 2.0s at 2026-11-21 09:00:02Z: exit code 3`.
pub(crate) fn earlier_attempt(attempt: &AttemptDetail) -> String {
    let AttemptDetail { attempt: number, attempt_in_series, state, started, ended, duration_ms, reason: cause, .. } =
        attempt;
    let took = time_between(started.as_deref(), ended.as_deref(), *duration_ms);
    let ended = ended.as_deref().map(|at| format!(" at {}", timing::clock(at))).unwrap_or_default();
    let cause = cause.as_ref().map(|cause| format!(": {}", reason(cause))).unwrap_or_default();
    format!("{} {}{took}{ended}{cause}", words::attempt(*number, *attempt_in_series, None), name(state))
}

fn why(unit: &UnitDetail) -> String {
    unit.reason.as_ref().map(|cause| format!(": {}", reason(cause))).unwrap_or_default()
}

fn took(unit: &UnitDetail) -> String {
    time_between(unit.started.as_deref(), unit.ended.as_deref(), unit.duration_ms)
}

/// Returns how long an attempt took, after the word `in`, if that is known.
fn time_between(started: Option<&str>, ended: Option<&str>, duration_ms: Option<u64>) -> String {
    let lasted = || timing::since(started?, ended?.parse().ok()?);
    let took = duration_ms.map(Duration::from_millis).or_else(lasted);
    took.map(|time| format!(" in {}", timing::length(time))).unwrap_or_default()
}

fn waiting_for<'a>(unit: &'a UnitDetail, units: &[UnitDetail]) -> Vec<&'a str> {
    let settled = |key: &str| units.iter().any(|other| other.key == key && other.lets_pass());
    unit.after.iter().map(String::as_str).filter(|key| !settled(key)).collect()
}
