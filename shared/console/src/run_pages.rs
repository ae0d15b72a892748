//! The page of a run, with all its units by pages.

use ebb_protocol::api::{RunDetail, UnitDetail};
use maud::html;

use crate::frame::{self, ConsoleViewer, PageRenewal};
use crate::timeline::rows;
use crate::{paths, texts};

/// Returns a page of the units of a run, in the order of the plan.
pub fn run(viewer: ConsoleViewer<'_>, run: &RunDetail) -> String {
    let units: Vec<&UnitDetail> = run.units.iter().collect();
    let main = html! {
        h1 { "Run of " (run.hook) " " (texts::state(&run.state)) }
        p { code { (run.id) } ", started " (texts::time(&run.started)) }
        (rows(run, &units))
        @if let Some(next) = &run.next_token {
            p { a rel="next" href=(paths::run(&run.id, Some(next))) { "Next units" } }
        }
    };
    frame::page(viewer, paths::ROOT, &format!("Run {}", run.id), PageRenewal::Every(5), &main)
}
