//! The diagnosis of a target: what it waits for, or what failed, and what to do.

use ebb_protocol::words::{self, DiagnosisLine, DiagnosisPart, DiagnosisSection};
use ebb_protocol::{TargetDiagnosis, limits};
use maud::{Markup, html};

use crate::{frame, paths, texts};

/// Maximum units whose resources exist or were removed.
const MAX_EFFECTS: usize = 50;

/// Returns the diagnosis, its most important part first. [`remains`] and a table of waits have the rest.
pub(crate) fn diagnosis(why: &TargetDiagnosis) -> Markup {
    let is_below =
        |part| matches!(part, DiagnosisPart::OtherWaits | DiagnosisPart::Remaining | DiagnosisPart::Removals);
    html! {
        section.why {
            h2 { "Why" }
            p.summary { (limits::printable(why.summary.trim())) }
            @for DiagnosisSection { part, title, lines } in words::diagnosis(why) {
                @if !is_below(part) {
                    h3 { (capitalized(&title)) }
                    @if part == DiagnosisPart::NextSteps { ol { (items(&lines)) } } @else { ul { (items(&lines)) } }
                    @if let (DiagnosisPart::Cause, Some(cause)) = (part, &why.cause) {
                        p {
                            a href=(paths::rendering(&cause.run, &cause.unit, Some(cause.attempt))) { "Request" }
                            @if !cause.log.is_empty() {
                                " " a href=(paths::log(&cause.run, &cause.unit, Some(cause.attempt))) { "Whole log" }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn capitalized(title: &str) -> String {
    let mut chars = title.chars();
    chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect()
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
            @let shown = items(&lines[..lines.len().min(MAX_EFFECTS)]);
            @match part {
                DiagnosisPart::Remaining => { (frame::section("What exists", &html! { ul { (shown) } })) }
                DiagnosisPart::Removals => { (frame::section("What was removed", &html! { ul { (shown) } })) }
                _ => {}
            }
        }
        @if is_part { p { "The first " (MAX_EFFECTS) " units are shown. " code { (words::commands::why("NAME")) } " shows all." } }
    }
}
