//! Progress as a tree of units, for terminals.

use std::collections::BTreeMap;

use console::{measure_text_width, truncate_str};
use ebb_protocol::api::{RunDetail, RunState, UnitDetail, UnitState};
use jiff::Timestamp;

use super::{TargetView, labels};
use crate::timing;

/// The style of the signs for states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateMarks {
    Signs,
    /// Signs without colour.
    Plain,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScreenSize {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// Returns the lines of a view. If there are more units than lines, those of least interest are counted.
pub(crate) fn tree(view: &TargetView, now: Timestamp, size: ScreenSize, marks: StateMarks) -> Vec<String> {
    let since = timing::since(&view.since, now).map(|time| format!(" for {}", timing::length(time)));
    let mut lines = vec![format!("{}  {}{}", view.target, labels::phase(view.phase), since.unwrap_or_default())];
    let old = view.runs.len().saturating_sub(1);
    for (number, run) in view.runs.iter().enumerate() {
        let ended = run.state == RunState::Succeeded;
        if number < old && ended {
            lines.push(format!("{}  {}", run.hook, counted(&run.units)));
            continue;
        }
        lines.push(format!("{}  {}", run.hook, labels::run(run.state)));
        let after = view.runs.len() - number - 1;
        let free = size.height.saturating_sub(lines.len() + after).max(3);
        lines.extend(units(view, run, now, free, marks));
    }
    lines.into_iter().map(|line| truncate_str(&line, size.width, "…").into_owned()).collect()
}

fn units(view: &TargetView, run: &RunDetail, now: Timestamp, free: usize, marks: StateMarks) -> Vec<String> {
    let shown: Vec<&UnitDetail> = if run.units.len() <= free {
        run.units.iter().collect()
    } else {
        let mut all: Vec<(usize, &UnitDetail)> = run.units.iter().enumerate().collect();
        all.sort_by_key(|(position, unit)| (interest(unit.state), *position));
        all.truncate(free.saturating_sub(1));
        all.sort_by_key(|(position, _)| *position);
        all.into_iter().map(|(_, unit)| unit).collect()
    };
    let key_width = shown.iter().map(|unit| measure_text_width(&unit.key)).max().unwrap_or_default();
    let mut lines = Vec::with_capacity(shown.len() + 1);
    let hidden = run.units.len() > shown.len();
    for (number, unit) in shown.iter().enumerate() {
        let branch = if number + 1 == shown.len() && !hidden { "└" } else { "├" };
        let waiting = labels::waiting_for(unit, &run.units);
        let state = labels::unit(unit, &waiting, now);
        let status = if unit.state == UnitState::Running { view.status_of(run, unit) } else { None };
        let status = status.map(|line| format!("  │ {}", line.trim_end())).unwrap_or_default();
        let mark = mark(unit.state, marks);
        lines.push(format!("{branch} {mark} {:<key_width$}  {state}{status}", unit.key));
    }
    if hidden {
        lines.push(format!("└ of {}: {}", run.units.len(), counted(&run.units)));
    }
    lines
}

/// Returns the rank of a state; low ranks are shown first.
fn interest(state: UnitState) -> u8 {
    match state {
        UnitState::Failed => 0,
        UnitState::Retrying => 1,
        UnitState::Running => 2,
        UnitState::Cancelled => 3,
        UnitState::Waiting => 4,
        UnitState::Blocked => 5,
        UnitState::Succeeded => 6,
        UnitState::Skipped => 7,
    }
}

/// Returns the units per state, such as `3 succeeded, 1 failed`.
pub(crate) fn counted(units: &[UnitDetail]) -> String {
    let mut counts: BTreeMap<u8, (&str, usize)> = BTreeMap::new();
    for unit in units {
        let word = match unit.state {
            UnitState::Waiting => "waiting",
            UnitState::Running => "running",
            UnitState::Retrying => "retrying",
            UnitState::Succeeded => "succeeded",
            UnitState::Skipped => "skipped",
            UnitState::Failed => "failed",
            UnitState::Blocked => "blocked",
            UnitState::Cancelled => "cancelled",
        };
        counts.entry(interest(unit.state)).or_insert((word, 0)).1 += 1;
    }
    let counts: Vec<String> = counts.values().map(|(word, count)| format!("{count} {word}")).collect();
    if counts.is_empty() { "no units".to_owned() } else { counts.join(", ") }
}

fn mark(state: UnitState, marks: StateMarks) -> String {
    let (sign, colour) = match state {
        UnitState::Waiting => ("○", console::Color::Color256(245)),
        UnitState::Running => ("●", console::Color::Cyan),
        UnitState::Retrying => ("↻", console::Color::Yellow),
        UnitState::Succeeded => ("✓", console::Color::Green),
        UnitState::Skipped => ("–", console::Color::Color256(245)),
        UnitState::Failed => ("✗", console::Color::Red),
        UnitState::Blocked => ("⊘", console::Color::Color256(245)),
        UnitState::Cancelled => ("■", console::Color::Yellow),
    };
    match marks {
        StateMarks::Signs => console::style(sign).fg(colour).force_styling(true).to_string(),
        StateMarks::Plain => sign.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures::{NOW, busy, wide};

    fn drawn(view: &TargetView, width: usize, height: usize) -> String {
        tree(view, NOW.parse().unwrap(), ScreenSize { width, height }, StateMarks::Plain).join("\n")
    }

    #[test]
    fn a_tree_of_units() {
        insta::assert_snapshot!(drawn(&busy(), 120, 30));
    }

    #[test]
    fn a_tree_that_is_too_wide_is_cut() {
        let text = drawn(&busy(), 40, 30);
        assert!(text.lines().all(|line| measure_text_width(line) <= 40), "{text}");
    }

    #[test]
    fn a_tree_that_is_too_high_shows_failures_first() {
        let text = drawn(&wide(1000), 100, 10);
        assert_eq!(text.lines().count(), 10, "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn colours_only_colour() {
        let now = NOW.parse().unwrap();
        let size = ScreenSize { width: 200, height: 50 };
        let coloured = tree(&busy(), now, size, StateMarks::Signs).join("\n");
        assert!(coloured.contains("\u{1b}["));
        assert_eq!(console::strip_ansi_codes(&coloured), tree(&busy(), now, size, StateMarks::Plain).join("\n"));
    }
}
