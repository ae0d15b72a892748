//! The units of a run as rows on one time axis: attempts as bars, waits hatched, and a line from each unit that a unit comes
//! after. A row leads to the panel of its unit.

use std::collections::BTreeMap;

use ebb_protocol::{Millis, RunDetail, RunState, UnitDetail, UnitState, limits, parse_rfc3339, words};
use maud::{Markup, html};

use crate::{TargetView, paths, texts};

/// Maximum rows of a run, unless its units have pages.
const MAX_ROWS: usize = 60;
/// Maximum lines that lead to a row. Those of the units that ended last are drawn.
const MAX_EDGES: usize = 5;
/// Maximum names in the title of a row.
const MAX_AFTER: usize = 20;
/// The width of the axis, and the height of a row, in units of the picture. In the style, a row has the same height in pixels.
const WIDTH: u64 = 1_000;
const HEIGHT: usize = 32;
const LEAST: u64 = 4;
/// Maximum characters of a note in a row.
const NOTE: usize = 200;
const WAIT: &str = "wait";
/// The class of a time within which a unit ran at some time.
const WITHIN: &str = "within";

/// The begin and the end of a part of a row, in milliseconds, and its class: the state of an attempt, or [`WAIT`].
type RowPart = (u64, u64, String);

struct TimeAxis {
    begin: u64,
    span: u64,
}

impl TimeAxis {
    fn of(run: &RunDetail, parts: &[Vec<RowPart>], now: u64) -> Self {
        let all = || parts.iter().flatten();
        let begin = millis(Some(&run.started)).into_iter().chain(all().map(|part| part.0)).min().unwrap_or_default();
        let is_open = matches!(run.state, RunState::Running | RunState::Cancelling);
        let end = all().map(|part| part.1).chain(is_open.then_some(now)).max().unwrap_or(begin);
        Self { begin, span: end.saturating_sub(begin).max(1) }
    }

    fn x(&self, at: u64) -> u64 {
        at.saturating_sub(self.begin).min(self.span) * WIDTH / self.span
    }
}

fn millis(time: Option<&String>) -> Option<u64> {
    Some(parse_rfc3339(time?)?.0)
}

fn parts(unit: &UnitDetail, now: u64) -> Vec<RowPart> {
    let mut parts: Vec<RowPart> = Vec::new();
    let mut add = |from: Option<u64>, to: Option<u64>, state: &UnitState| {
        let Some(from) = from.or(to) else { return };
        // Between two attempts, the unit waits.
        if let Some(end) = parts.last().map(|part| part.1).filter(|end| *end < from) {
            parts.push((end, from, WAIT.to_owned()));
        }
        parts.push((from, to.unwrap_or(from).max(from), texts::word(state)));
    };
    for attempt in &unit.earlier_attempts {
        add(millis(attempt.started.as_ref()), millis(attempt.ended.as_ref()), &attempt.state);
    }
    let (started, is_running) = (millis(unit.started.as_ref()), unit.state == UnitState::Running);
    add(started, millis(unit.ended.as_ref()).or(started.and(is_running.then_some(now))), &unit.state);
    if unit.state == UnitState::Retrying {
        add(Some(now), None, &unit.state);
    }
    // A running attempt waits for its receiver, or for an object.
    let since = unit.waits.iter().filter_map(|wait| millis(wait.since.as_ref())).min();
    if let Some(since) = millis(unit.accepted.as_ref()).or(since).filter(|_| is_running) {
        parts.push((since, now.max(since), WAIT.to_owned()));
    }
    parts
}

/// Returns the parts of a unit. The times of a success without outputs and a log are not recorded: it ran after the units before
/// it, and before those that come after it.
fn known_parts(unit: &UnitDetail, run: &RunDetail, known: &BTreeMap<&str, Vec<RowPart>>) -> Vec<RowPart> {
    let parts = &known[unit.key.as_str()];
    if !parts.is_empty() || unit.state != UnitState::Succeeded {
        return parts.clone();
    }
    let ends = unit.after.iter().filter_map(|key| Some(known.get(key.as_str())?.last()?.1));
    let Some(from) = ends.max().or_else(|| millis(Some(&run.started))) else { return Vec::new() };
    let next = run.units.iter().filter(|other| other.after.contains(&unit.key));
    let to = next.filter_map(|other| Some(known[other.key.as_str()].first()?.0)).min();
    vec![(from, to.unwrap_or(from).max(from), WITHIN.to_owned())]
}

