//! Sources of the files that `@{embed: …}` names.

use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

/// The maximum size of an embedded file in bytes: 4 MiB, like the limit of a whole document.
pub const MAX_FILE: u64 = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("`{0}` leaves the directory of the document")]
    Outside(String),
    #[error("there is no file `{0}`")]
    Missing(String),
    #[error("`{0}` is not a file")]
    NotAFile(String),
    #[error("`{0}` has more than {MAX_FILE} bytes")]
    TooLarge(String),
    /// Files cannot be embedded here, see [`NoFiles`].
    #[error("`{0}` cannot be embedded here: the document must come with everything expanded")]
    NoFiles(String),
    #[error("`{path}` cannot be read: {reason}")]
    Unreadable {
        /// The path from the document.
        path: String,
        reason: String,
    },
}

/// Reads embedded files. Paths are relative to the document.
pub trait FileSource {
    /// Returns the bytes of a file.
    ///
    /// # Errors
    /// Returns an error if the file does not exist, cannot or must not be read, or is too large.
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError>;
}

/// A source without files, for documents that a client sends with all `@{…}` expanded.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl FileSource for NoFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        Err(FileError::NoFiles(path.to_owned()))
    }
}

/// The files in a directory and below. Paths and links that lead out of it are rejected.
#[derive(Clone, Debug)]
pub struct FolderFiles {
    root: PathBuf,
}

impl FolderFiles {
    /// Creates a source for the directory of a document. For standard input, this is the working directory.
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
        if bytes.len() as u64 > MAX_FILE { Err(FileError::TooLarge(path.to_owned())) } else { Ok(bytes) }
    }
}

/// Returns the path relative to the document's directory. An absolute path is treated as relative too. Returns `None`
/// for a path that leads out of the directory.
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
