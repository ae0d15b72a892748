//! Formats the diagnosis of a target as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ebb_protocol::api::{
    Certainty, DecidingEvent, OpenUnits, ResourceDetail, RootCause, TargetDiagnosis, TargetState, TargetWait,
};
use ebb_protocol::callback::FailureReason;
use ebb_protocol::evidence::Evidence;
use ebb_protocol::lifecycle::OutputValue;
use ebb_protocol::removal::ResourceRemoval;

use crate::output::{joined_lines, printable};
use crate::progress::labels;
use crate::timing;

/// Maximum units that the line of a group names.
const NAMED: usize = 3;

/// Returns the diagnosis, as text that ends with a line break.
pub(crate) fn text(why: &TargetDiagnosis) -> String {
    let stands = if why.phase == TargetState::Failed { "has" } else { "is" };
    let (phase, summary) = (labels::name(&why.phase), timing::clocks(&printable(why.summary.trim())));
    // Some summaries begin with the phase.
    let summary = if summary.starts_with(&phase) { summary } else { format!("{phase}: {summary}") };
    let mut text = format!("{} {stands} {summary}\n", why.target);
    if let Some(event) = &why.decided_by {
        let _ = writeln!(text, "by {}", event_line(event));
    }
    if let Some(cause) = &why.cause {
        write_cause(&mut text, cause);
    }
    let shown: usize = why.open.iter().map(|open| open.count).sum();
    let more = why.open_units.checked_sub(shown).filter(|more| *more > 0);
    let more = more.map(|more| format!("{more} more units: `ebb get sandbox` shows each"));
    write_section(&mut text, "waits", why.open.iter().map(open_line).chain(more));
    write_section(&mut text, "other waits", TargetWait::of_others(&why.target_waits).map(labels::target_wait));
    let others = why.failed.iter().filter(|failed| why.cause.as_ref().is_none_or(|cause| cause.unit != failed.unit));
    let others = others.map(|it| {
        let retry = labels::after_retry(it.attempt, it.attempt_in_series);
        format!("{}, attempt {}{retry}: {}", it.unit, it.attempt_in_series, failure(&it.reason))
    });
    write_section(&mut text, "also failed", others);
    if !why.remaining.is_empty() {
        text.push_str("\nremaining resources\n");
        for existing in &why.remaining {
            let sure = match existing.certainty {
                Certainty::Exists => "exists",
                Certainty::Possible => "may exist",
            };
            let _ = writeln!(text, "  {}  {sure}", existing.unit);
            text.push_str(&value_lines("    ", &existing.outputs));
        }
    }
    write_section(&mut text, "removals", why.removals.iter().map(removal_line));
    write_section(&mut text, "warnings", why.notes.iter().map(|note| timing::clocks(&printable(note))));
    let steps = (1_usize..).zip(&why.next_steps);
    write_section(&mut text, "next steps", steps.map(|(number, step)| format!("{number}. {}", printable(step))));
    text
}

/// Writes a title and lines, or nothing without lines.
fn write_section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let lines: String = lines.map(|line| format!("  {line}\n")).collect();
    if !lines.is_empty() {
        let _ = write!(text, "\n{title}\n{lines}");
    }
}

/// Returns open units with what they wait for, since when, and what ends it, as one line.
pub(crate) fn open_line(open: &OpenUnits) -> String {
    let OpenUnits { units, count, reason, since, fails_at, resolves, .. } = open;
    let named: Vec<String> = units.iter().take(NAMED).map(|unit| printable(unit)).collect();
    let more = match count.saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let since = since.as_deref().map(|at| format!(" since {}", timing::clock(at))).unwrap_or_default();
    let fails = fails_at.as_deref().map(|at| format!(", fails at {} unless this ends", timing::clock(at)));
    let (fails, resolution) = (fails.unwrap_or_default(), labels::resolution(*resolves));
    format!("{}{more}  {}{since}{fails}{resolution}", named.join(", "), timing::clocks(&joined_lines(reason)))
}

fn failure(reason: &FailureReason) -> String {
    timing::clocks(&labels::reason(reason))
}

fn removal_line(ResourceRemoval { unit, by, evidence }: &ResourceRemoval) -> String {
    let by = by.as_ref().map(|undo| format!(" by {undo}")).unwrap_or_default();
    let answer = match (&evidence.asked, &evidence.answered) {
        (Some(asked), Some(answered)) => format!(": {} was answered {}", printable(asked), printable(answered)),
        (None, Some(answered)) => format!(": {}", printable(answered)),
        (_, None) => String::new(),
    };
    format!("{unit}  {}{by}{answer}", evidence.grade)
}

