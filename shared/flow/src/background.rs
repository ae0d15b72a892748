//! Runs the follow-up of a request, partly after its response.
//!
//! A request is accepted when its state is durable. The response waits up to 0.5 s for the follow-up. The rest runs
//! after the response. A closed connection or a slow receiver does not end the follow-up. A machine joins these tasks
//! when it stops. Lambda freezes a function between events, so the function joins them before it requests the next
//! event.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebb_engine::{RunEvent, accept};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use crate::{Env, FlowResult, FollowUp, lock};

/// Maximum delay of a response by its follow-up. Most receivers respond sooner. No write is then needed to make the run
/// due.
const MAX_RESPONSE_DELAY: Duration = Duration::from_millis(500);

/// The tasks of accepted requests.
#[derive(Debug, Default)]
pub struct BackgroundTasks(Mutex<JoinSet<()>>);

impl BackgroundTasks {
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.0);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    pub async fn join(&self) {
        loop {
            let mut tasks = std::mem::take(&mut *lock(&self.0));
            if tasks.is_empty() {
                return;
            }
            // The panic of a task is already logged.
            while tasks.join_next().await.is_some() {}
        }
    }
}

/// Runs the follow-up of an accepted request for up to 0.5 s. If it takes longer, makes the run due and returns the rest
/// of the follow-up. If the run cannot be made due, waits for the whole follow-up.
///
/// # Errors
/// Returns the error of the follow-up if it fails before this function returns.
pub async fn run_follow_up(env: &Arc<Env>, follow_up: FollowUp) -> FlowResult<Option<BoxFuture<'static, ()>>> {
    // A cancelled run is due soon anyway.
    let run = follow_up.continuation.as_ref().map(|continuation| continuation.run.id.clone());
    let (own, follow_up_env) = (Arc::clone(env), Arc::clone(env));
    let wake_up = async move {
        let Some(run) = run else { return Ok(()) };
        // A sender with a response does not repeat its request. If this process ends early, the schedule finds the run.
        // The write is rejected if the run is due sooner.
        let due = own.now().plus(own.settings.response_window());
        own.store.patch_run(&run, &accept(RunEvent::WakeupAdvanced { due })).await?;
        Ok(())
    };
    let rest = wait(async move { follow_up.finish(&follow_up_env).await }, wake_up).await?;
    Ok(rest.map(|rest| {
        async move {
            if let Err(error) = rest.await {
                tracing::warn!(%error, "the follow-up failed; sweep continues when the run is due");
            }
        }
        .boxed()
    }))
}

/// Waits for `follow_up` for the maximum delay, then runs `wake_up` and returns the rest of `follow_up`. If `wake_up`
/// fails, waits for all of `follow_up`.
async fn wait<'a>(
    follow_up: impl Future<Output = FlowResult<()>> + Send + 'a,
    wake_up: impl Future<Output = FlowResult<()>>,
) -> FlowResult<Option<BoxFuture<'a, FlowResult<()>>>> {
    let mut follow_up = follow_up.boxed();
    if let Ok(done) = tokio::time::timeout(MAX_RESPONSE_DELAY, &mut follow_up).await {
        return done.map(|()| None);
    }
    if let Err(error) = wake_up.await {
        tracing::warn!(%error, "cannot make the run due; the response waits for the follow-up");
        return follow_up.await.map(|()| None);
    }
    Ok(Some(follow_up))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;
    use crate::error::FlowError;

    fn write_error() -> FlowResult<()> {
        Err(FlowError::Contended("a run".to_owned()))
    }

    /// The follow-up ends after its wake-up was attempted.
    #[tokio::test]
    async fn a_follow_up_is_awaited_if_its_run_cannot_be_made_due() {
        for (end, woken, is_awaited, is_error) in [
            (Ok(()), Ok(()), false, false),
            (Ok(()), write_error(), true, false),
            (write_error(), write_error(), true, true),
        ] {
            let has_ended = AtomicBool::new(false);
            let (release, released) = tokio::sync::oneshot::channel();
            let follow_up = async {
                released.await.unwrap();
                has_ended.store(true, SeqCst);
                end
            };
            let wake_up = async {
                release.send(()).unwrap();
                woken
            };
            let rest = wait(follow_up, wake_up).await;
            assert_eq!((has_ended.load(SeqCst), rest.is_err()), (is_awaited, is_error));
            let rest = rest.unwrap_or_default();
            assert_eq!(rest.is_none(), is_awaited);
            if let Some(rest) = rest {
                rest.await.unwrap();
            }
            assert!(has_ended.load(SeqCst));
        }
        assert!(wait(async { write_error() }, async { Ok(()) }).await.is_err());
    }
}
