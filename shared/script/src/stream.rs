//! Forwards the output of a script.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Child;
use std::sync::mpsc::Sender;
use std::thread;

use crate::progress_lines::ProgressLines;
use crate::{LogMask, LogTail, WatchEvent};

const CHUNK: usize = 64 << 10;

/// Starts a thread that passes all bytes from `from` to `take`, until all writers have closed the stream. The thread
/// then passes an empty slice and sends [`WatchEvent::Drained`].
pub fn forward(
    mut from: impl Read + Send + 'static,
    events: &Sender<WatchEvent>,
    mut take: impl FnMut(&[u8]) + Send + 'static,
) {
    let events = events.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => take(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        take(&[]);
        // The supervisor has dropped the receiver only if it is about to exit.
        let _ = events.send(WatchEvent::Drained);
    });
}

/// Forwards both output streams of a script, masked, to those of this process, and keeps their end and the progress of
/// the script in `tail`. Returns the number of streams. The script blocks while the outputs of this process are not
/// read.
pub(crate) fn forward_outputs(
    script: &mut Child,
    tail: &LogTail,
    mask: &LogMask,
    events: &Sender<WatchEvent>,
) -> usize {
    let start = |from: Box<dyn Read + Send>, to: io::Result<OwnedFd>| {
        let (tail, mut mask, mut to) = (tail.clone(), mask.clone(), to.ok().map(File::from));
        let mut lines = ProgressLines::default();
        forward(from, events, move |bytes| {
            let bytes = mask.push(bytes);
            tail.push(&bytes);
            if let Some(progress) = lines.push(&bytes) {
                tail.set_progress(progress);
            }
            // A missing reader stops neither the script nor its log.
            if to.as_mut().is_some_and(|to| to.write_all(&bytes).is_err()) {
                to = None;
            }
        });
        1_usize
    };
    let stdout = script.stdout.take();
    let stdout = stdout.map_or(0, |from| start(Box::new(from), io::stdout().as_fd().try_clone_to_owned()));
    let stderr = script.stderr.take();
    stdout + stderr.map_or(0, |from| start(Box::new(from), io::stderr().as_fd().try_clone_to_owned()))
}
