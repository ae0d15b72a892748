//! Progress of targets, from the API to standard error.
//!
//! [`follow`](follow::follow) polls the server. [`tree`] and [`lines`] turn views into text, without a clock or
//! terminal. [`screen`] prints the text.

pub(crate) mod follow;
pub(crate) mod labels;
pub(crate) mod lines;
pub(crate) mod screen;
pub(crate) mod tree;

use std::collections::BTreeMap;

use ebb_protocol::api::{RunDetail, TargetDetail, TargetState};

/// The state of a target that is shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TargetView {
    /// The target, as `KIND/NAME`.
    pub(crate) target: String,
    pub(crate) phase: TargetState,
    /// The start of the phase, in the format of the API.
    pub(crate) since: String,
    pub(crate) runs: Vec<RunDetail>,
    /// The last log line of each running unit, by run id and unit key.
    pub(crate) last_lines: BTreeMap<(String, String), String>,
}

impl TargetView {
    pub(crate) fn new(detail: &TargetDetail) -> Self {
        Self {
            target: format!("{}/{}", detail.info.kind, detail.info.name),
            phase: detail.info.phase,
            since: detail.info.since.clone(),
            runs: detail.runs.clone(),
            last_lines: BTreeMap::new(),
        }
    }

    /// Returns the last log line of a running unit, else its progress.
    fn status_of<'a>(&'a self, run: &RunDetail, unit: &'a ebb_protocol::api::UnitDetail) -> Option<&'a str> {
        let line = self.last_lines.get(&(run.id.clone(), unit.key.clone())).map(String::as_str);
        line.or(unit.progress.as_deref()).filter(|line| !line.trim().is_empty())
    }
}

#[cfg(test)]
pub(crate) mod fixtures;
