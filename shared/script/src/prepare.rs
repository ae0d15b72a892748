//! Prepares and starts a script: its files, its environment, its interpreter.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ebb_protocol::entrypoint::exit::{NO_INTERPRETER, NOT_STARTABLE};
use ebb_protocol::script::{Interpreter, check_variable};
use ebb_protocol::{Callback, EntrypointSpec, ReasonCode, ScriptExit, ScriptOutput};
use nix::errno::Errno;

use crate::tail::LogTail;

/// The interpreter of scripts whose first line does not name one.
const DEFAULT: Interpreter<'static> = Interpreter { path: "/bin/sh", argument: None };

/// The differences between the programs that run scripts.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The place with the interpreters, for error messages, such as `this image`.
    pub place: &'a str,
    /// The recipient of a termination signal, for error messages, such as `the pod`.
    pub supervisor: &'a str,
    /// Keeps the end of the log, which this process forwards to its own outputs. `None` means that the script writes
    /// directly to the outputs of this process, whose reader masks the sensitive inputs.
    pub tail: Option<&'a LogTail>,
}

/// The reason why a script was not started.
#[derive(Debug, PartialEq, Eq)]
pub struct StartError {
    message: String,
    /// The exit code of the entrypoint: [`NOT_STARTABLE`] or [`NO_INTERPRETER`].
    pub code: i32,
}

impl StartError {
    /// The script is invalid, or cannot be started in these surroundings.
    pub fn not_startable(message: String) -> Self {
        Self { message, code: NOT_STARTABLE }
    }

    /// Returns the end of a script that was not started.
    pub fn script_exit(&self) -> ScriptExit {
        let result = Callback::failed(ReasonCode::NotStartable, &self.message);
        ScriptExit { result, sensitive: BTreeMap::new(), exit_code: None }
    }
}

/// Writes the script's files and starts the script in its own process group, with an empty standard input. The script
/// is started through its interpreter, as the kernel would, so that its folder may be mounted `noexec`.
pub(crate) fn start(spec: &EntrypointSpec, surroundings: Surroundings<'_>) -> Result<Child, StartError> {
    let (not_startable, place) = (StartError::not_startable, surroundings.place);
    // The first line is checked first, because the check does not depend on the surroundings.
    Interpreter::of(&spec.text).map_err(not_startable)?;
    for ScriptOutput { name, path, .. } in &spec.outputs {
        check_path(path).map_err(|why| not_startable(format!("output {name:?}: {path:?}: {why}")))?;
    }
    let mut environment = Vec::new();
    let mut path = env::var_os("PATH").unwrap_or_default();
    let mut set = |name: &str, value: Vec<u8>| -> Result<(), StartError> {
        check_variable(name, &value).map_err(|why| not_startable(format!("{name:?}: {why}")))?;
        let value = OsString::from_vec(value);
        if name == "PATH" {
            path.clone_from(&value);
        }
        environment.push((name.to_owned(), value));
        Ok(())
    };
    for (name, value) in &spec.env {
        set(name, value.clone().into_bytes())?;
    }
    for input in &spec.inputs {
        let within = |why: String| not_startable(format!("input {:?}: {why}", input.name));
        let unresolved = || within("a reference to a Secret is for the relay to resolve".to_owned());
        let value = input.value.as_ref().map(|value| value.to_bytes().ok_or_else(unresolved)).transpose()?;
        if let Some(file) = &input.path {
            write_input(file, value.as_deref()).map_err(within)?;
        }
        if let (Some(name), Some(value)) = (&input.env, value) {
            set(name, value).map_err(|error| within(error.message))?;
        }
    }
    let interpreter = find_interpreter(&spec.text, &path, place)?;
    let script = Path::new(&spec.folder).join("script");
    fs::create_dir_all(&spec.folder)
        .and_then(|()| write(&script, spec.text.as_bytes(), 0o700))
        .map_err(|error| not_startable(format!("{}: {}", script.display(), unwritable(&error))))?;
    let output = || if surroundings.tail.is_some() { Stdio::piped() } else { Stdio::inherit() };
    Command::new(interpreter.path)
        .args(interpreter.argument)
        .arg(&script)
        .envs(environment)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(output())
        .stderr(output())
        .spawn()
        .map_err(|error| not_startable(explain(&error, interpreter.path, place)))
}

/// Returns the interpreter of a script. `path` is the script's `PATH`. `place` is as in [`Surroundings`].
///
/// # Errors
/// Returns [`StartError`] with the missing program. The error of `exec` would not name it.
fn find_interpreter<'a>(text: &'a str, path: &OsStr, place: &str) -> Result<Interpreter<'a>, StartError> {
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
            let message = format!("{place} has no {program}, the script's interpreter{of}");
            return Err(StartError { message, code: NO_INTERPRETER });
        }
    }
    if let Some(name) = chosen.program()
        && !env::split_paths(path).any(|folder| mode(&folder.join(name)).is_some())
    {
        let message = format!("{place} has no {name:?}, the script's interpreter, in PATH");
        return Err(StartError { message, code: NO_INTERPRETER });
    }
    Ok(chosen)
}

/// Returns the reason why the kernel did not start `interpreter`. `place` is as for [`find_interpreter`].
fn explain(error: &io::Error, interpreter: &str, place: &str) -> String {
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

/// Checks the path of an input or output.
///
/// # Errors
/// Returns the reason if it cannot be the path of a file.
pub fn check_path(path: &str) -> Result<(), &'static str> {
    match path {
        _ if path.contains('\0') => Err("a path cannot have NUL bytes"),
        _ if !path.starts_with('/') => Err("the path is not absolute"),
        _ if path.ends_with('/') => Err("it names a folder"),
        _ => Ok(()),
    }
}

fn write_input(path: &str, value: Option<&[u8]>) -> Result<(), String> {
    check_path(path).map_err(|why| format!("{path:?}: {why}"))?;
    let file = Path::new(path);
    let Some(value) = value else {
        // An existing file is not the input.
        return match fs::remove_file(file) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(format!("{path}: the input has no value, and what is there stays: {}", unwritable(&error)))
            }
            _ => Ok(()),
        };
    };
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(|error| format!("{path}: its folder cannot be made: {}", unwritable(&error)))?;
    write(file, value, 0o644).map_err(|error| format!("{path}: {}", unwritable(&error)))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    match file.set_permissions(Permissions::from_mode(mode)) {
        // Another user owns the file and allows this process to write to it. Its mode stays as it is.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

/// Returns the reason why a place cannot be written to, and a fix.
fn unwritable(error: &io::Error) -> String {
    let user = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => String::new(),
        io::ErrorKind::PermissionDenied => format!(" for user {}", nix::unistd::getuid()),
        _ => return error.to_string(),
    };
    format!("{error}{user}: mount an emptyDir there, or choose another path")
}
