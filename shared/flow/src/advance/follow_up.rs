//! The follow-up of a request whose state is durable.

use ebb_protocol::id::RunId;

use crate::advance::dispatch_all::drive_until_spent;
use crate::advance::transition::NotificationSender::Invocation;
use crate::advance::{Continuation, cancel};
use crate::{Env, FlowResult};

/// The follow-up of an accepted request. If this process ends early, `sweep` does it later.
#[derive(Default)]
pub struct FollowUp {
    pub(crate) continuation: Option<Continuation>,
    /// A cancelled run whose attempts have to be stopped.
    pub(crate) cancelled_run: Option<RunId>,
}

impl FollowUp {
    pub(crate) fn drive(continuation: Option<Continuation>) -> Self {
        Self { continuation, ..Self::default() }
    }

    /// Runs the follow-up, with the notifications of its runs: it may wait for the platform. After an error, `sweep` does
    /// the rest.
    pub async fn finish(self, env: &Env) -> FlowResult<()> {
        if let Some(continuation) = self.continuation {
            Box::pin(drive_until_spent(env, continuation, None, Invocation)).await?;
        }
        if let Some(run) = self.cancelled_run
            && let Some(continuation) = Box::pin(cancel::cancel_run(env, &run)).await?
        {
            Box::pin(drive_until_spent(env, continuation, None, Invocation)).await?;
        }
        Ok(())
    }
}
