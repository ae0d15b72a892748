//! Runs computations on threads that do not serve requests.

use tokio::runtime::Handle;
use tokio::task;

use crate::error::{FlowError, FlowResult};

/// Runs `compute` on a blocking thread. Without a runtime, runs it on this thread.
///
/// # Errors
/// Returns [`FlowError::Broken`] if `compute` panics.
pub async fn offload<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> FlowResult<T> {
    if Handle::try_current().is_err() {
        return Ok(compute());
    }
    task::spawn_blocking(compute).await.map_err(|error| FlowError::Broken(format!("a computation panicked: {error}")))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn other_tasks_run_during_a_call() {
        let (sender, receiver) = mpsc::channel();
        // The only thread of this runtime must be free to send the message.
        let compute = offload(move || receiver.recv().is_ok());
        let (received, ()) = tokio::join!(compute, async move { sender.send(()).unwrap() });
        assert!(received.unwrap());
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let broken: FlowResult<()> = offload(|| panic!("as planned")).await;
        assert!(matches!(broken, Err(FlowError::Broken(_))));
    }
}
