//! The outcomes of a tool that changes several targets.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::mcp::api_calls::ToolError;

/// Maximum targets of a call. Each one takes several requests.
pub(crate) const MAX_TARGETS: usize = 20;
/// The time after which no further target begins. A function ends after 29 s, and one target can take 10 s.
const LATEST: Duration = Duration::from_secs(15);

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
pub(crate) struct TargetOutcomes {
    begun: Instant,
    lines: Vec<String>,
    /// Targets with the reasons why they were refused.
    refusals: Vec<(String, ToolError)>,
}

impl TargetOutcomes {
    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), lines: Vec::new(), refusals: Vec::new() }
    }

    /// Changes a target, `KIND/NAME`, unless the call has taken too long. Adds its line, or the reason why it was refused. An
    /// error that the next targets would have, too, is returned.
    pub(crate) async fn add(
        &mut self,
        target: String,
        change: impl Future<Output = Result<Value, ToolError>>,
    ) -> Result<(), ToolError> {
        let outcome = match self.begun.elapsed() < LATEST {
            true => change.await,
            false => {
                Err(ToolError::busy(503, "not begun, because the call has taken too long: call the tool again for it"))
            }
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_target_is_not_begun_late() {
        let mut outcomes = TargetOutcomes::begin();
        outcomes.add("sandbox/a".to_owned(), async { Ok(json!({"result": "updated"})) }).await.unwrap();
        outcomes.begun = Instant::now().checked_sub(LATEST).unwrap();
        outcomes.add("sandbox/b".to_owned(), async { panic!("it has begun") }).await.unwrap();
        let (lines, refused) = outcomes.finish().unwrap();
        assert!(refused == 1 && lines[0].contains("updated") && lines[1].contains("not begun"), "{lines:?}");
    }
}
