//! Work that outlives the request that it came with.
//!
//! A request is accepted when its state is durable. Its answer waits for the work that follows, but only for
//! 0.5 s; the rest runs after the answer. Neither a connection that closes nor a slow receiver ends that work.
//! One machine joins it when it stops. Lambda joins it between the answer and the next event, because it freezes a function
//! that asks for the next event.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use ebb_engine::{Event, accept};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use crate::env::Env;
use crate::error::FlowError;
use crate::follow_up::FollowUp;

/// How long an answer waits for the work that follows from its request. Most receivers answer sooner, and then the answer
/// costs no write.
const ANSWER_WAITS: Duration = Duration::from_millis(500);

/// The tasks of accepted requests.
#[derive(Debug, Default)]
pub struct Background(Mutex<JoinSet<()>>);

impl Background {
    fn tasks(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        // The set is whole after every operation.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts `work` as a task of its own.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
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

/// Returns whether a request changes something, so that it is processed to its end. A poll of a relay only reads.
pub(crate) fn is_change(request: &Request) -> bool {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    !reads && !request.uri().path().ends_with("/poll")
}

/// The work that is still under way when an answer is ready. It travels in the extensions of the answer.
#[derive(Clone)]
pub(crate) struct Remainder(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

impl Remainder {
    fn of(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(work.boxed()))))
    }

    /// Takes the remainder out of an answer.
    pub(crate) fn take(answer: &mut Response) -> Option<BoxFuture<'static, ()>> {
        let remainder = answer.extensions_mut().remove::<Self>()?;
        remainder.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Does what follows from an accepted request. Returns what is still under way when the answer has waited long enough.
///
/// # Errors
/// The store's, if the work ends within that time.
pub(crate) async fn follow(
    env: &Arc<Env>,
    follow_up: FollowUp,
) -> Result<Option<Extension<Remainder>>, FlowError> {
    let run = follow_up.run().cloned();
    let own = Arc::clone(env);
    let mut work = Box::pin(async move { follow_up.finish(&own).await });
    if let Ok(done) = tokio::time::timeout(ANSWER_WAITS, &mut work).await {
        return done.map(|()| None);
    }
    if let Some(run) = run {
        // A sender that was answered does not repeat its request. If this process dies, the schedule finds the run.
        // Refused where the run is due sooner.
        let due = env.now().plus(env.settings.sending());
        env.store.patch_run(&run, &accept(Event::Hastened { due })).await?;
    }
    Ok(Some(Extension(Remainder::of(async move {
        if let Err(error) = work.await {
            tracing::warn!(%error, "the run is looked at when it is due");
        }
    }))))
}
