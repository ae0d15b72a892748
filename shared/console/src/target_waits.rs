//! Who waits for whom, since when, and until what.

use ebb_protocol::api::{AwaitedParty, TargetWait, WaitingParty};
use ebb_protocol::limits;
use maud::{Markup, html};

use crate::{frame, texts};

/// The heads of the columns of [`waiter`] and [`rest`].
pub(crate) const HEADS: [&str; 4] = ["Who waits", "Waits for", "Since", "Until"];

/// Returns the waits of a target as a section, or nothing without any.
pub(crate) fn section(waits: &[TargetWait]) -> Markup {
    let rows: Vec<Markup> = waits.iter().map(|wait| html! { th scope="row" { (waiter(wait)) } (rest(wait)) }).collect();
    html! { @if !rows.is_empty() { (frame::section("Who waits", &frame::table("Who waits", &HEADS, &rows))) } }
}

/// Returns who waits, as the content of a cell.
pub(crate) fn waiter(wait: &TargetWait) -> Markup {
    html! {
        (texts::word(&wait.waiter))
        @if wait.waiter == WaitingParty::Update { " to generation" }
        @if let Some(name) = &wait.waiter_name { " " code { (limits::printable(name)) } }
    }
}

/// Returns the cells after that of the waiter.
pub(crate) fn rest(wait: &TargetWait) -> Markup {
    let name = limits::printable(wait.awaited_name.as_deref().unwrap_or_default());
    html! {
        td {
            @match wait.awaits {
                AwaitedParty::Units => { "units of " (name) }
                AwaitedParty::Platform => { "the platform, for the notification " (name) }
                AwaitedParty::Operator => { "an operator" }
                AwaitedParty::Instance => { "instance " code { (name) } }
            }
            @if let Some(reason) = &wait.reason { ": " (limits::printable(reason)) }
        }
        td { (texts::time_if_any(wait.since.as_ref())) }
        td { (limits::printable(&wait.release)) }
    }
}
