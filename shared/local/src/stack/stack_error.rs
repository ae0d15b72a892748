//! The error of the start of a stack.

use std::io;
use std::path::PathBuf;

use crate::files::StateFileError;

#[derive(Debug, thiserror::Error)]
pub enum StackError {
    #[error("{0} is in use by another `ebb`: stop it, or choose another folder with --state")]
    InUse(PathBuf),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error(transparent)]
    File(#[from] StateFileError),
    /// Targets live whose units may have run in another part than the one of this start.
    #[error(
        "the units of the targets in {} have run with `{last}`, and this start has `{new}`, which would undo nothing: \
         {living}, and maybe others, live. Start as before and delete them first. If their cluster or engine does not \
         exist any more, remove {}; what they have created then counts as undone",
        state.display(), file.display()
    )]
    OtherBackend { state: PathBuf, file: PathBuf, last: String, new: String, living: String },
    #[error("{what} does not start: {reason}")]
    Part { what: &'static str, reason: String },
}

impl StackError {
    pub(super) fn part<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Part { what, reason: error.to_string() }
    }
}
