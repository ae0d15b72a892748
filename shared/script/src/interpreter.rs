//! The program that runs a script. It is the interpreter that the first line names, or `/bin/sh` by default.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ebb_protocol::script::Interpreter;
use nix::errno::Errno;

use crate::StartError;

/// The interpreter of scripts whose first line does not name one.
const DEFAULT: Interpreter<'static> = Interpreter { path: "/bin/sh", argument: None };

/// Returns the interpreter of a script. `path` is the script's `PATH`. `place` is as in
/// [`Surroundings`](crate::Surroundings).
///
/// # Errors
/// Returns [`StartError`] with the missing program. The error of `exec` would not name it.
pub(crate) fn find<'a>(text: &'a str, path: &OsStr, place: &str) -> Result<Interpreter<'a>, StartError> {
    let named = Interpreter::of(text).map_err(StartError::not_startable)?;
    let chosen = named.unwrap_or(DEFAULT);
    let mode = |file: &Path| {
        let found = file.metadata().ok()?;
        found.is_file().then(|| found.permissions().mode())
    };
    let program = chosen.path;
    match mode(Path::new(program)) {
        Some(mode) if mode & 0o111 != 0 => {}
        Some(_) => return Err(StartError::not_startable(not_executable(program))),
        None => {
            let of = if named.is_some() { "" } else { ", which runs scripts without a first line such as #!/bin/sh" };
            return Err(StartError::no_interpreter(format!("{place} has no {program}, the script's interpreter{of}")));
        }
    }
    if let Some(name) = chosen.program()
        && !env::split_paths(path).any(|folder| mode(&folder.join(name)).is_some())
    {
        let why = format!("{place} has no {name:?}, the script's interpreter, in PATH");
        return Err(StartError::no_interpreter(why));
    }
    Ok(chosen)
}

/// Returns the reason why the kernel did not start `interpreter`. `place` is as for [`find`].
pub(crate) fn explain(error: &io::Error, interpreter: &str, place: &str) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::E2BIG) => {
            "all environment variables together are larger than the system allows: give large inputs a path".to_owned()
        }
        Some(Errno::EACCES) => not_executable(interpreter),
        Some(Errno::ENOENT) => {
            format!("{interpreter}, the script's interpreter, needs a loader that {place} does not have")
        }
        Some(Errno::ENOEXEC) => {
            format!("{interpreter}, the script's interpreter, is not a program for this machine")
        }
        _ => format!("the script does not start: {error}"),
    }
}

fn not_executable(interpreter: &str) -> String {
    format!("{interpreter}, the script's interpreter, may not be executed")
}
