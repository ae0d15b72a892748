//! Stores the end of a script's log in bounded space. A file that is too long is replaced by its own end.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use ebb_protocol::entrypoint::ScriptExit;
use ebb_protocol::limits::LOG_TAIL;
use ebb_script::LogMask;

use crate::files::{self, StateFileError};

/// Bytes at which the file is replaced by its last [`LOG_TAIL`] bytes.
const MAX_FILE: usize = 4 * LOG_TAIL;

#[derive(Debug)]
pub(crate) struct LogWriter {
    path: PathBuf,
    file: File,
    bytes: usize,
}

impl LogWriter {
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join("log");
        Ok(Self { file: File::create(&path)?, path, bytes: 0 })
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes + bytes.len() > MAX_FILE {
            // Readers see the old or the new file.
            let (end, partial) = (read_end(&self.path, LOG_TAIL)?, self.path.with_extension("new"));
            self.file = File::create(&partial)?;
            self.file.write_all(&end)?;
            fs::rename(partial, &self.path)?;
            self.bytes = end.len();
        }
        self.file.write_all(bytes)?;
        self.bytes += bytes.len();
        Ok(())
    }
}

/// Returns at most the last `most` bytes of the log in `folder` as text, like [`LogMask::tail_text`].
pub(super) fn tail_text(folder: &Path, most: usize) -> String {
    masked_text(folder, most, &LogMask::default())
}

fn masked_text(folder: &Path, most: usize, mask: &LogMask) -> String {
    let bytes = read_end(&folder.join("log"), most).unwrap_or_default();
    mask.tail_text(&bytes, bytes.len() == most, most)
}

/// Masks the sensitive outputs of a script that has ended in the log in `folder`. Returns the end of the log.
pub(super) fn mask_outputs(folder: &Path, ended: &ScriptExit) -> Result<String, StateFileError> {
    let mask = LogMask::of_outputs(&ended.sensitive);
    let text = masked_text(folder, LOG_TAIL, &mask);
    if !mask.is_empty() {
        files::write_whole(&folder.join("log"), text.as_bytes())?;
    }
    Ok(text)
}

fn read_end(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(most as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_truncated_at_its_start() {
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
        let kept: u64 =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(kept <= MAX_FILE as u64);
    }

    #[test]
    fn a_short_log_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(tail_text(folder.path(), 10), "");
        let mut log = LogWriter::create(folder.path()).unwrap();
        log.push("naïve".as_bytes()).unwrap();
        assert_eq!(tail_text(folder.path(), 10), "naïve");
        // The limit is in the middle of `ï`.
        assert_eq!(tail_text(folder.path(), 3), "ve");
    }
}
