//! Progress as a tree of units, for terminals.

use console::{measure_text_width, truncate_str};
use ebb_protocol::{RunDetail, RunState, TargetDetail, UnitDetail, UnitState, words};
use jiff::Timestamp;

use super::labels;
use crate::{printable, timing};

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScreenSize {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// Returns the lines of a view, with colours if standard error has colours. If there are more units than lines, the least
/// important units are only counted.
pub(crate) fn tree(view: &TargetDetail, now: Timestamp, size: ScreenSize) -> Vec<String> {
    let info = &view.info;
    let since = timing::since(&info.since, now).map(|time| format!(" for {}", timing::length(time)));
    let since = since.unwrap_or_default();
    let mut lines = vec![printable(&format!("{}/{}  {}{since}", info.kind, info.name, labels::name(&info.phase)))];
    lines.extend(view.outage.as_ref().map(labels::outage));
    let old = view.runs.len().saturating_sub(1);
    for (number, run) in view.runs.iter().enumerate() {
        let ended = run.state == RunState::Succeeded;
        if number < old && ended {
            lines.push(printable(&format!("{}  {}", run.hook, words::unit_counts(&run.units))));
            continue;
        }
        lines.push(printable(&format!("{}  {}", run.hook, labels::name(&run.state))));
        let after = view.runs.len() - number - 1;
        let free = size.height.saturating_sub(lines.len() + after).max(3);
        lines.extend(units(run, now, free));
    }
    lines.into_iter().map(|line| truncate_str(&line, size.width, "…").into_owned()).collect()
}

fn units(run: &RunDetail, now: Timestamp, free: usize) -> Vec<String> {
    let shown: Vec<&UnitDetail> = if run.units.len() <= free {
        run.units.iter().collect()
    } else {
        let mut all: Vec<(usize, &UnitDetail)> = run.units.iter().enumerate().collect();
        all.sort_by_key(|(position, unit)| (look(unit.state).0, *position));
        all.truncate(free.saturating_sub(1));
        all.sort_by_key(|(position, _)| *position);
        all.into_iter().map(|(_, unit)| unit).collect()
    };
    let key_width = shown.iter().map(|unit| measure_text_width(&unit.key)).max().unwrap_or_default();
    let mut lines = Vec::with_capacity(shown.len() + 1);
    let hidden = run.units.len() > shown.len();
    for (number, unit) in shown.iter().enumerate() {
        let branch = if number + 1 == shown.len() && !hidden { "└" } else { "├" };
        let state = printable(&labels::unit(unit, &run.units, now));
        let (_, sign, colour) = look(unit.state);
        let sign = console::style(sign).color256(colour).for_stderr();
        lines.push(format!("{branch} {sign} {:<key_width$}  {state}", printable(&unit.key)));
    }
    if hidden {
        lines.push(format!("└ of {}: {}", run.units.len(), words::unit_counts(&run.units)));
    }
    lines
}

/// Returns the rank of a state with its sign and colour. Low ranks are shown first.
fn look(state: UnitState) -> (u8, &'static str, u8) {
    const RED: u8 = 1;
    const GREEN: u8 = 2;
    const YELLOW: u8 = 3;
    const CYAN: u8 = 6;
    const GREY: u8 = 245;
    match state {
        UnitState::Failed => (0, "✗", RED),
        UnitState::Retrying => (1, "↻", YELLOW),
        UnitState::Running => (2, "●", CYAN),
        UnitState::Cancelled => (3, "■", YELLOW),
        UnitState::Waiting => (4, "○", GREY),
        UnitState::Blocked => (5, "⊘", GREY),
        UnitState::Succeeded => (6, "✓", GREEN),
        UnitState::Skipped => (7, "–", GREY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures::{NOW, target, wide};

    fn drawn(view: &TargetDetail, width: usize, height: usize) -> String {
        console::set_colors_enabled_stderr(false);
        tree(view, NOW.parse().unwrap(), ScreenSize { width, height }).join("\n")
    }

    #[test]
    fn an_outage_follows_the_phase() {
        let text = drawn(&target("outage"), 120, 30);
        assert!(text.lines().nth(1).unwrap().starts_with("cluster eu has not responded since "), "{text}");
    }

    #[test]
    fn a_tree_that_is_too_wide_is_truncated() {
        let text = drawn(&target("busy"), 40, 30);
        assert!(text.lines().all(|line| measure_text_width(line) <= 40), "{text}");
    }

    #[test]
    fn a_tree_that_is_too_high_shows_failures_first() {
        let text = drawn(&wide(1000), 100, 10);
        assert_eq!(text.lines().count(), 10, "{text}");
        insta::assert_snapshot!(text);
    }
}
