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
        let (sender, count) = watch::channel(0);
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let (mut signals, sender) = (signal(kind).map_err(broken)?, sender.clone());
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        _ = signals.recv() => sender.send_modify(|count| *count += 1),
                        () = sender.closed() => return,
                    }
                }
            });
        }
        Ok(Self { count })
    }

    /// Returns a count that a test sends.
    #[cfg(test)]
    pub(crate) fn of(count: watch::Receiver<u32>) -> Self {
        Self { count }
    }

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
