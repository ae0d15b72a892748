//! The diagnosis of a target: what it waits for, or what failed, and what to do.

use ebb_protocol::words::{self, DiagnosisLine, DiagnosisPart, DiagnosisSection, commands};
use ebb_protocol::{TargetDiagnosis, TargetPhase, limits};
use maud::{Markup, html};

use crate::{BulkAction, TargetView, bulk_pages, frame, paths, texts};

/// Maximum units whose resources exist or were removed.
const MAX_EFFECTS: usize = 50;

/// Returns the diagnosis, its most important part first, or nothing about a ready target without one. [`remains`] has the rest.
pub(crate) fn diagnosis(view: &TargetView<'_>) -> Markup {
    let TargetView { detail, why, .. } = *view;
    let target = (detail.info.kind.as_str(), detail.info.name.as_str());
    let mut sections = words::diagnosis(why);
    sections.retain(|section| !matches!(section.part, DiagnosisPart::Remaining | DiagnosisPart::Removals));
    if sections.is_empty() && why.phase == TargetPhase::Ready {
        return html! {};
    }
    html! {
        section.why {
            h2 { "Why" }
            p.summary { (limits::printable(why.summary.trim())) }
            @for DiagnosisSection { part, title, lines } in sections {
                h3 { (texts::capitalized(&title)) }
                @if part == DiagnosisPart::NextSteps {
                    ol.steps { @for line in &lines { li { (step(view, &line.text)) } } }
                } @else { ul { (items(&lines)) } }
                @if let (DiagnosisPart::Cause, Some(cause)) = (part, &why.cause) {
                    p {
                        a href=(paths::unit(target, (&cause.run, ""), &cause.unit, Some(cause.attempt))) { "Request" }
                        @if !cause.log.is_empty() { " " a href=(paths::log(&cause.run, &cause.unit, Some(cause.attempt))) { "Whole log" } }
                    }
                }
            }
        }
    }
}

/// Splits a step at its commands. A part is a command if its flag is true.
fn parts(step: &str) -> Vec<(&str, bool)> {
    let (mut parts, mut rest) = (Vec::new(), step);
    while let Some(begin) = rest.find("ebb ") {
        let (before, command) = rest.split_at(begin);
        let ends = [", ", "; ", "`"].iter().filter_map(|mark| command.find(mark));
        let (command, after) = command.split_at(ends.min().unwrap_or(command.len()));
        parts.extend([(before.trim_end_matches('`'), false), (command, true)]);
        rest = after.trim_start_matches('`');
    }
    parts.push((rest, false));
    parts
}

fn step(view: &TargetView<'_>, text: &str) -> Markup {
    html! {
        @for (part, is_command) in parts(text) {
            @if is_command {
                (texts::copy(part))
                @if let Some(action) = action(view, part) {
                    " " a.button href=(bulk_pages::confirmation_path(action, &view.detail.info)) { (action.label("")) "…" }
                    @if let Some(path) = difference(view, action) { " " a href=(path) { "Difference" } }
                }
            } @else { (texts::timed(part)) }
        }
    }
}

/// Returns the action that does the same as a command of a step, or `None` if the caller may not do it.
fn action<'a>(view: &TargetView<'a>, command: &'a str) -> Option<BulkAction<'a>> {
    let TargetView { detail, why, may_change, may_override, .. } = *view;
    let (kind, name) = (&detail.info.kind, &detail.info.name);
    let target = commands::target_arguments(kind, name);
    let is_of = |unit: &str| command == commands::force_complete(&target, unit);
    let failed = why.failed.iter().find(|failed| may_override && is_of(&failed.unit));
    let retry = command.strip_prefix(&commands::retry_with(&target, ""));
    let upgrade = command.strip_suffix(&format!(" {target}")).and_then(|rest| rest.strip_prefix("ebb plugin upgrade "));
    // A step without a published version has a placeholder.
    let is_version = |plugin: &&str| may_change && plugin.split_once('@').is_some_and(|(_, one)| one != "VERSION");
    Some(match retry.or(upgrade).filter(is_version) {
        Some(plugin) if retry.is_some() => BulkAction::RetryWith(plugin),
        Some(plugin) => BulkAction::Upgrade(plugin),
        None if may_change && command == commands::retry(&target) => BulkAction::Retry,
        None if may_change && command == commands::delete(kind, name) => BulkAction::Delete,
        None if may_override && command == commands::force_delete(kind, name) => BulkAction::ForceDelete,
        None => BulkAction::ForceComplete(&failed?.unit),
    })
}

/// Returns the path of the difference between the version of a resource and the one that an action gives it.
fn difference(view: &TargetView<'_>, action: BulkAction<'_>) -> Option<String> {
    let (BulkAction::RetryWith(plugin) | BulkAction::Upgrade(plugin)) = action else { return None };
    let (name, to) = plugin.split_once('@')?;
    let mut used = view.detail.resources.values().filter_map(|resource| resource.plugin.split_once('@'));
    let (_, from) = used.find(|(found, from)| *found == name && *from != to)?;
    Some(paths::comparison(name, from, to))
}

fn items(lines: &[DiagnosisLine]) -> Markup {
    html! {
        @for DiagnosisLine { label, text, values, listing } in lines {
            li {
                @if !label.is_empty() { (label) ": " }
                (texts::timed(text))
                @for value in values { div { code { (limits::printable(value)) } } }
                @if !listing.is_empty() { (texts::listing(if label.is_empty() { text } else { label }, &texts::plain_log(&listing.join("\n")))) }
            }
        }
    }
}

/// Returns what may still exist, and the evidence of what was removed.
pub(crate) fn remains(why: &TargetDiagnosis) -> Markup {
    let is_part = why.remaining.len().max(why.removals.len()) > MAX_EFFECTS;
    html! {
        @for DiagnosisSection { part, lines, .. } in words::diagnosis(why) {
            @let shown = html! { ul { (items(&lines[..lines.len().min(MAX_EFFECTS)])) } };
            @if part == DiagnosisPart::Remaining { (frame::section("What exists", &shown)) }
            @if part == DiagnosisPart::Removals { (frame::section("What was removed", &shown)) }
        }
        @if is_part { p { "The first " (MAX_EFFECTS) " units are shown. " code { (words::commands::why("NAME")) } " shows all." } }
    }
}