fn write_cause(text: &mut String, cause: &RootCause) {
    let retry = labels::after_retry(cause.attempt, cause.attempt_in_series);
    let _ =
        writeln!(text, "\nfirst cause: {}, attempt {}{retry} of {}", cause.unit, cause.attempt_in_series, cause.run);
    let _ = writeln!(text, "  {}", failure(&cause.reason));
    let _ = writeln!(text, "  at {}:{}:{}", printable(&cause.file), cause.line, cause.column);
    if let Some(evidence) = &cause.evidence {
        write_evidence(text, evidence);
    }
    if !cause.inputs.is_empty() {
        text.push_str("  inputs\n");
        for (name, value) in &cause.inputs {
            let _ = writeln!(text, "    {name} = {}", one_line(value));
        }
    }
    if !cause.log.is_empty() {
        let _ = writeln!(text, "  last {} of its log", lines(cause.log.len()));
        for line in &cause.log {
            let _ = writeln!(text, "    | {}", printable(line));
        }
    }
}

fn write_evidence(text: &mut String, evidence: &Evidence) {
    if let Some(damaged) = &evidence.damaged {
        let _ = writeln!(text, "  evidence is damaged: {}", printable(damaged));
        return;
    }
    let _ = writeln!(text, "  request  {} {}", printable(&evidence.method), printable(&evidence.url));
    let Some(status) = evidence.status else {
        text.push_str("  no response\n");
        return;
    };
    let kind = evidence.content_type.as_deref().map(|kind| format!(", {}", printable(kind))).unwrap_or_default();
    let _ = writeln!(text, "  response {status}{kind}");
    for line in evidence.body.iter().flat_map(|body| body.lines()) {
        let _ = writeln!(text, "    | {}", printable(line));
    }
    if evidence.truncated {
        text.push_str("    | …\n");
    }
}

fn lines(count: usize) -> String {
    if count == 1 { "line".to_owned() } else { format!("{count} lines") }
}

/// Returns the event of a source that decided as one line.
pub(crate) fn event_line(event: &DecidingEvent) -> String {
    let DecidingEvent { source, delivery, time, outcome } = event;
    let effect = outcome.as_ref().map(|outcome| format!(": {}", joined_lines(&outcome.detail)));
    let delivery = printable(delivery);
    format!("source {source}, event {delivery} of {}{}", timing::clock(time), effect.unwrap_or_default())
}

/// Returns an output as one line.
pub(crate) fn value_line(value: &OutputValue) -> String {
    match value {
        OutputValue::Value(serde_json::Value::String(text)) => one_line(text),
        OutputValue::Value(json) => json.to_string(),
        OutputValue::Base64(text) => format!("base64:{text}"),
        OutputValue::Secret(secret) => {
            let namespace = secret.namespace.as_deref().map(|name| format!("{name}/")).unwrap_or_default();
            format!("secret {namespace}{} key {}", secret.name, secret.key)
        }
        OutputValue::Sensitive(_) => "(sensitive)".to_owned(),
    }
}

/// Returns the outputs of resources, one per line: `resource.output = value`.
pub(crate) fn output_lines(resources: &BTreeMap<String, ResourceDetail>) -> String {
    resources.iter().map(|(name, resource)| value_lines(&format!("{name}."), &resource.outputs)).collect()
}

/// Returns values, one per line. The prefix precedes each name.
pub(crate) fn value_lines(prefix: &str, values: &BTreeMap<String, OutputValue>) -> String {
    values.iter().map(|(name, value)| format!("{prefix}{name} = {}\n", value_line(value))).collect()
}

