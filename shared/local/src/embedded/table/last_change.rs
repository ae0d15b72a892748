//! The file `last-change` in the state folder: the id of the table, and the number of its changes at the last commit.
//!
//! SQLite ignores a log from its first damaged frame on, and reads the log of any other table. So a start compares the
//! table with this file, which is written after each commit and before its answers.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::files::{self, StateFileError};

#[derive(Debug)]
pub(super) struct ChangeCount {
    pub(super) id: u64,
    pub(super) changes: u64,
}

impl ChangeCount {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached("SELECT id, changes FROM state")?;
        let number = |row: &rusqlite::Row<'_>, column| row.get(column).map(i64::cast_unsigned);
        statement.query_row([], |row| Ok(Self { id: number(row, 0)?, changes: number(row, 1)? }))
    }

    /// Returns a text that has the same length for all counts.
    pub(super) fn text(&self) -> String {
        format!("{:<60}\n", format!("change {} of table {:016x}", self.changes, self.id))
    }

    fn parse(text: &str) -> Option<Self> {
        let (changes, id) = text.trim_end().strip_prefix("change ")?.split_once(" of table ")?;
        Some(Self { id: u64::from_str_radix(id, 16).ok()?, changes: changes.parse().ok()? })
    }
}

pub(super) fn path(state: &Path) -> PathBuf {
    state.join("last-change")
}

/// Compares the file with a table that has this count, or no content. Returns `None` if the table has all changes.
/// Otherwise returns the text of the file.
pub(super) fn expected(state: &Path, found: Option<&ChangeCount>) -> Result<Option<String>, StateFileError> {
    let text = files::read(&path(state))?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let recorded = text.as_deref().map(ChangeCount::parse);
    let fits = match (recorded, found) {
        (None, None) => true,
        (Some(Some(recorded)), None) => recorded.changes == 0,
        (Some(Some(recorded)), Some(found)) => recorded.id == found.id && found.changes >= recorded.changes,
        (None | Some(None), _) => false,
    };
    Ok((!fits).then(|| text.as_deref().unwrap_or("the file `last-change`").trim().to_owned()))
}

#[derive(Debug)]
pub(in crate::embedded) struct ChangeRecord(File);

impl ChangeRecord {
    /// Writes the file, so that it survives a power failure.
    pub(super) fn create(state: &Path, count: &ChangeCount) -> Result<Self, StateFileError> {
        let path = path(state);
        files::write_whole(&path, count.text().as_bytes())?;
        Ok(Self(OpenOptions::new().write(true).open(&path).map_err(|error| StateFileError::io(&path, error))?))
    }

    /// Writes the count of a commit. It survives a killed process.
    pub(super) fn write(&self, count: &ChangeCount) {
        if let Err(error) = self.0.write_all_at(count.text().as_bytes(), 0) {
            tracing::warn!(%error, "cannot write `last-change`; the next start does not notice the loss of this write");
        }
    }
}