/// Returns the units of a run. Of a large run without pages, those that have not ended well come first.
pub(crate) fn waterfall(view: &TargetView<'_>, run: &RunDetail) -> Markup {
    let selected = view.selected.filter(|selected| selected.run.id == run.id);
    let key = selected.and_then(|selected| selected.unit.as_ref()).map(|unit| unit.detail.key.as_str());
    let page_token = selected.and_then(|selected| selected.page_token.as_deref());
    let mut units: Vec<&UnitDetail> = run.units.iter().collect();
    if page_token.is_none() && units.len() > MAX_ROWS {
        let is_well = |state| matches!(state, UnitState::Succeeded | UnitState::Skipped | UnitState::Waiting);
        units.sort_by_key(|unit| (key != Some(unit.key.as_str()), is_well(unit.state)));
        units.truncate(MAX_ROWS);
    }
    let known = run.units.iter().map(|unit| (unit.key.as_str(), parts(unit, view.now.0))).collect();
    let mut rows: Vec<(&UnitDetail, Vec<RowPart>)> =
        units.into_iter().map(|unit| (unit, known_parts(unit, run, &known))).collect();
    // Units without a start come last, in the order of the plan.
    rows.sort_by_key(|(_, parts)| parts.first().map_or(u64::MAX, |part| part.0));
    let (units, all): (Vec<&UnitDetail>, Vec<Vec<RowPart>>) = rows.into_iter().unzip();
    let axis = TimeAxis::of(run, &all, view.now.0);
    let positions: BTreeMap<&str, usize> =
        units.iter().enumerate().map(|(row, unit)| (unit.key.as_str(), row)).collect();
    let target = (view.detail.info.kind.as_str(), view.detail.info.name.as_str());
    let path = |unit: &UnitDetail| paths::unit(target, (&run.id, page_token.unwrap_or_default()), &unit.key, None);
    html! {
        div.wide tabindex="0" role="region" aria-label={ "Units of " (run.hook) } {
            table.waterfall {
                thead { tr {
                    th scope="col" { "Unit" }
                    th.axis scope="col" { span { "0 s" } span { (Millis(axis.span / 2)) } span { (Millis(axis.span)) } }
                    th scope="col" { "State" } th scope="col" { "Took" }
                } }
                tbody {
                    @for (row, unit) in units.iter().copied().enumerate() {
                        @let after = words::first_named(&unit.after, MAX_AFTER, unit.after.len());
                        tr.selected[key == Some(unit.key.as_str())] {
                            th scope="row" title=[(!after.is_empty()).then(|| format!("after {after}"))] {
                                a href=(path(unit)) { (unit.key) } " " span.kind { (unit.kind) } " " span.note { (note(unit)) }
                            }
                            td.bars { svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
                                @for edge in edges((row, unit), &positions, &all, &axis) { path.edge d=(edge) {} }
                                @for part in &all[row] { (drawn(part, &axis)) }
                            } }
                            td {
                                (texts::state(&unit.state))
                                @if unit.tolerated { " tolerated" }
                                @if unit.attempt > 1 { " " span.kind { (unit.attempt_in_series) "/" (unit.max_attempts) } }
                            }
                            td { (took(unit, view.now.0)) }
                        }
                    }
                }
            }
        }
    }
}

fn drawn((from, to, class): &RowPart, axis: &TimeAxis) -> Markup {
    let x = axis.x(*from).min(WIDTH - LEAST);
    let end = axis.x(*to).max(x + LEAST);
    html! {
        @if class == WAIT { path.wait d={ "M" (x) " " (HEIGHT / 2) "H" (end) } {} }
        @else { rect.bar.(class) x=(x) y=(HEIGHT / 2 - 6) width=(end - x) height="12" {} }
    }
}

/// Returns lines to the begin of a unit, from the ends of those that it comes after.
fn edges(
    (row, unit): (usize, &UnitDetail),
    positions: &BTreeMap<&str, usize>,
    parts: &[Vec<RowPart>],
    axis: &TimeAxis,
) -> Vec<String> {
    let before = unit.after.iter().filter_map(|key| positions.get(key.as_str()).copied());
    let end = |row: usize| parts[row].iter().map(|part| part.1).max().unwrap_or(axis.begin);
    let mut ends: Vec<(u64, usize)> = before.map(|before| (axis.x(end(before)), before)).collect();
    ends.sort_unstable();
    let y = |row: usize| i64::try_from(row * HEIGHT).unwrap_or_default();
    let middle = HEIGHT / 2;
    let line = |(x, before): (u64, usize)| {
        let begin = parts[row].first().map_or(x, |part| axis.x(part.0));
        format!("M{x} {}V{middle}H{begin}", y(before) - y(row) + y(1) / 2)
    };
    ends.into_iter().rev().take(MAX_EDGES).map(line).collect()
}

/// Returns the duration of the last attempt, which grows while it runs.
fn took(unit: &UnitDetail, now: u64) -> Markup {
    let started = unit.started.as_ref().filter(|_| unit.duration_ms.is_none() && unit.state == UnitState::Running);
    let end = millis(unit.ended.as_ref()).or(started.and(Some(now)));
    let took = unit.duration_ms.or(end.and_then(|end| Some(end.saturating_sub(millis(unit.started.as_ref())?))));
    html! { @if let Some(took) = took { span data-since=[started] { (Millis(took)) } } }
}

fn note(unit: &UnitDetail) -> Markup {
    let shown = |text: &str| limits::excerpt(&words::one_line(text), NOTE);
    html! {
        @match (&unit.reason, &unit.progress, unit.waits.first()) {
            (Some(reason), ..) => { (shown(&words::reason(reason))) }
            (_, Some(progress), _) => { (texts::progress(&shown(progress))) }
            (.., Some(wait)) => { (shown(&format!("{}: {}", wait.object, wait.message))) }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_and_waits_are_parts_of_a_row() {
        let rows: Vec<(UnitDetail, Vec<RowPart>)> =
            serde_json::from_str(include_str!("../tests/waterfall.json")).unwrap();
        for (unit, expected) in rows {
            assert_eq!(parts(&unit, 9_000), expected, "{unit:?}");
        }
    }
}