/// Returns a text on one line. Control characters are escaped as in JSON.
fn one_line(text: &str) -> String {
    if text.chars().any(char::is_control) {
        serde_json::Value::String(text.to_owned()).to_string()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnosis_has_all_parts() {
        let why: TargetDiagnosis = serde_json::from_value(serde_json::json!({
            "target": "sandbox/pr-1",
            "phase": "failed",
            "summary": "db/seed failed after 3 attempts",
            "cause": {
                "run": "k3j2-1-pre-start", "unit": "db/seed", "attempt": 3, "attemptInSeries": 3,
                "reason": {"code": "exit", "message": "the script ended with code 7"},
                "file": "tenant-db@2.1.0", "line": 31, "column": 3,
                "inputs": {"dsn": "<sensitive>", "rows": "500", "sql": "select 1;\nselect 2;"},
                "log": ["connecting", "\u{1b}[31mrefused"],
            },
            "remaining": [
                {"unit": "db/provision", "certainty": "exists", "outputs": {"name": {"value": "tenant_k3"}}},
                {"unit": "db/seed", "certainty": "possible"},
            ],
            "removals": [
                {"unit": "db/user", "by": "db/drop-user", "grade": "unconfirmed",
                 "asked": "DELETE https://db.example.org/users/a", "answered": "404"},
                {"unit": "db/role", "by": "db/drop-role", "grade": "unconfirmed", "answered": "`when` is false"},
                {"unit": "db/cache", "by": "db/cache.removal", "grade": "confirmed"},
            ],
            "decidedBy": {
                "source": "previews", "delivery": "d-1", "time": "2026-11-21T08:59:00Z",
                "outcome": {"result": "starting", "detail": "starts"},
            },
            "nextSteps": ["ebb logs pr-1 --resource db --step seed", "ebb delete sandbox pr-1"],
        }))
        .unwrap();
        insta::assert_snapshot!(text(&why));
    }

    #[test]
    fn attempts_after_a_retry_are_counted_from_one() {
        let reason = serde_json::json!({"code": "exit", "message": "m"});
        let failed = |unit: &str, attempt: u32, number: u32| serde_json::json!({"unit": unit, "attempt": attempt, "attemptInSeries": number, "reason": reason});
        let why: TargetDiagnosis = serde_json::from_value(serde_json::json!({
            "target": "sandbox/pr-1", "phase": "stuck", "remaining": [], "nextSteps": [], "summary": "stuck",
            "failed": [failed("db/drop", 2, 2), failed("db/undo", 21, 1)],
        }))
        .unwrap();
        insta::assert_snapshot!(text(&why), @r"
        sandbox/pr-1 is stuck

        also failed
          db/drop, attempt 2: m (exit)
          db/undo, attempt 1 after a retry (`--attempt 21` in `ebb logs`): m (exit)
        ");
    }

    #[test]
    fn the_summary_of_a_waiting_target() {
        let why: TargetDiagnosis = serde_json::from_value(serde_json::json!({
            "target": "sandbox/pr-1", "phase": "starting", "remaining": [], "nextSteps": [],
            "summary": "db/seed runs since 2026-11-21T09:00:00Z, until 2026-11-21T09:05:00Z",
            "open": [
                {"units": ["db/web"], "count": 1, "state": "running", "reason": "Deployment units/web: no image",
                 "resolves": "person", "since": "2026-11-21T09:00:00Z", "failsAt": "2026-11-21T09:01:00Z"},
                {"units": ["db/a", "db/b", "db/c", "db/d"], "count": 30, "state": "waiting", "reason": "waits for db/web",
                 "resolves": "itself"},
            ],
            "openUnits": 33,
            "targetWaits": [
                {"waiter": "target", "awaits": "units", "awaitedName": "preStart", "release": "the units end"},
                {"waiter": "update", "waiterName": "4\nforged", "awaits": "units", "awaitedName": "preStart",
                 "since": "2026-11-21T09:00:03Z", "release": "the present run ends"},
            ],
        }))
        .unwrap();
        insta::assert_snapshot!(text(&why), @r"
        sandbox/pr-1 is starting: db/seed runs since 2026-11-21 09:00:00Z, until 2026-11-21 09:05:00Z

        waits
          db/web  Deployment units/web: no image since 2026-11-21 09:00:00Z, fails at 2026-11-21 09:01:00Z unless this ends (a person has to end this)
          db/a, db/b, db/c and 27 more  waits for db/web
          2 more units: `ebb get sandbox` shows each

        other waits
          update 4 forged waits for units preStart since 2026-11-21 09:00:03Z, until the present run ends
        ");
    }

    #[test]
    fn each_value_is_one_line() {
        let cases = [
            (serde_json::json!({"value": "plain"}), "plain"),
            (serde_json::json!({"value": "two\nlines"}), "\"two\\nlines\""),
            (serde_json::json!({"value": {"a": 1}}), "{\"a\":1}"),
            (serde_json::json!({"base64": "AAE="}), "base64:AAE="),
            (serde_json::json!({"secret": {"name": "s", "key": "k"}}), "secret s key k"),
            (serde_json::json!({"sensitive": true}), "(sensitive)"),
        ];
        for (json, line) in cases {
            let value: OutputValue = serde_json::from_value(json).unwrap();
            assert_eq!(value_line(&value), line);
        }
    }
}
