//! Counts the signals that end the program.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::{CliError, Result};

/// The number of SIGINT, SIGTERM and SIGHUP signals so far.
#[derive(Clone)]
pub(crate) struct InterruptCount {
    count: watch::Receiver<u32>,
}

impl InterruptCount {
    /// Starts to handle SIGINT, SIGTERM and SIGHUP. They then no longer end the program by themselves.
    pub(crate) fn listen() -> Result<Self> {
        let broken = |error| CliError::broken("cannot handle signals").with_causes(&error);
        let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(broken)?;
        let (sender, count) = watch::channel(0);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                    () = sender.closed() => return,
                }
                sender.send_modify(|count| *count += 1);
            }
        });
        Ok(Self { count })
    }

    /// Returns a count that a test sends.
    #[cfg(test)]
    pub(crate) fn of(count: watch::Receiver<u32>) -> Self {
        Self { count }
    }

    /// Returns the number of signals so far.
    pub(crate) fn count(&self) -> u32 {
        *self.count.borrow()
    }

    /// Waits until there are more than `seen` signals.
    pub(crate) async fn more_than(&self, seen: u32) {
        let mut count = self.count.clone();
        // The sender exists as long as the runtime. An error means that the program ends.
        let _ = count.wait_for(|count| *count > seen).await;
    }
}
