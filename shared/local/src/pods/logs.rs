//! The log of a script, in bounded space: the first [`HEAD`] bytes in `log.0`, then segments `log.1`, `log.2`, … of
//! [`SEGMENT`] bytes, of which the last two are kept.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ebb_protocol::limits::LOG_TAIL;
use ebb_protocol::script::end_of;

use super::folder;

/// Bytes at the start that are always kept.
const HEAD: usize = 64 << 10;
/// Bytes of a segment: two of them hold at least the tail.
const SEGMENT: usize = LOG_TAIL;

#[derive(Debug)]
pub(super) struct LogWriter {
    folder: PathBuf,
    number: u64,
    room: usize,
    file: File,
}

impl LogWriter {
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let file = File::create(segment(folder, 0))?;
        Ok(Self { folder: folder.to_owned(), number: 0, room: HEAD, file })
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.room == 0 {
                self.next()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.room));
            self.file.write_all(now)?;
            self.room -= now.len();
            bytes = later;
        }
        Ok(())
    }

    fn next(&mut self) -> io::Result<()> {
        self.file = File::create(segment(&self.folder, self.number + 1))?;
        self.number += 1;
        self.room = SEGMENT;
        if self.number >= 3 {
            fs::remove_file(segment(&self.folder, self.number - 2))?;
        }
        Ok(())
    }
}

/// Returns at most the last `most` bytes of the log in `folder`, from the start of a character.
pub(super) fn tail(folder: &Path, most: usize) -> Vec<u8> {
    // A segment may be removed while this reads; then there is a newer one.
    for _ in 0..10 {
        let numbers = numbers(folder);
        let last = &numbers[numbers.len().saturating_sub(2)..];
        let mut bytes = Vec::new();
        if last.iter().all(|number| {
            fs::read(segment(folder, *number)).is_ok_and(|mut part| {
                bytes.append(&mut part);
                true
            })
        }) {
            let mut from = bytes.len().saturating_sub(most);
            if from > 0 {
                while from < bytes.len() && bytes[from] & 0b1100_0000 == 0b1000_0000 {
                    from += 1;
                }
            }
            return bytes.split_off(from);
        }
    }
    Vec::new()
}

/// Returns [`tail`] as text of at most `most` bytes. Bytes that are not UTF-8 are replaced.
pub(super) fn tail_text(folder: &Path, most: usize) -> String {
    end_of(String::from_utf8_lossy(&tail(folder, most)).into_owned(), most)
}

/// Returns the kept part of the log: its start, the number of bytes that are left out, and its end. `None`: there is no log.
pub(super) fn whole(folder: &Path) -> Option<Vec<u8>> {
    let numbers = numbers(folder);
    let last = *numbers.last()?;
    let mut bytes = fs::read(segment(folder, 0)).ok()?;
    if last == 0 {
        return Some(bytes);
    }
    if last >= 3 {
        let gone = (last - 2).saturating_mul(SEGMENT as u64);
        bytes.extend_from_slice(format!("\n[… {gone} bytes left out …]\n").as_bytes());
    }
    for number in numbers.into_iter().filter(|number| *number > 0) {
        bytes.extend(fs::read(segment(folder, number)).unwrap_or_default());
    }
    Some(bytes)
}

fn segment(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("log.{number}"))
}

fn numbers(folder: &Path) -> Vec<u64> {
    let names = folder::names(folder).unwrap_or_default();
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| name.strip_prefix("log.")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_start_and_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogWriter::create(folder.path()).unwrap();
        let line = |number: usize| format!("line {number:07}\n");
        let lines = 400_000;
        for number in 0..lines {
            log.push(line(number).as_bytes()).unwrap();
        }
        let end = tail_text(folder.path(), LOG_TAIL);
        assert_eq!(end.len(), LOG_TAIL);
        assert!(end.ends_with(&line(lines - 1)));
        let whole = String::from_utf8(whole(folder.path()).unwrap()).unwrap();
        assert!(whole.starts_with(&line(0)));
        assert!(whole.ends_with(&end));
        let (start, rest) = whole.split_once("\n[… ").unwrap();
        let (gone, rest) = rest.split_once(" bytes left out …]\n").unwrap();
        assert_eq!(start.len() + gone.parse::<usize>().unwrap() + rest.len(), lines * line(0).len());
        let kept: u64 =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(kept <= (HEAD + 2 * SEGMENT) as u64);
    }

    #[test]
    fn a_short_log_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(whole(folder.path()), None);
        assert_eq!(tail_text(folder.path(), 10), "");
        let mut log = LogWriter::create(folder.path()).unwrap();
        log.push("naïve".as_bytes()).unwrap();
        assert_eq!(tail_text(folder.path(), 10), "naïve");
        // The cut falls into the middle of `ï`.
        assert_eq!(tail_text(folder.path(), 3), "ve");
        assert_eq!(whole(folder.path()).unwrap(), "naïve".as_bytes());
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_within_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        LogWriter::create(folder.path()).unwrap().push(&[0xff; 100]).unwrap();
        assert_eq!(tail_text(folder.path(), 50), "\u{fffd}".repeat(16));
    }
}
