//! The work that follows from a request whose state is durable.

use ebb_wire::id::RunId;

use crate::drive::{Work, drive_to_outcome};
use crate::env::Env;
use crate::error::FlowError;
use crate::settle;

/// The work that follows from an accepted request. The sweep does it too, later, if this process dies.
#[derive(Default)]
pub struct FollowUp {
    pub(crate) work: Option<Work>,
    /// A cancelled run whose units are to be killed.
    pub(crate) stopped: Option<RunId>,
}

impl FollowUp {
    /// Sends `work`.
    pub(crate) fn drive(work: Option<Work>) -> Self {
        Self { work, ..Self::default() }
    }

    /// Returns the run that it moves, unless that run is due soon anyway.
    pub(crate) fn run(&self) -> Option<&RunId> {
        self.work.as_ref().map(|work| &work.run.id)
    }

    /// Does all of it.
    ///
    /// # Errors
    /// The store's; the sweep goes on with the rest.
    pub async fn finish(self, env: &Env) -> Result<(), FlowError> {
        if let Some(work) = self.work {
            Box::pin(drive_to_outcome(env, work)).await?;
        }
        if let Some(run) = self.stopped
            && let Some(work) = Box::pin(settle::stop(env, &run)).await?
        {
            Box::pin(drive_to_outcome(env, work)).await?;
        }
        Ok(())
    }
}
