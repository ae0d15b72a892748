//! Who waits for whom, since when, and until what.

use ebb_protocol::{TargetWait, words};
use maud::{Markup, html};

use crate::{frame, texts};

/// The heads of the columns of a waiter and of [`rest`].
pub(crate) const HEADS: [&str; 4] = ["Who waits", "Waits for", "Since", "Until"];

/// Returns the waits of a target as a section, or nothing without any.
pub(crate) fn section(waits: &[TargetWait]) -> Markup {
    let rows = waits.iter().map(|wait| html! { th scope="row" { (words::waiter(wait)) } (rest(wait)) });
    html! { @if !waits.is_empty() { (frame::section("Who waits", &frame::table("Who waits", &HEADS, rows))) } }
}

/// Returns the cells after that of the waiter.
pub(crate) fn rest(wait: &TargetWait) -> Markup {
    html! {
        td { (words::awaited(wait)) }
        td { (texts::time_if_any(wait.since.as_ref())) }
        td { (texts::timed(&words::one_line(&wait.release))) }
    }
}
