//! The units of a run as a table, in the order in which they started.

use ebb_protocol::{AttemptDetail, Millis, RunDetail, UnitDetail, UnitState, limits, words};
use maud::{Markup, html};

use crate::run_graph::row_id;
use crate::{frame, paths, texts};

/// Maximum units of a run that are all on the page of its target.
const MAX_UNITS: usize = 60;
/// The units of a larger run on that page.
const SHOWN_UNITS: usize = 30;
const MAX_AFTER: usize = 5;
/// Maximum rows of earlier attempts of a unit. Their logs and requests link to those before.
const EARLIER_ROWS: usize = 3;

/// Returns the units of a run. Of a large run, those that have not ended well come first, and a link leads to all.
pub(crate) fn timeline(run: &RunDetail) -> Markup {
    let mut units: Vec<&UnitDetail> = run.units.iter().collect();
    if units.len() > MAX_UNITS {
        units.sort_by_key(|unit| matches!(unit.state, UnitState::Succeeded | UnitState::Skipped | UnitState::Waiting));
        units.truncate(SHOWN_UNITS);
    }
    let is_part = units.len() < run.units.len() || run.next_token.is_some();
    // Units without a start come last, in the order of the plan.
    units.sort_by_key(|unit| (unit.started.is_none(), unit.started.clone()));
    html! {
        @if is_part && run.next_token.is_none() { p { (unit_counts(&run.units)) ". These are " (units.len()) " of them:" } }
        (rows(run, &units))
        @if is_part { p { a href=(paths::run(&run.id, None)) { "All units of " (run.hook) } } }
    }
}

pub fn unit_counts(units: &[UnitDetail]) -> String {
    format!("{}: {}", words::units(units.len()), words::unit_counts(units))
}

/// Returns a table of units. The rows of earlier attempts of a unit precede its own.
pub(crate) fn rows(run: &RunDetail, units: &[&UnitDetail]) -> Markup {
    let mut rows: Vec<Markup> = Vec::new();
    for unit in units {
        let left_out = unit.earlier_attempts.len().saturating_sub(EARLIER_ROWS);
        rows.extend(unit.earlier_attempts[left_out..].iter().map(|attempt| attempt_row(run, unit, attempt)));
        rows.push(row(run, unit));
    }
    let heads = ["Unit", "State", "Attempt", "Started", "Ended", "Took", "Notes", "Show"];
    frame::table(&format!("Units of {}", run.hook), &heads, rows)
}

fn row(run: &RunDetail, unit: &UnitDetail) -> Markup {
    let is_shown = !matches!(unit.state, UnitState::Waiting | UnitState::Blocked);
    // The log of a script that may run is at its relay.
    let may_run = matches!(unit.state, UnitState::Running | UnitState::Retrying | UnitState::Cancelled);
    html! {
        th scope="row" id=(row_id(&run.id, &unit.key)) { (unit.key) " " span.kind { (unit.kind) } }
        td { (texts::state(&unit.state)) @if unit.tolerated { " tolerated" } }
        td { (words::attempt_number(unit.attempt, unit.attempt_in_series, unit.max_attempts)) }
        td { (texts::time_if_any(unit.started.as_ref())) }
        td { (texts::time_if_any(unit.ended.as_ref())) }
        td { @if let Some(millis) = unit.duration_ms { (Millis(millis)) } }
        td.notes { (notes(unit)) }
        td {
            @if is_shown && (unit.log || may_run && unit.kind == "pod") {
                a href=(paths::log(&run.id, &unit.key, None)) aria-label={ "Log of " (unit.key) } { "log" } " "
            }
            @if is_shown {
                a href=(paths::rendering(&run.id, &unit.key, None)) aria-label={ "Request of " (unit.key) } { "request" }
            }
        }
    }
}

fn attempt_row(run: &RunDetail, unit: &UnitDetail, attempt: &AttemptDetail) -> Markup {
    let (key, number) = (&unit.key, attempt.attempt);
    let log = paths::log(&run.id, key, Some(number));
    let request = paths::rendering(&run.id, key, Some(number));
    html! {
        th scope="row" { (key) " " span.kind { "earlier attempt" } }
        td { (texts::state(&attempt.state)) }
        td { (words::attempt_number(number, attempt.attempt_in_series, unit.max_attempts)) }
        td { (texts::time_if_any(attempt.started.as_ref())) }
        td { (texts::time_if_any(attempt.ended.as_ref())) }
        td { @if let Some(millis) = attempt.duration_ms { (Millis(millis)) } }
        td.notes { @if let Some(reason) = &attempt.reason { (texts::reason(reason)) } }
        td {
            @if attempt.log { a href=(log) aria-label={ "Log of attempt " (number) " of " (key) } { "log" } " " }
            a href=(request) aria-label={ "Request of attempt " (number) " of " (key) } { "request" }
        }
    }
}

/// Returns what a reader has to know about a unit, one line each.
fn notes(unit: &UnitDetail) -> Markup {
    let awaited = |object: &str| unit.waits.iter().any(|wait| wait.object == object);
    html! {
        @if let Some(reason) = &unit.reason { div { (texts::reason(reason)) } }
        @if let Some(progress) = &unit.progress { div { (limits::printable(progress)) } }
        @if let Some(heartbeat) = &unit.heartbeat { div { "Last heartbeat at " (texts::time(heartbeat)) } }
        @if let Some(objects) = unit.objects.filter(|objects| objects.total > 1) {
            div { (objects.ready) " of " (objects.total) " objects are ready" }
        }
        @for status in unit.object_states.iter().filter(|status| !awaited(&status.object)) {
            div { (limits::printable(&status.object)) ": " (words::object_state(status)) }
        }
        @for wait in &unit.waits { div { "Waits: " (texts::timed(&words::unit_wait(wait))) } }
        @if let Some(accepted) = unit.accepted.as_ref().filter(|_| unit.state == UnitState::Running) {
            div { "Accepted by its receiver at " (texts::time(accepted)) }
        }
        @if let Some(next) = unit.next.as_ref().filter(|_| unit.state != UnitState::Cancelled) {
            div { "Next attempt or request at " (texts::time(next)) }
        }
        @if let Some(deadline) = &unit.deadline { div { "At most until " (texts::time(deadline)) } }
        @if let Some(refused) = &unit.refused_callbacks {
            div { (refused.count) " rejected callbacks, the last one: " (limits::printable(&refused.reason)) }
        }
        @if let Some(excess) = unit.excess_results {
            div { (excess) " further distinct results were rejected and are not undone" }
        }
        @if !unit.after.is_empty() {
            div.after {
                "after " (words::first_named(&unit.after, MAX_AFTER, unit.after.len()))
            }
        }
    }
}
