//! How far a target is: seen from the api, shown on standard error.
//!
//! [`follow`](follow::follow) asks again and again; [`tree`] and [`lines`] make text of what it sees, without a clock or
//! a terminal; [`screen`] puts the text where it belongs.

pub(crate) mod follow;
pub(crate) mod labels;
pub(crate) mod lines;
pub(crate) mod screen;
pub(crate) mod tree;

use std::collections::BTreeMap;

use ebb_protocol::api::{RunDetail, TargetDetail, TargetState};

/// What is shown of a target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TargetView {
    /// `KIND/NAME`.
    pub(crate) target: String,
    pub(crate) phase: TargetState,
    /// Since when, as the api writes it.
    pub(crate) since: String,
    pub(crate) runs: Vec<RunDetail>,
    /// The last line that a running unit has logged, by run and key.
    pub(crate) last_lines: BTreeMap<(String, String), String>,
}

impl TargetView {
    /// A view of what the api tells.
    pub(crate) fn new(detail: &TargetDetail) -> Self {
        Self {
            target: format!("{}/{}", detail.info.kind, detail.info.name),
            phase: detail.info.phase,
            since: detail.info.since.clone(),
            runs: detail.runs.clone(),
            last_lines: BTreeMap::new(),
        }
    }

    /// What a running unit says of itself: its last log line, else its progress.
    fn said<'a>(&'a self, run: &RunDetail, unit: &'a ebb_protocol::api::UnitDetail) -> Option<&'a str> {
        let line = self.last_lines.get(&(run.id.clone(), unit.key.clone())).map(String::as_str);
        line.or(unit.progress.as_deref()).filter(|line| !line.trim().is_empty())
    }
}

#[cfg(test)]
pub(crate) mod fixtures;
