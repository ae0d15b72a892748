//! The work that follows from a request whose state is durable.

use ebb_protocol::id::RunId;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::cancel;
use crate::run::dispatch_all::drive_to_outcome;
use crate::run::progress::Continuation;

/// The work that follows from an accepted request. The sweep does it too, later, if this process dies.
#[derive(Default)]
pub struct FollowUp {
    pub(crate) continuation: Option<Continuation>,
    /// A cancelled run whose units are to be killed.
    pub(crate) cancelled_run: Option<RunId>,
}

impl FollowUp {
    /// Sends `work`.
    pub(crate) fn drive(continuation: Option<Continuation>) -> Self {
        Self { continuation, ..Self::default() }
    }

    /// Returns the run that it moves, unless that run is due soon anyway.
    pub(crate) fn run(&self) -> Option<&RunId> {
        self.continuation.as_ref().map(|work| &work.run.id)
    }

    /// Does all of it.
    ///
    /// # Errors
    /// The store's; the sweep goes on with the rest.
    pub async fn finish(self, env: &Env) -> Result<(), FlowError> {
        if let Some(work) = self.continuation {
            Box::pin(drive_to_outcome(env, work)).await?;
        }
        if let Some(run) = self.cancelled_run
            && let Some(work) = Box::pin(cancel::cancel_run(env, &run)).await?
        {
            Box::pin(drive_to_outcome(env, work)).await?;
        }
        Ok(())
    }
}
