//! Work that takes a core for a while, away from the threads that answer requests.

use tokio::runtime::Handle;
use tokio::task;

use crate::error::FlowError;

/// Runs `work` on a thread for such work, and waits for it without holding a thread that answers requests. Without a
/// runtime that has such threads, it runs at once.
///
/// # Errors
/// [`FlowError::Broken`] if the work panics.
pub async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, FlowError> {
    if Handle::try_current().is_err() {
        return Ok(work());
    }
    task::spawn_blocking(work)
        .await
        .map_err(|error| FlowError::Broken(format!("a document could not be compiled: {error}")))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn others_go_on_meanwhile() {
        let (say, hear) = mpsc::channel();
        // The only thread of this runtime has to be free to say what the work waits for.
        let work = offload(move || hear.recv().is_ok());
        let (heard, ()) = tokio::join!(work, async move { say.send(()).unwrap() });
        assert!(heard.unwrap());
    }

    #[test]
    fn without_a_runtime_it_runs_at_once() {
        let mut ready = std::pin::pin!(offload(|| 7));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(matches!(ready.as_mut().poll(&mut context), std::task::Poll::Ready(Ok(7))));
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let broken: Result<(), FlowError> = offload(|| panic!("as planned")).await;
        assert!(matches!(broken, Err(FlowError::Broken(_))));
    }
}
