//! The outcomes of a tool that changes several targets.

use serde_json::{Value, json};

use crate::api_calls::ToolError;

/// Maximum targets of a call. Each one takes several requests.
pub(crate) const MAX_TARGETS: usize = 20;

/// Returns the distinct names of a call, in order.
pub(crate) fn distinct(mut names: Vec<String>) -> Result<Vec<String>, ToolError> {
    names.sort_unstable();
    names.dedup();
    match names.len() {
        1..=MAX_TARGETS => Ok(names),
        count => Err(ToolError::Arguments(format!("{count} names were given; expected 1 to {MAX_TARGETS}"))),
    }
}

/// Collects the outcome of each target.
#[derive(Default)]
pub(crate) struct TargetOutcomes {
    lines: Vec<String>,
    /// Targets with the reasons why they were refused.
    refusals: Vec<(String, ToolError)>,
}

impl TargetOutcomes {
    /// Adds the line of a target, `KIND/NAME`, or the reason why it was refused. An error that the next targets would have, too,
    /// is returned.
    pub(crate) fn add(&mut self, target: String, outcome: Result<Value, ToolError>) -> Result<(), ToolError> {
        let line = match outcome {
            Ok(line) => line,
            Err(error @ ToolError::Unreachable(_)) => return Err(error),
            Err(error) => {
                let line = json!({"target": target, "error": error.reason()});
                self.refusals.push((target, error));
                line
            }
        };
        self.lines.push(line.to_string());
        Ok(())
    }

    /// Returns the lines and the number of refused targets. If every target was refused, the reasons are the error.
    pub(crate) fn finish(mut self) -> Result<(Vec<String>, usize), ToolError> {
        let refused = self.refusals.len();
        match refused {
            1 if self.lines.len() == 1 => Err(self.refusals.swap_remove(0).1),
            1.. if self.lines.len() == refused => Err(ToolError::Every(self.refusals)),
            _ => Ok((self.lines, refused)),
        }
    }
}
