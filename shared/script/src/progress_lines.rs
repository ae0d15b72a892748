//! Finds the lines by which a script reports its progress: `::ebb progress 40% loading`.

use ebb_protocol::limits;

const PREFIX: &[u8] = b"::ebb progress ";
/// Bytes of a line that are read. They hold the longest progress in any characters.
const MAX_LINE: usize = PREFIX.len() + 4 * limits::PROGRESS;

/// Reads an output stream, which arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct ProgressLines {
    /// The beginning of the last line.
    line: Vec<u8>,
}

impl ProgressLines {
    /// Returns the last progress that ends in the next piece of the stream.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Option<String> {
        let mut last = None;
        for (number, part) in piece.split(|&byte| byte == b'\n').enumerate() {
            if number > 0 {
                last = progress_of(&self.line).or(last);
                self.line.clear();
            }
            let room = MAX_LINE - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
        }
        last
    }
}

/// Returns the last progress in a log.
pub fn last_progress(log: &str) -> Option<String> {
    log.split_inclusive('\n').rev().find_map(|line| progress_of(line.strip_suffix('\n')?.as_bytes()))
}

fn progress_of(line: &[u8]) -> Option<String> {
    limits::progress(&String::from_utf8_lossy(line.strip_prefix(PREFIX)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_found_wherever_the_output_is_split() {
        let long = format!("::ebb progress {}\n", "\u{1f469}".repeat(2 * limits::PROGRESS));
        for (log, expected) in [
            ("a\n::ebb progress 40% loading\r\nb", Some("40% loading")),
            ("::ebb progress 1\n::ebb progress 2\n::ebb progress 3", Some("2")),
            ("::ebb progress 1\n::ebb progress \u{7}\n", Some("1")),
            (" ::ebb progress 1\n::ebb progress\n::ebb progress2\n", None),
            ("", None),
            (&long, Some(&*"\u{1f469}".repeat(limits::PROGRESS))),
        ] {
            assert_eq!(last_progress(log).as_deref(), expected, "{log:?}");
            for at in 0..log.len() {
                let (first, second) = log.as_bytes().split_at(at);
                let mut lines = ProgressLines::default();
                let before = lines.push(first);
                assert_eq!(lines.push(second).or(before).as_deref(), expected, "{log:?} split at {at}");
                assert!(lines.line.len() <= MAX_LINE);
            }
        }
    }
}
