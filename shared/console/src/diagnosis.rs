//! The diagnosis of a target: what it waits for, or what failed, and what to do.

use ebb_protocol::api::{Certainty, FailedUnit, OpenUnits, RootCause, TargetDiagnosis};
use ebb_protocol::evidence::Evidence;
use ebb_protocol::limits;
use ebb_protocol::removal::ResourceRemoval;
use maud::{Markup, html};

use crate::{frame, paths, texts};

/// Maximum units whose resources exist or were removed.
const MAX_EFFECTS: usize = 50;

/// Returns the diagnosis, its most important part first.
pub(crate) fn diagnosis(why: &TargetDiagnosis) -> Markup {
    let others: Vec<&FailedUnit> =
        why.failed.iter().filter(|failed| why.cause.as_ref().is_none_or(|cause| cause.unit != failed.unit)).collect();
    let shown: usize = why.open.iter().map(|open| open.count).sum();
    let more = why.open_units.saturating_sub(shown);
    html! {
        section.why {
            h2 { "Why" }
            p.summary { (limits::printable(why.summary.trim())) }
            @if let Some(cause) = &why.cause { (root_cause(cause)) }
            @if !why.open.is_empty() {
                h3 { "Waits" }
                ul {
                    @for open in &why.open { li { (open_units(open)) } }
                    @if more > 0 { li { (more) " more units are open: the timeline shows each." } }
                }
            }
            @if !others.is_empty() {
                h3 { "Also failed" }
                ul {
                    @for FailedUnit { unit, attempt, attempt_in_series, reason, .. } in others {
                        li {
                            (unit) ", attempt " (attempt_in_series) (texts::in_all(*attempt, *attempt_in_series)) ": "
                            (texts::reason(reason))
                        }
                    }
                }
            }
            @if !why.notes.is_empty() {
                h3 { "Notes" }
                ul { @for note in &why.notes { li { (limits::printable(note)) } } }
            }
            @if !why.next_steps.is_empty() {
                h3 { "Next steps" }
                ol { @for step in &why.next_steps { li { (limits::printable(step)) } } }
            }
        }
    }
}

/// Returns what open units wait for, since when, and who ends the wait.
fn open_units(open: &OpenUnits) -> Markup {
    let more = open.count.saturating_sub(open.units.len());
    html! {
        (open.units.join(", "))
        @if more > 0 { " and " (more) " more" }
        ": " (limits::printable(&open.reason))
        @if let Some(since) = &open.since { ", since " (texts::time(since)) }
        @if let Some(fails_at) = &open.fails_at { ", fails at " (texts::time(fails_at)) }
        "." (texts::ends(open.resolves))
    }
}

fn root_cause(cause: &RootCause) -> Markup {
    let inputs: Vec<Markup> = cause
        .inputs
        .iter()
        .map(|(name, value)| {
            html! { th scope="row" { (name) } td { code { (limits::printable(value)) } } }
        })
        .collect();
    html! {
        h3 {
            "First cause: " (cause.unit) ", attempt " (cause.attempt_in_series)
            (texts::in_all(cause.attempt, cause.attempt_in_series))
        }
        p { (texts::reason(&cause.reason)) }
        p { "At " (cause.file) ", line " (cause.line) ". " a href=(paths::rendering(&cause.run, &cause.unit, Some(cause.attempt))) { "Request" } }
        @if let Some(evidence) = &cause.evidence { (request(evidence)) }
        @if !inputs.is_empty() {
            details id="cause-inputs" { summary { "Inputs" } (frame::table("Inputs", &["Name", "Value"], &inputs)) }
        }
        @if !cause.log.is_empty() {
            (texts::listing("End of the log", &texts::plain_log(&cause.log.join("\n"))))
            p { a href=(paths::log(&cause.run, &cause.unit, Some(cause.attempt))) { "Whole log" } }
        }
    }
}

fn request(evidence: &Evidence) -> Markup {
    html! {
        @if let Some(damaged) = &evidence.damaged {
            p { "The evidence is damaged: " (limits::printable(damaged)) }
        } @else {
            p { "Request: " code { (evidence.method) " " (limits::printable(&evidence.url)) } }
            @match evidence.status {
                None => { p { "No response." } }
                Some(status) => {
                    p {
                        "Response: " (status)
                        @if let Some(kind) = &evidence.content_type { ", " (limits::printable(kind)) }
                        @if evidence.truncated { ", shortened" }
                    }
                    @if let Some(body) = &evidence.body { (texts::listing("Response", &texts::plain_log(body))) }
                }
            }
        }
    }
}

/// Returns what may still exist, and the evidence of what was removed.
pub(crate) fn remains(why: &TargetDiagnosis) -> Markup {
    let remaining: Vec<Markup> = why
        .remaining
        .iter()
        .take(MAX_EFFECTS)
        .map(|effect| {
            let certainty = match effect.certainty {
                Certainty::Exists => "exists",
                Certainty::Possible => "may exist",
            };
            html! {
                th scope="row" { (effect.unit) }
                td { (certainty) }
                td { @for (name, value) in &effect.outputs { div { (name) " = " (texts::value(value)) } } }
            }
        })
        .collect();
    let removals: Vec<Markup> = why.removals.iter().take(MAX_EFFECTS).map(removal).collect();
    let is_part = why.remaining.len().max(why.removals.len()) > MAX_EFFECTS;
    html! {
        @if !remaining.is_empty() {
            (frame::section("What exists", &frame::table("What exists", &["Made by", "Certainty", "Outputs"], &remaining)))
        }
        @if !removals.is_empty() {
            (frame::section("What was removed", &frame::table("What was removed", &["Made by", "Evidence", "Removed by", "Answer"], &removals)))
        }
        @if is_part { p { "The first " (MAX_EFFECTS) " units are shown. " code { "ebb why" } " shows all." } }
    }
}

fn removal(ResourceRemoval { unit, by, evidence }: &ResourceRemoval) -> Markup {
    html! {
        th scope="row" { (unit) }
        td { (evidence.grade) }
        td { (by.as_deref().unwrap_or_default()) }
        td {
            @if let Some(asked) = &evidence.asked { code { (limits::printable(asked)) } " " }
            @if let Some(answered) = &evidence.answered { (limits::printable(answered)) }
        }
    }
}
