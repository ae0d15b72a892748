//! The process that supervises one script, as a process or as a container. It continues when the program that started
//! it ends.
//!
//! 1. Start a session and read the request.
//! 2. Write `started`.
//! 3. Start the entrypoint, write its output to the log, and forward signals and a cancellation to it.
//! 4. After the entrypoint has ended, kill all processes that are left.
//! 5. Write the result or a tombstone.
//!
//! Guarantees: the supervisor holds the lock of the task, which is its standard input, until it ends. If it is not
//! killed, it leaves a result or a tombstone, and no process of the script, unless one is stuck in the kernel.
//! Assumption: while the lock is held, other processes write only `cancel.json` to the folder.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ebb_protocol::callback::{Callback, ReasonCode};
use ebb_protocol::relay::{EnsureTask, ScriptTask};
use ebb_script::{LogMask, ScriptWatch, WatchEvent, processes, stream};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, setsid};
use serde::de::DeserializeOwned;

use super::isolation::{OWN, RootLayout, below};
use super::process_entrypoint::{self, Answer};
use super::{
    LogWriter, PodsError, SupervisorConfig, SupervisorOutcome, TaskFailure, TaskFolder, container_task, script,
};
use crate::files::{self, StateFileError};

/// The argument that makes this program a supervisor. The folder of the task follows.
pub(super) const ARGUMENT: &str = "--ebb-script";

/// The time between `SIGTERM` and `SIGKILL` after the deadline.
const GRACE_MS: u64 = 5_000;
/// The interval at which files are polled while the script runs.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// The streams of an entrypoint: its socket, and one pipe for both of its outputs.
const STREAMS: usize = 2;

/// Runs as supervisor or entrypoint and ends the process, if the command line requests it. Otherwise does nothing.
///
/// Call it first in `main`, before a runtime or any other thread exists: only a process without threads can isolate
/// itself.
pub fn supervise_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    let Some(first) = arguments.next() else { return };
    if first == process_entrypoint::ARGUMENT {
        std::process::exit(process_entrypoint::run());
    }
    if first == ARGUMENT {
        let folder = arguments.next().map(PathBuf::from);
        std::process::exit(folder.map_or(2, |folder| supervise(&TaskFolder { folder })));
    }
}

fn supervise(task: &TaskFolder) -> i32 {
    // This fails only if this process is already the leader of a session, which is the purpose of the call.
    let _ = setsid();
    let config = read::<SupervisorConfig>(task.supervisor_config());
    let containers = config.as_ref().ok().and_then(|config| config.containers.clone());
    let outcome = config
        .and_then(|config| run(task, &config))
        .unwrap_or_else(|TaskFailure(code, why)| Some(Callback::failed(code, &why)));
    // The private root may contain secrets.
    let _ = std::fs::remove_dir_all(task.root());
    let written = match outcome {
        Some(result) => files::write_json(&task.result(), &result.fit()),
        None => task.write_tombstone(),
    };
    if let (Ok(()), Some(containers)) = (&written, containers) {
        container_task::remove(task, &containers);
    }
    let Err(error) = written else { return 0 };
    // Without a result the relay reports the task as lost.
    let _ = writeln!(io::stderr(), "{error}");
    1
}

fn read<T: DeserializeOwned>(path: PathBuf) -> Result<T, TaskFailure> {
    let found = files::read_json(&path)?;
    Ok(found.ok_or_else(|| StateFileError::Damaged { path, reason: "it is missing".to_owned() })?)
}

fn run(task: &TaskFolder, config: &SupervisorConfig) -> Result<SupervisorOutcome, TaskFailure> {
    let _ = files::write_whole(&task.folder.join("pid"), std::process::id().to_string().as_bytes());
    let request: EnsureTask<ScriptTask> = read(task.request())?;
    if task.cancel().exists() {
        return Ok(None);
    }
    match &config.containers {
        Some(containers) => container_task::run(task, &request, config, containers),
        None => run_process(task, &request, config),
    }
}

