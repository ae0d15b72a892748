//! The panel of a unit beside the units of its run: its attempts, what it waits for, its request and log.

use std::collections::BTreeMap;

use ebb_protocol::{AttemptDetail, Millis, UnitDetail, UnitRendering, UnitState, limits, words};
use maud::{Markup, html};

use crate::{SelectedRun, SelectedUnit, TargetView, frame, paths, texts};

/// Maximum units before a unit to which the panel leads.
const MAX_AFTER: usize = 20;
/// The last lines of a log. The page of the log has all.
const LOG_LINES: usize = 40;

pub(crate) fn panel(view: &TargetView<'_>, selected: &SelectedRun) -> Markup {
    let Some(unit) = &selected.unit else { return html! {} };
    let SelectedUnit { detail, attempt, rendering, log, log_state } = unit;
    let UnitDetail { key, attempt_in_series, max_attempts, .. } = detail;
    let target = (view.detail.info.kind.as_str(), view.detail.info.name.as_str());
    let (id, page_token) = (&selected.run.id, selected.page_token.as_deref().unwrap_or_default());
    let path = |key: &str, attempt: Option<u32>| paths::unit(target, (id, page_token), key, attempt);
    let last = AttemptDetail {
        attempt: detail.attempt,
        attempt_in_series: *attempt_in_series,
        state: detail.state,
        started: detail.started.clone(),
        ended: detail.ended.clone(),
        duration_ms: detail.duration_ms,
        reason: detail.reason.clone(),
        log: detail.log,
    };
    let attempts = detail.earlier_attempts.iter().chain([&last]).rev().map(|one| {
        html! {
            @let current = (one.attempt == *attempt).then_some("true");
            th scope="row" { a href=(path(key, Some(one.attempt))) aria-current=[current] { (words::attempt_number(one.attempt, one.attempt_in_series, *max_attempts)) } }
            td { (texts::state(&one.state)) }
            td { (texts::time_if_any(one.started.as_ref())) }
            td { @if let Some(millis) = one.duration_ms { (Millis(millis)) } }
            td { @if let Some(reason) = &one.reason { (texts::reason(reason)) } }
        }
    });
    html! {
        div.panel #unit role="region" aria-label={ "Unit " (key) } {
            h3 { (key) " " span.kind { (detail.kind) } " " (texts::state(&detail.state)) }
            p { a href=(paths::run(target, id, Some(page_token))) { "Close" } }
            (notes(detail))
            @if !detail.after.is_empty() {
                p { "After: " @for before in detail.after.iter().take(MAX_AFTER) { a href=(path(before, None)) { (before) } " " } @if detail.after.len() > MAX_AFTER { "and more" } }
            }
            (frame::table(&format!("Attempts of {key}"), &["Attempt", "State", "Started", "Took", "Reason"], attempts))
            @if let Some((number, log)) = log {
                h4 { "Log of attempt " (number) }
                @for line in texts::plain_log(log_state).lines() { p.problem { (line) } }
                @if !log.is_empty() { (texts::listing("End of the log", &end_of(log))) }
                p { a href=(paths::log(id, key, Some(*number))) { "Whole log" } }
            }
            @if let Ok(rendering) = rendering && !rendering.outputs.is_empty() {
                h4 { "Outputs of attempt " (attempt) }
                dl { @for (name, output) in &rendering.outputs { dt { (name) } dd { (texts::value(output)) } } }
            }
            h4 { "Request of attempt " (attempt) }
            (request(rendering))
        }
    }
}

fn end_of(log: &str) -> String {
    let plain = texts::plain_log(log);
    let lines: Vec<&str> = plain.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

fn request(rendering: &Result<UnitRendering, String>) -> Markup {
    let rendering = match rendering {
        Ok(rendering) => rendering,
        Err(reason) => return html! { p.none { (limits::printable(reason)) } },
    };
    // In JSON, a script would be one line.
    let (script, skipped, outputs) = (None, None, BTreeMap::new());
    let rest = UnitRendering { script, skipped, outputs, ..rendering.clone() };
    let text = serde_json::to_string_pretty(&rest).unwrap_or_default();
    html! {
        @if let Some(reason) = &rendering.skipped { p { "Skipped: " (limits::printable(reason)) } }
        (texts::listing("Request", &texts::plain_log(&text)))
        @if let Some(script) = &rendering.script { (texts::listing("Script", &texts::plain_log(script))) }
    }
}

fn notes(unit: &UnitDetail) -> Markup {
    let awaited = |object: &str| unit.waits.iter().any(|wait| wait.object == object);
    html! {
        @if let Some(progress) = &unit.progress { div { (texts::progress(progress)) } }
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
        @if let Some(excess) = unit.excess_results { div { (excess) " further distinct results were rejected and are not undone" } }
    }
}
