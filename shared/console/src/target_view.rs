//! The content of the page of a target.

use ebb_protocol::Timestamp;
use ebb_protocol::api::{RunDetail, TargetDetail, TargetDiagnosis, UnitDetail, UnitRendering};

#[derive(Clone, Copy, Debug)]
pub struct TargetView<'a> {
    pub detail: &'a TargetDetail,
    pub why: &'a TargetDiagnosis,
    pub may_change: bool,
    pub may_override: bool,
    pub stamp: &'a str,
    /// The end of the bars of running units.
    pub now: Timestamp,
    pub selected: Option<&'a SelectedRun>,
}

/// The run of the query of a page. It can be that of an earlier instance.
#[derive(Clone, Debug)]
pub struct SelectedRun {
    pub run: RunDetail,
    /// The result of [`ebb_protocol::words::unit_counts`] for all units of the run.
    pub counts: String,
    /// The token of the page of units. The first page has an empty one. `None` for the first units of a run without pages.
    pub page_token: Option<String>,
    pub unit: Option<SelectedUnit>,
}

#[derive(Clone, Debug)]
pub struct SelectedUnit {
    pub detail: UnitDetail,
    pub attempt: u32,
    /// Its request, manifests or inputs, or the reason why there are none.
    pub rendering: Result<UnitRendering, String>,
    /// The log with its attempt, if its kind has one.
    pub log: Option<(u32, String)>,
    /// Lines about the attempt that are not from the log.
    pub log_state: String,
}
