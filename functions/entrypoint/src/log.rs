//! Carrying what a script prints to our own outputs, unchanged, while its end is kept.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Child;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebb_script::{WatchEvent, stream};

use crate::tail::LogTail;

/// The end of the log, which two carriers write and the heartbeats read.
pub(crate) type SharedTail = Arc<Mutex<LogTail>>;

/// Looks into the log. A carrier that panicked has left bytes, not a broken state.
pub(crate) fn lock(tail: &SharedTail) -> MutexGuard<'_, LogTail> {
    tail.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries both output streams until all writers are gone. Returns how many streams that are. The script waits when our
/// own outputs are not read, as it would without us.
pub(crate) fn forward(script: &mut Child, tail: &SharedTail, events: &Sender<WatchEvent>) -> io::Result<usize> {
    let mut streams = 0;
    if let Some(from) = script.stdout.take() {
        start(from, io::stdout().as_fd().try_clone_to_owned()?, tail, events);
        streams += 1;
    }
    if let Some(from) = script.stderr.take() {
        start(from, io::stderr().as_fd().try_clone_to_owned()?, tail, events);
        streams += 1;
    }
    Ok(streams)
}

fn start(from: impl Read + Send + 'static, to: OwnedFd, tail: &SharedTail, events: &Sender<WatchEvent>) {
    let (tail, mut to) = (Arc::clone(tail), Some(File::from(to)));
    stream::forward(from, events, move |bytes| {
        lock(&tail).push(bytes);
        // A missing reader stops neither the script nor its log.
        if to.as_mut().is_some_and(|to| to.write_all(bytes).is_err()) {
            to = None;
        }
    });
}
