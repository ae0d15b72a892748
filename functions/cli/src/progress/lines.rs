//! Progress as one line per change, for outputs that are not a terminal.

use ebb_protocol::{RunDetail, RunState, TargetDetail, TargetPhase, UnitDetail, UnitState, words};
use jiff::Timestamp;

use super::labels;
use crate::{printable, timing};

/// Returns the changes between two views. Without `before`, all of `after` is new.
pub(crate) fn changes(before: Option<&TargetDetail>, after: &TargetDetail, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    let info = &after.info;
    let phase = format!("{}/{}  {}", info.kind, info.name, labels::name(&info.phase));
    let changed = before.map(|view| view.info.phase) != Some(info.phase);
    // The line of a phase precedes the runs that it starts, and follows those that it ends.
    let begins = matches!(info.phase, TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping);
    if changed && begins {
        lines.push(phase.clone());
    }
    match (before.and_then(|view| view.outage.as_ref()), &after.outage) {
        (before, Some(outage)) if before != Some(outage) => lines.push(labels::outage(outage)),
        (Some(ended), None) => lines.push(format!("the wait for cluster {} has ended", printable(&ended.cluster))),
        _ => {}
    }
    for (position, run) in after.runs.iter().enumerate() {
        let old = before.and_then(|view| view.runs.iter().find(|old| old.id == run.id));
        let begun = old.is_none();
        if before.is_none() && !is_open(run) {
            // The run ended before the watch started. Of several updates, only the last one is shown.
            if !after.runs[position + 1..].iter().any(|later| later.hook == run.hook) {
                lines.push(ended(run));
            }
            continue;
        }
        if begun {
            lines.push(format!("{}  begins: {}", run.hook, words::units(run.units.len())));
        }
        lines.extend(of_units(old, run, now));
        if old.map(|run| run.state) != Some(run.state) && !(begun && is_open(run)) {
            lines.push(ended(run));
        }
    }
    if changed && !begins {
        lines.push(phase);
    }
    lines
}

fn ended(run: &RunDetail) -> String {
    format!("{}  {}: {}", run.hook, labels::name(&run.state), words::unit_counts(&run.units))
}

fn is_open(run: &RunDetail) -> bool {
    run.state == RunState::Running
}

fn of_units(before: Option<&RunDetail>, after: &RunDetail, now: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    for (position, unit) in after.units.iter().enumerate() {
        let old = before.and_then(|run| run.units.get(position)).filter(|old| old.key == unit.key);
        let (state, attempt) = old.map_or((UnitState::Waiting, 1), |old| (old.state, old.attempt));
        if (state, attempt) == (unit.state, unit.attempt) && !has_news(old, unit) {
            continue;
        }
        lines.push(format!("{}  {}  {}", after.hook, unit.key, labels::unit(unit, &after.units, now)));
    }
    lines
}

/// Returns true if a unit has another progress, waits for something else, or has no heartbeat any more. Views have late
/// heartbeats only.
fn has_news(before: Option<&UnitDetail>, after: &UnitDetail) -> bool {
    let wait = wait_of(after);
    let is_silent = |unit: &UnitDetail| unit.heartbeat.is_some();
    (wait.is_some() && wait != before.and_then(wait_of))
        || (after.progress.is_some() && before.is_none_or(|before| before.progress != after.progress))
        || (is_silent(after) && !before.is_some_and(is_silent))
}

/// Returns the object and the reason that a unit waits for.
fn wait_of(unit: &UnitDetail) -> Option<(&str, &str)> {
    let wait = labels::first_wait(unit)?;
    Some((wait.object.as_str(), wait.message.as_str()))
}

/// Prefixes a line with the time since the start of the command.
pub(crate) fn stamped(line: &str, elapsed: std::time::Duration) -> String {
    format!("[{:>6}] {line}", timing::length(elapsed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures::{NOW, rows, target, waiting};

    /// Returns a view by its name, or that of a wait by its message.
    fn view(name: &str) -> TargetDetail {
        match name {
            "busy" | "done" | "outage" | "progress" | "silent" => target(name),
            "updates" => {
                let (mut view, ended) = (target("busy"), target("done").runs.remove(0));
                let update = |id: &str| RunDetail { id: id.to_owned(), hook: "update".to_owned(), ..ended.clone() };
                drop(view.runs.splice(0..0, [update("k3-1-update-1"), update("k3-1-update-2")]));
                view
            }
            message => waiting(message),
        }
    }

    #[test]
    fn only_changes_make_lines() {
        for (before, after, expected) in rows::<(Option<String>, String, Vec<String>)>("only_changes_make_lines") {
            let known = before.as_deref().map(view);
            let lines = changes(known.as_ref(), &view(&after), NOW.parse().unwrap());
            assert_eq!(lines, expected, "{before:?} {after}");
        }
    }

    #[test]
    fn lines_have_the_elapsed_time() {
        assert_eq!(stamped("x", std::time::Duration::from_millis(3210)), "[  3.2s] x");
    }
}
