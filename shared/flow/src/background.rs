//! Work that outlives the request that it came with.
//!
//! A request is accepted when its state is durable. Its answer waits for the work that follows, but only for
//! 0.5 s; the rest runs after the answer. Neither a connection that closes nor a slow receiver ends that work.
//! One machine joins it when it stops. Lambda joins it between the answer and the next event, because it freezes a function
//! that asks for the next event.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebb_engine::{RunEvent, accept};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::follow_up::FollowUp;

/// How long an answer waits for the work that follows from its request. Most receivers answer sooner, and then the answer
/// costs no write.
const MAX_RESPONSE_DELAY: Duration = Duration::from_millis(500);

/// The tasks of accepted requests.
#[derive(Debug, Default)]
pub struct BackgroundTasks(Mutex<JoinSet<()>>);

impl BackgroundTasks {
    fn tasks(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        // The set is whole after every operation.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts `work` as a task of its own.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    /// Waits until no task is left.
    pub async fn join(&self) {
        loop {
            let mut tasks = std::mem::take(&mut *self.tasks());
            if tasks.is_empty() {
                return;
            }
            // A task that panicked has said so.
            while tasks.join_next().await.is_some() {}
        }
    }
}

/// Does what follows from an accepted request. Returns what is still under way when the answer has waited long enough. If
/// the run cannot be made due, the answer waits for all of it.
///
/// # Errors
/// The store's, if the work ends within that time.
pub async fn run_follow_up(env: &Arc<Env>, follow_up: FollowUp) -> Result<Option<BoxFuture<'static, ()>>, FlowError> {
    let run = follow_up.run().cloned();
    let (own, work_env) = (Arc::clone(env), Arc::clone(env));
    let hasten = async move {
        let Some(run) = run else { return Ok(()) };
        // A sender that was answered does not repeat its request. If this process dies, the schedule finds the run.
        // Refused where the run is due sooner.
        let due = own.now().plus(own.settings.response_window());
        own.store.patch_run(&run, &accept(RunEvent::WakeupAdvanced { due })).await?;
        Ok(())
    };
    let rest = wait(async move { follow_up.finish(&work_env).await }, hasten).await?;
    Ok(rest.map(|rest| {
        async move {
            if let Err(error) = rest.await {
                tracing::warn!(%error, "the run is looked at when it is due");
            }
        }
        .boxed()
    }))
}

/// Waits for `work` as long as an answer does, then does `hasten` and returns the rest of `work`. If `hasten` fails, the
/// requests under way are answered and recorded first.
async fn wait<'a>(
    work: impl Future<Output = Result<(), FlowError>> + Send + 'a,
    hasten: impl Future<Output = Result<(), FlowError>>,
) -> Result<Option<BoxFuture<'a, Result<(), FlowError>>>, FlowError> {
    let mut work = work.boxed();
    if let Ok(done) = tokio::time::timeout(MAX_RESPONSE_DELAY, &mut work).await {
        return done.map(|()| None);
    }
    if let Err(error) = hasten.await {
        tracing::warn!(%error, "the run could not be made due; the answer waits for its work");
        return work.await.map(|()| None);
    }
    Ok(Some(work))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;

    fn unwritten() -> Result<(), FlowError> {
        Err(FlowError::Contended("a run".to_owned()))
    }

    /// Work that ends once it was tried to make the run due, and the trial.
    fn after_the_wait<'a>(
        ended: &'a AtomicBool,
        end: Result<(), FlowError>,
        hastened: Result<(), FlowError>,
    ) -> (impl Future<Output = Result<(), FlowError>> + 'a, impl Future<Output = Result<(), FlowError>>) {
        let (release, released) = tokio::sync::oneshot::channel();
        let work = async move {
            released.await.unwrap();
            ended.store(true, SeqCst);
            end
        };
        let hasten = async move {
            release.send(()).unwrap();
            hastened
        };
        (work, hasten)
    }

    #[tokio::test]
    async fn requests_under_way_are_awaited_if_their_run_cannot_be_made_due() {
        for (hastened, is_awaited) in [(Ok(()), false), (unwritten(), true)] {
            let ended = AtomicBool::new(false);
            let (work, hasten) = after_the_wait(&ended, Ok(()), hastened);
            let rest = wait(work, hasten).await.unwrap();
            assert_eq!((ended.load(SeqCst), rest.is_none()), (is_awaited, is_awaited));
            if let Some(rest) = rest {
                rest.await.unwrap();
            }
            assert!(ended.load(SeqCst));
        }
    }

    #[tokio::test]
    async fn the_answer_tells_what_work_failed_with() {
        let ended = AtomicBool::new(false);
        let (work, hasten) = after_the_wait(&ended, unwritten(), unwritten());
        assert!(wait(work, hasten).await.is_err());
        assert!(wait(async { unwritten() }, async { Ok(()) }).await.is_err());
    }
}
