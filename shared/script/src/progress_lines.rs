//! Finds the lines by which a script reports its progress: `::ebb progress 40% loading`.

use ebb_protocol::{ScriptOutput, limits};

use crate::{LogMask, outputs};

const PREFIX: &[u8] = b"::ebb progress ";
/// Bytes of a text that are read. They hold the longest progress in any characters.
const MAX_TEXT: usize = 4 * limits::PROGRESS;
const MAX_LINE: usize = PREFIX.len() + MAX_TEXT;

/// The text of a line that reports a progress. It may have sensitive outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressLine(Vec<u8>);

impl ProgressLine {
    fn of(line: &[u8]) -> Option<Self> {
        let text = line.strip_prefix(PREFIX)?;
        cleaned(text).map(|_| Self(text.to_vec()))
    }

    /// Returns the progress for people. Masks those of the sensitive `outputs` that the script has written so far.
    pub fn text(&self, outputs: &[ScriptOutput]) -> Option<String> {
        cleaned(&LogMask::of_outputs(&outputs::sensitive(outputs)).line(&self.0, self.0.len() == MAX_TEXT))
    }
}

/// Reads an output stream, which arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct ProgressLines {
    /// The beginning of the last line.
    line: Vec<u8>,
}

impl ProgressLines {
    /// Returns the last progress that ends in the next piece of the stream.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Option<ProgressLine> {
        let mut last = None;
        for (number, part) in piece.split(|&byte| byte == b'\n').enumerate() {
            if number > 0 {
                last = ProgressLine::of(&self.line).or(last);
                self.line.clear();
            }
            let room = MAX_LINE - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
        }
        last
    }
}

pub fn last_progress(log: &str) -> Option<String> {
    ProgressLines::default().push(log.as_bytes())?.text(&[])
}

fn cleaned(text: &[u8]) -> Option<String> {
    limits::progress(&String::from_utf8_lossy(text))
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
                let last = lines.push(second).or(before).and_then(|line| line.text(&[]));
                assert_eq!(last.as_deref(), expected, "{log:?} split at {at}");
                assert!(lines.line.len() <= MAX_LINE);
            }
        }
    }

    #[test]
    fn written_sensitive_outputs_are_masked() {
        let folder = tempfile::tempdir().unwrap();
        let output = |name: &str, sensitive: bool| {
            let path = folder.path().join(name).to_str().unwrap().to_owned();
            ScriptOutput { name: name.to_owned(), path, sensitive }
        };
        let outputs = [output("dsn", true), output("host", false)];
        let line = |text: &str| ProgressLines::default().push(format!("::ebb progress {text}\n").as_bytes()).unwrap();
        let made = line("40% canary-4711 at host-1");
        assert_eq!(made.text(&outputs).as_deref(), Some("40% canary-4711 at host-1"));
        std::fs::write(&outputs[0].path, "canary-4711\n").unwrap();
        std::fs::write(&outputs[1].path, "host-1").unwrap();
        assert_eq!(made.text(&outputs).as_deref(), Some("40% *** at host-1"));
        // A value that continues after the bytes that are read.
        let before = "\u{1f469}".repeat(limits::PROGRESS - 2);
        assert_eq!(line(&format!("{before}canary-4711")).text(&outputs).as_deref(), Some(before.as_str()));
        assert_eq!(line(&format!("{before}can")).text(&outputs), Some(format!("{before}ca")));
    }
}
