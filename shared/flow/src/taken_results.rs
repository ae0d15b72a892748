//! Results that a function instance takes while it dispatches their attempts. A callback may arrive before the response to
//! its request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ebb_engine::{Attempt, Unit};
use ebb_protocol::id::RunId;
use tokio::sync::watch;

use crate::lock::lock;

type AttemptKey = (RunId, Unit, Attempt);

/// The attempts that this function instance is dispatching.
#[derive(Default)]
pub(crate) struct TakenResults(Mutex<HashMap<AttemptKey, watch::Sender<bool>>>);

impl TakenResults {
    /// Begins to observe the result of an attempt. Of two concurrent dispatches of an attempt, one observes it.
    pub(crate) fn observe(self: &Arc<Self>, run: &RunId, unit: Unit, attempt: Attempt) -> ExpectedResult {
        let key = (run.clone(), unit, attempt);
        let (sender, taken) = watch::channel(false);
        lock(&self.0).insert(key.clone(), sender);
        ExpectedResult { results: Arc::clone(self), key, taken }
    }

    /// Notes that the result of an attempt is stored in its run.
    pub(crate) fn note(&self, run: &RunId, unit: Unit, attempt: Attempt) {
        if let Some(sender) = lock(&self.0).get(&(run.clone(), unit, attempt)) {
            sender.send_replace(true);
        }
    }
}

/// The result of an attempt that is being dispatched.
pub(crate) struct ExpectedResult {
    results: Arc<TakenResults>,
    key: AttemptKey,
    taken: watch::Receiver<bool>,
}

impl ExpectedResult {
    pub(crate) fn is_taken(&self) -> bool {
        *self.taken.borrow()
    }

    /// Waits until this function instance has taken the result, or another dispatch of the attempt observes it.
    pub(crate) async fn taken(&mut self) {
        self.taken.wait_for(|taken| *taken).await.ok();
    }
}

impl Drop for ExpectedResult {
    fn drop(&mut self) {
        lock(&self.results.0).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use ebb_engine::Hook;
    use futures::future::poll_immediate;

    use super::*;

    #[tokio::test]
    async fn a_result_is_noted_for_its_attempt_during_the_dispatch() {
        let results = Arc::new(TakenResults::default());
        let run = RunId::new("instance", 1, Hook::PreStart);
        let mut expected = results.observe(&run, Unit(0), Attempt(2));
        results.note(&run, Unit(0), Attempt(1));
        results.note(&run, Unit(1), Attempt(2));
        assert!(!expected.is_taken());
        let mut wait = Box::pin(expected.taken());
        assert_eq!(poll_immediate(&mut wait).await, None);
        results.note(&run, Unit(0), Attempt(2));
        assert_eq!(poll_immediate(&mut wait).await, Some(()));
        drop(wait);
        assert!(expected.is_taken());
        drop(expected);
        assert!(lock(&results.0).is_empty());
    }
}
