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
    use crate::progress::fixtures::{NOW, busy, done, outage, waiting};

    #[test]
    fn only_changes_make_lines() {
        let now = NOW.parse().unwrap();
        let first = busy();
        insta::assert_snapshot!(changes(None, &first, now).join("\n"));
        assert_eq!(changes(Some(&first), &first, now), Vec::<String>::new());
        insta::assert_snapshot!(changes(Some(&first), &done(), now).join("\n"));
    }

    #[test]
    fn a_line_for_each_reason_of_a_wait() {
        let now = NOW.parse().unwrap();
        let (first, pulled) =
            (waiting("image \"x\" cannot be pulled (ErrImagePull)"), waiting("no container is ready"));
        let text = changes(Some(&busy()), &first, now).join("\n");
        insta::assert_snapshot!(text, @r#"preStart  db/seed  running 4.5s, attempt 2/3, at most 4m55s more: inserting rows 2000-3000, waits: Deployment units/web: image "x" cannot be pulled (ErrImagePull) for 2.0s, fails in 58.0s unless this ends"#);
        assert_eq!(changes(Some(&first), &first, now), Vec::<String>::new());
        assert_eq!(changes(Some(&first), &pulled, now).len(), 1);
        assert_eq!(changes(Some(&pulled), &busy(), now), Vec::<String>::new());
    }

    #[test]
    fn a_line_for_each_progress_and_for_a_late_heartbeat() {
        let now = NOW.parse().unwrap();
        let (mut other, mut silent) = (busy(), busy());
        other.runs[0].units[1].progress = Some("inserting rows 3000-4000".to_owned());
        silent.runs[0].units[1].heartbeat = Some("2026-11-21T08:58:50Z".to_owned());
        let text = changes(Some(&busy()), &other, now).join("\n");
        insta::assert_snapshot!(text, @"preStart  db/seed  running 4.5s, attempt 2/3, at most 4m55s more: inserting rows 3000-4000");
        let text = changes(Some(&busy()), &silent, now).join("\n");
        insta::assert_snapshot!(text, @"preStart  db/seed  running 4.5s, attempt 2/3, at most 4m55s more, no heartbeat for 1m20s: inserting rows 2000-3000");
        assert_eq!(changes(Some(&silent), &silent, now), Vec::<String>::new());
        assert_eq!(changes(Some(&silent), &busy(), now), Vec::<String>::new());
    }

    #[test]
    fn a_line_for_the_begin_and_the_end_of_an_outage() {
        let now = NOW.parse().unwrap();
        let view = outage();
        let text = changes(Some(&busy()), &view, now).join("\n");
        insta::assert_snapshot!(text, @"cluster eu has not responded since 2026-11-21 09:00:06Z: it polls; waiting units: db/seed");
        assert_eq!(changes(Some(&view), &view, now), Vec::<String>::new());
        assert_eq!(changes(Some(&view), &busy(), now), ["the wait for cluster eu has ended"]);
    }

    #[test]
    fn earlier_runs_are_summarized() {
        let view = done();
        let text = changes(None, &view, NOW.parse().unwrap()).join("\n");
        insta::assert_snapshot!(text, @r"
        sandbox/pr-1  stopping
        preStart  failed: 1 failed, 1 blocked, 4 succeeded, 1 skipped
        postStop  begins: 1 unit
        postStop  db/drop  running 1.0s, attempt 1/3
        ");
    }

    #[test]
    fn earlier_updates_are_summarized_by_the_last_one() {
        let mut view = busy();
        let update = |id: &str| RunDetail { id: id.to_owned(), hook: "update".to_owned(), ..done().runs[0].clone() };
        drop(view.runs.splice(0..0, [update("k3-1-update-1"), update("k3-1-update-2")]));
        let lines = changes(None, &view, NOW.parse().unwrap());
        assert_eq!(lines.iter().filter(|line| line.starts_with("update  failed: ")).count(), 1, "{lines:?}");
    }

    #[test]
    fn lines_have_the_elapsed_time() {
        assert_eq!(stamped("x", std::time::Duration::from_millis(3210)), "[  3.2s] x");
    }
}
