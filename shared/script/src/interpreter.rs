//! The program that runs a script: the one that its first line names, else `/bin/sh`.

use std::env;
use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ebb_protocol::script::Interpreter;
use nix::errno::Errno;

/// Runs scripts whose first line names no interpreter.
const DEFAULT: Interpreter<'static> = Interpreter { path: "/bin/sh", argument: None };

/// The reason why a script has no interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterpreterError {
    /// The script or its first line is malformed: says what is wrong.
    Invalid(String),
    /// The program does not exist: says which.
    Missing(String),
    /// The program may not be executed: says which.
    NotExecutable(String),
}

impl Display for InterpreterError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) | Self::Missing(why) | Self::NotExecutable(why) => f.write_str(why),
        }
    }
}

/// Finds the interpreter of a script. `path` is the script's `PATH`; `place` says where programs are looked for, such
/// as `this image`; `is_visible` says whether the script sees a file of this file system.
///
/// # Errors
/// [`InterpreterError`]: `exec` would only say that something is missing.
pub fn find<'a>(
    text: &'a str,
    path: &OsStr,
    place: &str,
    is_visible: impl Fn(&Path) -> bool,
) -> Result<Interpreter<'a>, InterpreterError> {
    let named = Interpreter::of(text).map_err(InterpreterError::Invalid)?;
    let chosen = named.unwrap_or(DEFAULT);
    let mode = |file: &Path| {
        let found = file.metadata().ok().filter(|found| found.is_file() && is_visible(file))?;
        Some(found.permissions().mode())
    };
    let program = chosen.path;
    match mode(Path::new(program)) {
        Some(mode) if mode & 0o111 != 0 => {}
        Some(_) => return Err(InterpreterError::NotExecutable(not_executable(program))),
        None => {
            let of = if named.is_some() { "" } else { ", which runs scripts without a first line such as #!/bin/sh" };
            return Err(InterpreterError::Missing(format!("{place} has no {program}, the script's interpreter{of}")));
        }
    }
    if let Some(name) = chosen.program()
        && !env::split_paths(path).any(|folder| mode(&folder.join(name)).is_some())
    {
        let why = format!("{place} has no {name:?}, the script's interpreter, in PATH");
        return Err(InterpreterError::Missing(why));
    }
    Ok(chosen)
}

/// Explains why the kernel did not start `interpreter`. `place` is as for [`find`].
pub fn explain(error: &io::Error, interpreter: &str, place: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_looked_for() {
        let missing = |why: &str| Err(InterpreterError::Missing(why.to_owned()));
        for (text, expected) in [
            ("#!/usr/bin/env sh\n", Ok("/usr/bin/env")),
            ("#!/no/such -x\n", missing("this machine has no /no/such, the script's interpreter")),
            (
                "#!/etc/passwd\n",
                Err(InterpreterError::NotExecutable(
                    "/etc/passwd, the script's interpreter, may not be executed".to_owned(),
                )),
            ),
            ("#!/etc\n", missing("this machine has no /etc, the script's interpreter")),
            ("#!/usr/bin/env no-such\n", missing("this machine has no \"no-such\", the script's interpreter, in PATH")),
        ] {
            let found = find(text, OsStr::new("/usr/bin:/bin"), "this machine", |_| true);
            assert_eq!(found.map(|found| found.path), expected, "{text:?}");
        }
    }

    #[test]
    fn programs_that_the_script_does_not_see_are_missing() {
        let found = find("true", OsStr::new("/bin"), "this image", |file| !file.starts_with("/bin"));
        let expected = "this image has no /bin/sh, the script's interpreter, which runs scripts without a first line \
                        such as #!/bin/sh";
        assert_eq!(found, Err(InterpreterError::Missing(expected.to_owned())));
    }
}
