//! Sources of the files that `@{embed: …}` names.

use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

/// The most bytes that one embedded file may have: 4 MiB, the limit of a whole document.
pub const MAX_FILE: u64 = 4 << 20;

/// Why an embedded file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It would be outside the document's directory.
    #[error("`{0}` leaves the directory of the document")]
    Outside(String),
    #[error("there is no file `{0}`")]
    Missing(String),
    /// It is not a regular file.
    #[error("`{0}` is not a file")]
    NotAFile(String),
    /// It has more than [`MAX_FILE`] bytes.
    #[error("`{0}` has more than {MAX_FILE} bytes")]
    TooLarge(String),
    /// The documents come without files.
    #[error("`{0}` cannot be embedded here: the document has to come with everything expanded")]
    NoFiles(String),
    #[error("`{path}` cannot be read: {reason}")]
    Unreadable {
        /// The path as it was written.
        path: String,
        reason: String,
    },
}

/// Reads embedded files; paths are as the document has them, relative to it.
pub trait FileSource {
    /// The bytes of a file.
    ///
    /// # Errors
    /// When there is none, it may not be read, or is too large.
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError>;
}

/// No files: for documents that come over the wire, with everything expanded.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl FileSource for NoFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        Err(FileError::NoFiles(path.to_owned()))
    }
}

/// The files at and below a directory, which no path and no link leaves.
#[derive(Clone, Debug)]
pub struct FolderFiles {
    root: PathBuf,
}

impl FolderFiles {
    /// The directory that a document is in; for one from standard input, the working directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads files, for those who ask for it")]
impl FileSource for FolderFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let unreadable = |e: std::io::Error| FileError::Unreadable { path: path.to_owned(), reason: e.to_string() };
        let below = inside(path).ok_or_else(|| FileError::Outside(path.to_owned()))?;
        let root = self.root.canonicalize().map_err(unreadable)?;
        let file = root.join(below).canonicalize().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => FileError::Missing(path.to_owned()),
            _ => unreadable(e),
        })?;
        if !file.starts_with(&root) {
            return Err(FileError::Outside(path.to_owned()));
        }
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(FileError::NotAFile(path.to_owned()));
        }
        let mut bytes = Vec::new();
        let opened = std::fs::File::open(&file).map_err(unreadable)?;
        opened.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(FileError::TooLarge(path.to_owned()));
        }
        Ok(bytes)
    }
}

/// The path below the document's directory; an absolute one is joined below it too. `None`: it would leave it.
pub(crate) fn inside(path: &str) -> Option<PathBuf> {
    let mut below = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => below.push(part),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir => {
                if !below.pop() {
                    return None;
                }
            }
            Component::Prefix(_) => return None,
        }
    }
    (!below.as_os_str().is_empty()).then_some(below)
}
