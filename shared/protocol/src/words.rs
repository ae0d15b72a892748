//! What states, waits, reasons and evidence are called: plain sentences that clients lay out.
//!
//! A text has no character that could control a terminal or hide a text. Its times have the form of the API; [`times`] finds
//! them, so that a client can show them in a form of its own.

mod advice;
pub mod commands;
mod diagnosis;

use serde::Serialize;

use crate::{
    AwaitedParty, Certainty, DecidingEvent, FailureReason, ObjectStatus, OpenUnits, OutputValue, ReasonCode,
    RelayOutage, RemovalEvidence, TargetInfo, TargetStopCause, TargetWait, UnitDetail, UnitState, UnitWait,
    WaitResolution, WaitingParty, limits, parse_rfc3339,
};

pub use advice::TargetSituation;
pub use diagnosis::{DiagnosisLine, DiagnosisPart, DiagnosisSection, diagnosis};

/// The states of units, those that need attention first.
const BY_ATTENTION: [UnitState; 8] = [
    UnitState::Failed,
    UnitState::Retrying,
    UnitState::Running,
    UnitState::Cancelled,
    UnitState::Waiting,
    UnitState::Blocked,
    UnitState::Succeeded,
    UnitState::Skipped,
];
/// Maximum names in a sentence.
pub const NAMED: usize = 3;

/// Returns the name of a state, or of a class of failures, in the API.
pub fn name(state: &impl Serialize) -> String {
    serde_json::to_value(state).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
}

/// Returns a text of others on one line, so that it cannot forge other lines. The lines are joined by `; `.
pub fn one_line(text: &str) -> String {
    limits::printable(&text.trim_end().split('\n').map(str::trim).collect::<Vec<_>>().join("; "))
}

/// Returns a value on one line. Control characters are escaped as in JSON.
pub fn quoted(text: &str) -> String {
    if text.chars().any(char::is_control) {
        serde_json::Value::String(text.to_owned()).to_string()
    } else {
        text.to_owned()
    }
}

/// Returns the first names of `count` ones, such as `a, b, c and 27 more`.
pub fn named<T: AsRef<str>>(names: &[T], count: usize) -> String {
    first_named(names, NAMED, count)
}

/// Returns at most `most` names of `count` ones, in the form of [`named`].
pub fn first_named<T: AsRef<str>>(names: &[T], most: usize, count: usize) -> String {
    let shown: Vec<String> = names.iter().take(most).map(|name| one_line(name.as_ref())).collect();
    match count.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Splits a text at its times, which are words in the form of the API. A part is a time if its flag is true.
pub fn times(text: &str) -> Vec<(&str, bool)> {
    let mut parts = Vec::new();
    for word in text.split_inclusive(' ') {
        let time = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if time.is_empty() || parse_rfc3339(time).is_none() {
            parts.push((word, false));
            continue;
        }
        let begin = word.find(time).unwrap_or_default();
        parts.extend([(&word[..begin], false), (time, true), (&word[begin + time.len()..], false)]);
    }
    parts
}

/// Returns ` since TIME`, or nothing without a time.
fn since(time: Option<&String>) -> String {
    time.map(|time| format!(" since {time}")).unwrap_or_default()
}

/// Returns notes about a target: `expired`, `overridden`, `3 unconfirmed`, `usable`.
pub fn target_notes(target: &TargetInfo) -> Vec<String> {
    let expired = (target.stop_cause == Some(TargetStopCause::Expired)).then(|| "expired".to_owned());
    let remaining = match (target.overridden, target.unconfirmed) {
        (true, _) => Some("overridden".to_owned()),
        (false, 0) => None,
        (false, count) => Some(format!("{count} unconfirmed")),
    };
    expired.into_iter().chain(remaining).chain(target.usable.then(|| "usable".to_owned())).collect()
}

/// Returns a reason, with its class in the words of `retry.on` unless the message implies it.
pub fn reason(FailureReason { code, message }: &FailureReason) -> String {
    let message = limits::printable(message.trim()).replace('\n', " ");
    match (message.as_str(), code) {
        ("", code) => name(code),
        (_, ReasonCode::Failed | ReasonCode::Skipped | ReasonCode::Overridden | ReasonCode::Cancelled) => message,
        (_, code) => format!("{message} ({})", name(code)),
    }
}

/// Returns the number of an attempt of at most `max` ones, as [`attempt`] does.
pub fn attempt_number(attempt: u32, in_series: u32, max: u32) -> String {
    match attempt == in_series {
        true => format!("{attempt} of {max}"),
        false => format!("{attempt} ({in_series} of {max} since the retry)"),
    }
}

/// Returns an attempt of at most `max` ones, such as `attempt 2/3`, or `attempt 7 (1 of 3 since the retry)` after a retry by an
/// operator. The first number is that of its log.
pub fn attempt(attempt: u32, in_series: u32, max: Option<u32>) -> String {
    match (attempt == in_series, max) {
        (true, Some(max)) => format!("attempt {attempt}/{max}"),
        (true, None) => format!("attempt {attempt}"),
        (false, Some(max)) => format!("attempt {}", attempt_number(attempt, in_series, max)),
        (false, None) => format!("attempt {attempt} ({in_series} since the retry)"),
    }
}

/// Returns who ends a wait, or nothing if it ends by itself.
pub fn resolution(resolves: WaitResolution) -> &'static str {
    match resolves {
        WaitResolution::Itself => "",
        WaitResolution::Person => " (a person has to end this)",
        WaitResolution::Never => " (as written, it never becomes ready)",
    }
}

