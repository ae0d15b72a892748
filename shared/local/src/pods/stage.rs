//! The step between supervisor and script: a process that isolates itself and then becomes the script.
//!
//! It is a program of its own because isolation needs a process without threads. Its standard input is a socket: it
//! reads a [`LaunchRequest`], and answers with a [`Trouble`] or, by becoming the script, with nothing.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ebb_script::interpreter;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid, setsid};
use serde::{Deserialize, Serialize};

use super::isolation::{IsolationError, RootLayout};

/// The argument that makes our program the stage.
pub(super) const ARGUMENT: &str = "--ebb-stage";
/// Where programs are looked for, in the words of an error.
pub(super) const PLACE: &str = "this machine";

/// What to start.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaunchRequest {
    /// Where it is isolated; `None`: not at all.
    pub(super) layout: Option<RootLayout>,
    /// The absolute path of the program that runs the script, and its argument.
    pub(super) interpreter: String,
    pub(super) argument: Option<String>,
    /// The script's path, as seen after isolation.
    pub(super) script: PathBuf,
    /// Its working folder, as seen after isolation.
    pub(super) folder: PathBuf,
    /// Whose child it must be when it starts.
    pub(super) supervisor: i32,
    pub(super) env: Vec<(String, Vec<u8>)>,
}

/// Why it does not start.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub(super) enum LaunchError {
    /// The machine does not let us isolate scripts.
    #[error("this machine does not let us isolate scripts ({0})")]
    Unavailable(String),
    /// The script as it is written does not start.
    #[error("{0}")]
    NotStartable(String),
    #[error("{0}")]
    Internal(String),
}

/// Starts a script whose output goes to `output`.
pub(super) fn launch(launch: &LaunchRequest, output: (OwnedFd, OwnedFd)) -> Result<Child, LaunchError> {
    let broken = |error: io::Error| LaunchError::Internal(format!("cannot start the script: {error}"));
    let (mut ours, theirs) = UnixStream::pair().map_err(broken)?;
    let mut child = Command::new("/proc/self/exe")
        .arg0("ebb")
        .arg(ARGUMENT)
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(output.0))
        .stderr(Stdio::from(output.1))
        .spawn()
        .map_err(broken)?;
    let mut ask = || -> io::Result<Vec<u8>> {
        ours.write_all(&serde_json::to_vec(launch)?)?;
        ours.shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        ours.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let trouble = match ask() {
        Ok(answer) if answer.is_empty() => return Ok(child),
        Ok(answer) => serde_json::from_slice(&answer).unwrap_or_else(|error| broken(error.into())),
        Err(error) => broken(error),
    };
    let _ = child.kill();
    let _ = child.wait();
    Err(trouble)
}

/// The stage itself; comes back only if it failed.
pub(super) fn run() -> i32 {
    let mut bytes = Vec::new();
    let prepared = io::stdin().lock().read_to_end(&mut bytes).and_then(|_| {
        // Closed by the kernel when the script begins, which is the good answer.
        io::stdin().as_fd().try_clone_to_owned()
    });
    let Ok(answer) = prepared else { return 2 };
    let trouble = become_script(&bytes);
    let text = serde_json::to_vec(&trouble).unwrap_or_else(|_| b"?".to_vec());
    let _ = UnixStream::from(answer).write_all(&text);
    1
}

fn become_script(bytes: &[u8]) -> LaunchError {
    let launch: LaunchRequest = match serde_json::from_slice(bytes) {
        Ok(launch) => launch,
        Err(error) => return LaunchError::Internal(format!("the supervisor went away: {error}")),
    };
    // A session of its own is a process group of its own too, and has no terminal.
    if let Err(error) = setsid() {
        return LaunchError::Internal(format!("no session of its own: {error}"));
    }
    match launch.layout.as_ref().map(RootLayout::enter) {
        None | Some(Ok(())) => {}
        Some(Err(IsolationError::Unavailable(why))) => return LaunchError::Unavailable(why),
        Some(Err(IsolationError::Failed(why))) => return LaunchError::NotStartable(why),
    }
    if let Err(error) = die_with(Pid::from_raw(launch.supervisor)) {
        return error;
    }
    let env = launch.env.into_iter().map(|(name, value)| (name, OsString::from_vec(value)));
    // Through its interpreter, as the kernel would, so that the state may be on a file system mounted `noexec`.
    let mut script = Command::new(&launch.interpreter);
    script.args(&launch.argument).arg(&launch.script);
    script.env_clear().envs(env).current_dir(&launch.folder).stdin(Stdio::null());
    LaunchError::NotStartable(interpreter::explain(&script.exec(), &launch.interpreter, PLACE))
}

fn die_with(supervisor: Pid) -> Result<(), LaunchError> {
    set_pdeathsig(Signal::SIGKILL).map_err(|error| LaunchError::Internal(format!("no signal at death: {error}")))?;
    // It may have died before that.
    if getppid() == supervisor { Ok(()) } else { Err(LaunchError::Internal("the supervisor died".to_owned())) }
}
