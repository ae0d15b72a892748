//! The log of an attempt, and what it was rendered to.

use ebb_protocol::api::UnitRendering;
use maud::html;

use crate::frame::{self, ConsoleViewer, PageRenewal};
use crate::{paths, texts};

/// The log of an attempt.
#[derive(Clone, Debug)]
pub struct UnitLogView<'a> {
    pub run: &'a str,
    /// `RESOURCE/UNIT`.
    pub unit: &'a str,
    pub attempt: u32,
    /// The end of the log, as the unit wrote it.
    pub log: &'a str,
    /// Lines about the attempt that are not from the log.
    pub state: &'a str,
}

/// Returns the page with a log.
pub fn log(viewer: ConsoleViewer<'_>, view: &UnitLogView<'_>) -> String {
    let UnitLogView { run, unit, attempt, log, state } = *view;
    let main = html! {
        h1 { "Log of " (unit) ", attempt " (attempt) }
        (attempts(attempt, |number| paths::log(run, unit, Some(number))))
        p { "Run " a href=(paths::run(run, None)) { (run) } }
        @for line in texts::plain_log(state).lines() { p.problem { (line) } }
        (texts::listing("Log", &texts::plain_log(log)))
    };
    frame::page(viewer, paths::ROOT, &format!("Log of {unit}"), PageRenewal::Every(3), &main)
}

/// Returns the page with the manifests, the request or the inputs of a unit.
pub fn rendering(viewer: ConsoleViewer<'_>, rendering: &UnitRendering) -> String {
    let UnitRendering { run, unit, attempt, .. } = rendering;
    let text = serde_json::to_string_pretty(rendering).unwrap_or_default();
    let main = html! {
        h1 { "Request of " (unit) ", attempt " (attempt) }
        (attempts(*attempt, |number| paths::rendering(run, unit, Some(number))))
        p { "Run " a href=(paths::run(run, None)) { (run) } }
        @if let Some(reason) = &rendering.skipped { p { "Skipped: " (reason) } }
        (texts::listing("Request", &texts::plain_log(&text)))
    };
    frame::page(viewer, paths::ROOT, &format!("Request of {unit}"), PageRenewal::Never, &main)
}

/// Returns a link to the attempt before, if there is one.
fn attempts(attempt: u32, path: impl Fn(u32) -> String) -> maud::Markup {
    html! {
        @if attempt > 1 { p { a href=(path(attempt - 1)) { "Attempt " (attempt - 1) } } }
    }
}