/// Returns a wait with its start, the time at which it fails, and who ends it.
fn wait(reason: &str, begin: Option<&String>, fails_at: Option<&String>, resolves: WaitResolution) -> String {
    let fails = fails_at.map(|time| format!(", fails at {time} unless this ends")).unwrap_or_default();
    format!("{}{}{fails}{}", one_line(reason), since(begin), resolution(resolves))
}

pub fn unit_wait(UnitWait { object, message, since, fails_at, resolves, .. }: &UnitWait) -> String {
    format!("{}: {}", one_line(object), wait(message, since.as_ref(), fails_at.as_ref(), *resolves))
}

/// Returns open units, and what they do or wait for.
pub fn open_units(open: &OpenUnits) -> (String, String) {
    let OpenUnits { units, count, reason, since, fails_at, resolves, .. } = open;
    (named(units, *count), wait(reason, since.as_ref(), fails_at.as_ref(), *resolves))
}

/// Returns the party that waits, such as `update 4`.
pub fn waiter(TargetWait { waiter, waiter_name, .. }: &TargetWait) -> String {
    name(waiter) + &waiter_name.as_deref().map(|named| format!(" {}", one_line(named))).unwrap_or_default()
}

/// Returns the party that is awaited, such as `units of preStart`, with its last error.
pub fn awaited(TargetWait { awaits, awaited_name, reason, .. }: &TargetWait) -> String {
    let named = one_line(awaited_name.as_deref().unwrap_or_default());
    let party = match awaits {
        AwaitedParty::Units => format!("units of {named}"),
        AwaitedParty::Platform => format!("the platform, for the notification {named}"),
        AwaitedParty::Operator => "an operator".to_owned(),
        AwaitedParty::Instance => format!("instance {named}"),
    };
    party + &reason.as_deref().map(|why| format!(": {}", one_line(why))).unwrap_or_default()
}

/// Returns a wait: the waiting and the awaited party, the start, and the event that ends it.
pub fn target_wait(wait: &TargetWait) -> String {
    let (waiter, awaited, since) = (waiter(wait), awaited(wait), since(wait.since.as_ref()));
    format!("{waiter} waits{since} for {awaited}, until {}", one_line(&wait.release))
}

/// Returns what a target waits for, and who waits for it. Returns `None` without a wait.
pub fn waits_for(waits: &[TargetWait]) -> Option<String> {
    let text = |wait: &TargetWait| match wait.waiter {
        WaitingParty::Target => awaited(wait),
        _ => format!("{} waits for {}", waiter(wait), awaited(wait)),
    };
    (!waits.is_empty()).then(|| waits.iter().map(text).collect::<Vec<_>>().join("; "))
}

/// Returns the silence of a cluster without its name: its start, its reason and the units that wait.
pub fn silence(RelayOutage { since, reason, units, .. }: &RelayOutage) -> String {
    let waiting =
        if units.is_empty() { String::new() } else { format!("; waiting units: {}", named(units, units.len())) };
    format!("has not responded since {since}: {}{waiting}", one_line(reason))
}

/// Returns the event of a source that decided, without the name of the source.
pub fn deciding_event(DecidingEvent { delivery, time, outcome, .. }: &DecidingEvent) -> String {
    let effect = outcome.as_ref().map(|outcome| format!(": {}", one_line(&outcome.detail))).unwrap_or_default();
    format!("event {} of {time}{effect}", one_line(delivery))
}

pub fn object_state(ObjectStatus { state, reason, .. }: &ObjectStatus) -> String {
    name(state) + &reason.as_deref().map(|why| format!(": {}", one_line(why))).unwrap_or_default()
}

/// Returns the numbers of units by state, such as `1 failed, 3 succeeded`.
pub fn unit_counts(units: &[UnitDetail]) -> String {
    let count = |state: UnitState| units.iter().filter(|unit| unit.state == state).count();
    let counts = BY_ATTENTION.map(|state| (count(state), state)).into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, state)| format!("{count} {}", name(&state))).collect();
    if counts.is_empty() { "no units".to_owned() } else { counts.join(", ") }
}

/// Returns a count, such as `1 unit` or `2 units`.
pub fn units(count: usize) -> String {
    if count == 1 { "1 unit".to_owned() } else { format!("{count} units") }
}

pub fn certainty(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Exists => "exists",
        Certainty::Possible => "may exist",
    }
}

/// Returns what answered a removal, or nothing without an answer.
pub fn removal_answer(RemovalEvidence { asked, answered, .. }: &RemovalEvidence) -> String {
    match (asked, answered) {
        (Some(asked), Some(answered)) => format!("{} was answered {}", one_line(asked), one_line(answered)),
        (None, Some(answered)) => one_line(answered),
        (_, None) => String::new(),
    }
}

/// Returns an output as text, and true if the text is not its value.
pub fn output(value: &OutputValue) -> (String, bool) {
    match value {
        OutputValue::Value(serde_json::Value::String(text)) => (text.clone(), false),
        OutputValue::Value(json) => (json.to_string(), false),
        OutputValue::Base64(text) => (format!("base64:{text}"), false),
        OutputValue::Secret(secret) => {
            let namespace = secret.namespace.as_deref().map(|name| format!("{name}/")).unwrap_or_default();
            (format!("secret {namespace}{} key {}", secret.name, secret.key), true)
        }
        OutputValue::Sensitive(_) => ("(sensitive)".to_owned(), true),
    }
}

#[cfg(test)]
mod tests;
