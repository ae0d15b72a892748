//! Carrying what a script prints to our own outputs, unchanged, while its end is kept.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Child;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::tail::Tail;
use crate::watch::Event;

/// The end of the log, which two carriers write and the heartbeats read.
pub(crate) type Shared = Arc<Mutex<Tail>>;

/// Looks into the log. A carrier that panicked has left bytes, not a broken state.
pub(crate) fn lock(tail: &Shared) -> MutexGuard<'_, Tail> {
    tail.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries until nobody can print any more; each of the two says [`Event::Drained`] then. The script waits when our own
/// outputs are not read, as it would without us.
pub(crate) fn carry(script: &mut Child, tail: &Shared, events: &Sender<Event>) -> io::Result<()> {
    if let Some(from) = script.stdout.take() {
        start(from, io::stdout().as_fd().try_clone_to_owned()?, tail, events);
    }
    if let Some(from) = script.stderr.take() {
        start(from, io::stderr().as_fd().try_clone_to_owned()?, tail, events);
    }
    Ok(())
}

fn start(mut from: impl Read + Send + 'static, to: OwnedFd, tail: &Shared, events: &Sender<Event>) {
    let (tail, events) = (Arc::clone(tail), events.clone());
    thread::spawn(move || {
        let mut to = Some(File::from(to));
        let mut buffer = vec![0; 64 << 10];
        loop {
            let bytes = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => &buffer[..count],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            lock(&tail).push(bytes);
            // Nobody reads: no reason to stop the script, nor to stop keeping its log.
            if to.as_mut().is_some_and(|to| to.write_all(bytes).is_err()) {
                to = None;
            }
        }
        // Nobody listens any more only when we are about to exit.
        let _ = events.send(Event::Drained);
    });
}
