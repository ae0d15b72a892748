//! Ctrl-C, counted.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::CliError;

/// How often the person, or the system, has asked the program to end.
#[derive(Clone)]
pub(crate) struct InterruptCount {
    count: watch::Receiver<u32>,
}

impl InterruptCount {
    /// Listens to SIGINT, SIGTERM and SIGHUP (the terminal is closed) from now on; none ends the program by itself any more.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let broken = |error| CliError::broken("signals cannot be listened to").with_causes(&error);
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

    /// How many there were.
    pub(crate) fn count(&self) -> u32 {
        *self.count.borrow()
    }

    /// Waits for more than `seen` of them.
    pub(crate) async fn more_than(&self, seen: u32) {
        let mut count = self.count.clone();
        // The sender lives as long as the runtime: an error means that the program ends anyway.
        let _ = count.wait_for(|count| *count > seen).await;
    }
}