fn run_process(
    task: &TaskFolder,
    request: &EnsureTask<ScriptTask>,
    config: &SupervisorConfig,
) -> Result<SupervisorOutcome, TaskFailure> {
    let not_startable = |why: String| TaskFailure(ReasonCode::NotStartable, why);
    ebb_script::adopt_orphans().map_err(|error| PodsError::Spawn(error.into()))?;
    let mut layout =
        RootLayout::create(&task.root(), &config.state).map_err(|error| PodsError::io(&task.folder, error))?;
    let inputs = request.body.inputs.iter().filter_map(|input| Some(("input", &input.name, input.path.as_ref()?)));
    let outputs = request.body.outputs.iter().map(|output| ("output", &output.name, &output.path));
    let mut declared = inputs.chain(outputs);
    for (kind, name, path) in declared.clone() {
        layout.declare(path).map_err(|why| not_startable(format!("{kind} {name:?}: {path:?}: {why}")))?;
    }
    let begun = Instant::now();
    let watch = ScriptWatch::start(Duration::from_millis(GRACE_MS)).map_err(PodsError::Spawn)?;
    let mut process = ProcessTask { task, request, config, watch, is_cancelled: false };
    files::write_whole(&task.started(), b"")?;
    let answer = match (process.run_entrypoint(Some(&layout))?, declared.next()) {
        (Some(Err(why)), Some((_, _, path))) => {
            return Err(not_startable(format!(
                "{path}: this machine cannot give units private files ({why}): allow user namespaces \
                 (kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces), or run as root"
            )));
        }
        (Some(Err(_)), None) => process.run_entrypoint(None)?,
        (answer, _) => answer,
    };
    let killed = || TaskFailure(ReasonCode::Lost, "the supervisor of the script was killed".to_owned());
    let ended = answer.and_then(Result::ok).ok_or_else(killed);
    script::outcome(task, &request.task, config, ended, process.is_cancelled, begun)
}

struct ProcessTask<'a> {
    task: &'a TaskFolder,
    request: &'a EnsureTask<ScriptTask>,
    config: &'a SupervisorConfig,
    watch: ScriptWatch,
    is_cancelled: bool,
}

impl ProcessTask<'_> {
    /// Runs the entrypoint to its end, in the private root or without isolation. Returns `None` if it was killed.
    fn run_entrypoint(&mut self, layout: Option<&RootLayout>) -> Result<Option<Answer>, TaskFailure> {
        let root = layout.map_or_else(|| self.task.root(), |_| PathBuf::from("/"));
        let own = below(&root, Path::new(OWN));
        let spec = script::spec(self.request, self.config, GRACE_MS, &own.to_string_lossy(), None)
            .map_err(|why| TaskFailure(ReasonCode::NotStartable, why))?;
        let (mark, value) = self.task.mark();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("ebb").arg(process_entrypoint::ARGUMENT).process_group(0).env_clear();
        command.env("PATH", &self.config.path).env("LANG", "C.UTF-8").env("HOME", own.join("home")).env(mark, value);
        if layout.is_none() {
            command.env("TMPDIR", below(&root, Path::new("/tmp")));
        }
        let mut request = serde_json::to_vec(&(layout, &spec)).map_err(io::Error::from).map_err(PodsError::Spawn)?;
        request.push(b'\n');
        let answer = self.attend(command, &request, LogMask::of_inputs(&spec)).map_err(PodsError::Spawn)?;
        Ok(serde_json::from_slice(&answer).ok())
    }

    /// Starts the entrypoint with `request` and waits until the entrypoint and all processes of the script have ended.
    /// Returns its response. The log is masked.
    fn attend(&mut self, mut command: Command, request: &[u8], mut mask: LogMask) -> io::Result<Vec<u8>> {
        let (mut socket, theirs) = UnixStream::pair()?;
        let (printed, output) = io::pipe()?;
        let mut log = LogWriter::create(&self.task.folder)?;
        command.stdin(OwnedFd::from(theirs)).stdout(output.try_clone()?).stderr(output);
        let entrypoint = Pid::from_raw(i32::try_from(command.spawn()?.id()).unwrap_or(i32::MAX));
        // The command has copies of its streams, which are closed with the last copy.
        drop(command);
        let (sender, answer) = channel();
        stream::forward(socket.try_clone()?, &self.watch.sender(), move |bytes| drop(sender.send(bytes.to_vec())));
        stream::forward(printed, &self.watch.sender(), move |bytes| {
            // A full disk must not stop the script.
            let _ = log.push(&mask.push(bytes));
        });
        // The write fails only if the entrypoint was killed.
        let _ = socket.write_all(request);
        let mut is_told = false;
        while processes::reap(entrypoint).is_none() {
            if let Some(WatchEvent::Signaled(signal)) = self.watch.next(Instant::now() + POLL_INTERVAL) {
                let _ = kill(entrypoint, signal);
            }
            if !is_told && let Some(grace_ms) = self.task.cancellation() {
                let _ = socket.write_all(&grace_ms.to_le_bytes());
                (is_told, self.is_cancelled) = (true, true);
            }
            // A script may have stopped the entrypoint, which then enforces neither deadlines nor cancellations.
            let stopped = waitid(Id::Pid(entrypoint), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
            if matches!(stopped, Ok(WaitStatus::Stopped(..))) {
                let _ = kill(entrypoint, Signal::SIGCONT);
            }
        }
        self.watch.finish(entrypoint, STREAMS);
        Ok(answer.try_iter().flatten().collect())
    }
}
