//! Carrying what a script prints.

use std::io::{self, Read};
use std::sync::mpsc::Sender;
use std::thread;

use crate::watch::WatchEvent;

/// Bytes that are read at a time.
const CHUNK: usize = 64 << 10;

/// Starts a thread that hands everything of `from` to `take`, until all writers are gone. Then it sends
/// [`WatchEvent::Drained`].
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
        // The supervisor no longer listens only when it is about to exit.
        let _ = events.send(WatchEvent::Drained);
    });
}
