//! A script before it starts: its files, its environment, its interpreter.

use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ebb_protocol::entrypoint::EntrypointSpec;
use ebb_protocol::entrypoint::exit::{NO_INTERPRETER, NOT_STARTABLE};
use ebb_protocol::relay::ScriptInput;
use ebb_protocol::script::{Interpreter, check_variable};
use ebb_script::interpreter::{self, InterpreterError};

/// Why a script cannot be started as it is written, in this image.
#[derive(Debug)]
pub(crate) struct StartError {
    pub(crate) message: String,
    pub(crate) code: i32,
}

/// Where programs are looked for, in the words of an error.
const PLACE: &str = "this image";

impl From<InterpreterError> for StartError {
    fn from(error: InterpreterError) -> Self {
        let code = match error {
            InterpreterError::Invalid(_) | InterpreterError::NotExecutable(_) => NOT_STARTABLE,
            InterpreterError::Missing(_) => NO_INTERPRETER,
        };
        Self { message: error.to_string(), code }
    }
}

fn not_startable(message: String) -> StartError {
    StartError { message, code: NOT_STARTABLE }
}

/// Puts the script's files where it looks for them and starts it: in a process group of its own, with nothing to read
/// from its standard input. Through its interpreter, as the kernel would, so that its folder may be mounted `noexec`.
pub(crate) fn start(spec: &EntrypointSpec) -> Result<Child, StartError> {
    // The first line before everything else: it needs nothing of the image.
    Interpreter::of(&spec.text).map_err(not_startable)?;
    for output in &spec.outputs {
        check_path(&output.path).map_err(|why| not_startable(format!("output {:?}: {why}", output.name)))?;
        if output.sensitive && spec.relay.is_none() {
            let name = &output.name;
            return Err(not_startable(format!("output {name:?} is sensitive, and there is no relay to take it")));
        }
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
        let value = value(input).map_err(within)?;
        if let Some(file) = &input.path {
            write_input(file, value.as_deref()).map_err(within)?;
        }
        if let (Some(name), Some(value)) = (&input.env, value) {
            set(name, value).map_err(|error| within(error.message))?;
        }
    }
    let interpreter = interpreter::find(&spec.text, &path, PLACE, |_| true)?;
    let script = Path::new(&spec.folder).join("script");
    fs::create_dir_all(&spec.folder)
        .and_then(|()| write(&script, spec.text.as_bytes(), 0o700))
        .map_err(|error| not_startable(format!("{}: {}", script.display(), unwritable(&error))))?;
    Command::new(interpreter.path)
        .args(interpreter.argument)
        .arg(&script)
        .envs(environment)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| not_startable(interpreter::explain(&error, interpreter.path, PLACE)))
}

fn value(input: &ScriptInput) -> Result<Option<Vec<u8>>, String> {
    let Some(value) = &input.value else { return Ok(None) };
    let bytes = value.to_bytes().ok_or("a reference to a Secret is for the relay to resolve")?;
    Ok(Some(bytes))
}

fn check_path(path: &str) -> Result<(), String> {
    match path {
        _ if path.contains('\0') => Err(format!("{path:?}: a path cannot have NUL bytes")),
        _ if !path.starts_with('/') => Err(format!("{path:?}: the path is not absolute")),
        _ if path.ends_with('/') => Err(format!("{path:?}: it names a folder")),
        _ => Ok(()),
    }
}

fn write_input(path: &str, value: Option<&[u8]>) -> Result<(), String> {
    check_path(path)?;
    let file = Path::new(path);
    let Some(value) = value else {
        // A file that the image happens to have there is not the input.
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
        // A file of somebody else's that we may write to: it is as readable as its owner has made it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

/// What is wrong with a place that cannot be written to, and what to do.
fn unwritable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("{error}: mount an emptyDir there, or choose another path")
        }
        io::ErrorKind::PermissionDenied => {
            let user = nix::unistd::getuid();
            format!("{error} for user {user}: mount an emptyDir there, or choose another path")
        }
        _ => error.to_string(),
    }
}
