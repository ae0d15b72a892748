//! The end of a log and the progress of a script, in bounded memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{LogMask, ProgressLine};

/// The last bytes of a log. Clones share them: the threads that forward output write to them, and heartbeats read them.
#[derive(Clone, Debug)]
pub struct LogTail(Arc<Mutex<TailBytes>>);

#[derive(Debug)]
struct TailBytes {
    kept: VecDeque<u8>,
    most: usize,
    total: u64,
    progress: Option<ProgressLine>,
}

impl LogTail {
    /// Keeps at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(TailBytes { kept: VecDeque::new(), most, total: 0, progress: None })))
    }

    fn lock(&self) -> MutexGuard<'_, TailBytes> {
        // The bytes are consistent even if a thread panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, bytes: &[u8]) {
        let mut tail = self.lock();
        tail.total += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(tail.most)..];
        let over = (tail.kept.len() + bytes.len()).saturating_sub(tail.most);
        tail.kept.drain(..over);
        tail.kept.extend(bytes);
    }

    pub(crate) fn set_progress(&self, progress: ProgressLine) {
        self.lock().progress = Some(progress);
    }

    pub fn progress(&self) -> Option<ProgressLine> {
        self.lock().progress.clone()
    }

    /// Returns the number of bytes that were ever printed.
    pub fn total(&self) -> u64 {
        self.lock().total
    }

    /// Returns the kept bytes as text, like [`LogMask::tail_text`].
    pub fn text(&self, mask: &LogMask) -> String {
        let mut tail = self.lock();
        let (is_cut, most) = (tail.total > tail.kept.len() as u64, tail.most);
        mask.tail_text(tail.kept.make_contiguous(), is_cut, most)
    }
}

#[cfg(test)]
mod tests {
    use ebb_protocol::script::end_of;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_tail_has_the_last_bytes(pieces in vec(vec(any::<u8>(), 0..40), 0..20), limit in 0_usize..60) {
            let tail = LogTail::new(limit);
            let mut all = Vec::new();
            for piece in pieces {
                tail.push(&piece);
                all.extend(piece);
                prop_assert_eq!(tail.total(), all.len() as u64);
                prop_assert!(tail.lock().kept.iter().eq(&all[all.len().saturating_sub(limit)..]));
                prop_assert!(tail.text(&LogMask::default()).len() <= limit);
            }
        }

        #[test]
        fn text_is_truncated_between_characters(text in "\\PC{0,40}", limit in 0_usize..60) {
            let tail = LogTail::new(limit);
            tail.push(text.as_bytes());
            prop_assert_eq!(tail.text(&LogMask::default()), end_of(text, limit));
        }
    }
}
