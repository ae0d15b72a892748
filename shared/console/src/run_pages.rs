//! The page of a run, with all its units by pages.

use ebb_protocol::api::{RunDetail, UnitDetail};
use maud::{Markup, html};

use crate::timeline::rows;
use crate::{ConsoleViewer, PageRenewal, frame, paths, texts};

#[derive(Clone, Copy, Debug)]
pub struct RunUnitsView<'a> {
    /// The run with the units of the page.
    pub run: &'a RunDetail,
    /// Kind and name.
    pub target: (&'a str, &'a str),
    /// The result of [`crate::unit_counts`] for all units of the run.
    pub counts: &'a str,
    /// The token of the page. The first page has an empty one.
    pub page_token: &'a str,
}

/// Returns a page of the units of a run, in the order of the plan.
pub fn run(viewer: ConsoleViewer<'_>, view: &RunUnitsView<'_>) -> String {
    let RunUnitsView { run, target, counts, page_token } = *view;
    let units: Vec<&UnitDetail> = run.units.iter().collect();
    let main = html! {
        h1 { "Run of " (run.hook) " " (texts::state(&run.state)) }
        p { code { (run.id) } " of " (target_link(target)) ", started " (texts::time(&run.started)) }
        p { (counts) "." }
        (rows(run, &units))
        p.pages {
            @if !page_token.is_empty() { a href=(paths::run(&run.id, None)) { "First units" } " " }
            @if let Some(next) = &run.next_token { a rel="next" href=(paths::run(&run.id, Some(next))) { "Next units" } }
        }
    };
    frame::page(viewer, paths::ROOT, &format!("Run {}", run.id), PageRenewal::every(5), &main)
}

pub(crate) fn place(run: &str, target: (&str, &str)) -> Markup {
    html! { p { "Run " a href=(paths::run(run, None)) { (run) } " of " (target_link(target)) } }
}

fn target_link((kind, name): (&str, &str)) -> Markup {
    html! { a href=(paths::target(kind, name)) { (kind) "/" (name) } }
}
