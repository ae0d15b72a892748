//! The end of a log, in a bounded piece of memory.

use std::collections::VecDeque;

use ebb_protocol::script::end_of;

/// The last bytes of what was printed.
#[derive(Debug)]
pub(crate) struct LogTail {
    kept: VecDeque<u8>,
    most: usize,
    total: u64,
}

impl LogTail {
    /// Keeps at most `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { kept: VecDeque::new(), most, total: 0 }
    }

    /// Adds what was printed.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(self.most)..];
        let over = (self.kept.len() + bytes.len()).saturating_sub(self.most);
        self.kept.drain(..over);
        self.kept.extend(bytes);
    }

    /// Bytes that were ever printed.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// What is kept, as text of at most as many bytes, from the start of a character; what is no UTF-8 is replaced.
    pub(crate) fn text(&self) -> String {
        let is_cut = self.total > self.kept.len() as u64;
        let inside = |byte: &u8| is_cut && byte & 0b1100_0000 == 0b1000_0000;
        let bytes: Vec<u8> = self.kept.iter().copied().skip_while(inside).collect();
        end_of(String::from_utf8_lossy(&bytes).into_owned(), self.most)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_keeps_the_end(pieces in vec(vec(any::<u8>(), 0..40), 0..20), most in 0_usize..60) {
            let mut tail = LogTail::new(most);
            let mut all = Vec::new();
            for piece in pieces {
                tail.push(&piece);
                all.extend(piece);
                prop_assert_eq!(tail.total(), all.len() as u64);
                prop_assert!(tail.kept.iter().eq(&all[all.len().saturating_sub(most)..]));
                prop_assert!(tail.text().len() <= most);
            }
        }

        #[test]
        fn text_is_cut_between_characters(text in "\\PC{0,40}", most in 0_usize..60) {
            let mut tail = LogTail::new(most);
            tail.push(text.as_bytes());
            prop_assert_eq!(tail.text(), end_of(text, most));
        }
    }
}
