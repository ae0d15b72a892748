//! The process that stands between a script and everything else.
//!
//! Flow: take a session of its own; read what is asked; say `started` on disk; start the script; carry what it prints
//! to the log; wait for its end, its deadline or a cancellation; end all that it has left; write the result.
//!
//! Guarantees: it holds the work's lock, which it was given as its standard input, until it ends; when it ends by
//! itself there is a result or a tombstone, and no process of the script is left, unless one is stuck in the kernel.
//! Assumptions: nobody else writes to the folder while the lock is held, but for `cancel.json`.

use std::io::{self, PipeReader, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ebb_protocol::callback::{Callback, ReasonCode};
use ebb_protocol::limits::LOG_TAIL;
use ebb_script::{ScriptWatch, StopCause, WatchEvent, stream};
use nix::unistd::{getppid, setsid};

use super::PodsError;
use super::container_task;
use super::folder;
use super::logs::{self, LogWriter};
use super::outputs;
use super::script::{self, PreparedScript};
use super::stage::{self, LaunchError};
use super::task_folder::{CancelRequest, StoredRequest, SupervisorConfig, TaskFolder, TaskLifetime};

/// The argument that makes our program a supervisor; the work's folder follows.
pub(super) const ARGUMENT: &str = "--ebb-script";

/// Between `SIGTERM` and `SIGKILL` when the deadline has passed, and when the starter has gone.
const GRACE: Duration = Duration::from_secs(5);
/// How often files are looked at while the script runs.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Output streams of a script: both of its outputs are one pipe.
const STREAMS: usize = 1;

/// Runs as supervisor and ends the process if the command line says so; else does nothing.
///
/// Call it first in `main`, before a runtime or any other thread exists: a script is isolated by the process that
/// becomes it, which only works without threads.
pub fn supervise_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    let Some(first) = arguments.next() else { return };
    if first == stage::ARGUMENT {
        std::process::exit(stage::run());
    }
    if first == ARGUMENT {
        let folder = arguments.next().map(PathBuf::from);
        std::process::exit(folder.map_or(2, |folder| supervise(&TaskFolder { folder })));
    }
}

/// What becomes of work.
pub(super) enum SupervisorOutcome {
    Result(Box<Callback>),
    Tombstone,
}

fn supervise(work: &TaskFolder) -> i32 {
    // Fails only if it is the leader of a session already, which is what we want.
    let _ = setsid();
    let around = folder::read_json::<SupervisorConfig>(&work.supervisor_config()).unwrap_or(None);
    let outcome = match ebb_script::adopt_orphans() {
        Err(error) => failed(ReasonCode::Lost, &format!("no subreaper: {error}")),
        Ok(()) => run(work).unwrap_or_else(|error| failed(ReasonCode::Lost, &error.to_string())),
    };
    // The private root may hold secrets, and is of no use any more.
    let _ = std::fs::remove_dir_all(work.root());
    let written = match outcome {
        SupervisorOutcome::Result(result) => folder::write_json(&work.result(), &result.fit()),
        SupervisorOutcome::Tombstone => work.write_tombstone(),
    };
    if written.is_ok()
        && let Some(containers) = around.and_then(|around| around.containers)
    {
        container_task::remove(work, &containers);
    }
    match written {
        Ok(()) => 0,
        Err(error) => {
            // Whoever finds the work without a result will say that it is lost.
            let _ = writeln!(io::stderr(), "{error}");
            1
        }
    }
}

fn failed(code: ReasonCode, message: &str) -> SupervisorOutcome {
    SupervisorOutcome::Result(Box::new(Callback::failed(code, message)))
}

fn run(work: &TaskFolder) -> Result<SupervisorOutcome, PodsError> {
    let _ = folder::write_whole(&work.folder.join("pid"), std::process::id().to_string().as_bytes());
    let lost = |path: PathBuf| PodsError::Damaged { path, message: "it is missing".to_owned() };
    let received: StoredRequest = folder::read_json(&work.request())?.ok_or_else(|| lost(work.request()))?;
    let around: SupervisorConfig =
        folder::read_json(&work.supervisor_config())?.ok_or_else(|| lost(work.supervisor_config()))?;
    let request = &received.request;
    if work.cancel().exists() {
        return Ok(SupervisorOutcome::Tombstone);
    }
    if now_ms() > received.at_ms.saturating_add(request.valid_for_ms) {
        return Ok(failed(ReasonCode::Lost, "the script could not be started within the time allowed for that"));
    }
    if let Some(containers) = &around.containers {
        return container_task::run(work, request, &around, containers);
    }
    let mut prepared = match script::prepare(work, &request.body, &around) {
        Ok(prepared) => prepared,
        Err(trouble) => return Ok(not_started(&trouble)),
    };
    let begin = Instant::now();
    let broken = |error| PodsError::io(&work.folder, error);
    let mut watch = ScriptWatch::start(GRACE).map_err(broken)?;
    let pipe = io::pipe().map_err(broken)?;
    let log = LogWriter::create(&work.folder).map_err(broken)?;
    folder::write_whole(&work.started(), b"")?;
    let script = match start(&mut prepared, pipe.1) {
        Ok(script) => script,
        Err(trouble) => return Ok(not_started(&trouble)),
    };
    forward_output(pipe.0, log, around.lifetime, &watch);
    watch_cancellation(work, around.lifetime, &watch);
    let deadline = begin.checked_add(Duration::from_millis(request.timeout_ms));
    let end = watch.supervise(&script, deadline, STREAMS);
    let took = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut result = match end.failure(request.timeout_ms, "the supervisor") {
        None => outputs::collect(&request.task, &request.body.outputs, &prepared.outputs, &work.root(), &around.state),
        Some(_) if end.cause == StopCause::Cancelled => return Ok(SupervisorOutcome::Tombstone),
        Some(failure) => failure,
    };
    result.duration_ms = Some(took);
    result.log = Some(logs::tail_text(&work.folder, LOG_TAIL));
    Ok(SupervisorOutcome::Result(Box::new(result)))
}

fn not_started(trouble: &LaunchError) -> SupervisorOutcome {
    let code = match trouble {
        LaunchError::NotStartable(_) | LaunchError::Unavailable(_) => ReasonCode::NotStartable,
        LaunchError::Internal(_) => ReasonCode::Lost,
    };
    failed(code, &trouble.to_string())
}

fn start(prepared: &mut PreparedScript, output: io::PipeWriter) -> Result<Child, LaunchError> {
    let copies = || -> io::Result<(OwnedFd, OwnedFd)> { Ok((output.try_clone()?.into(), output.try_clone()?.into())) };
    let broken = |error: io::Error| LaunchError::Internal(error.to_string());
    match stage::launch(&prepared.isolated(), copies().map_err(broken)?) {
        Err(LaunchError::Unavailable(why)) => stage::launch(&prepared.unisolated(&why)?, copies().map_err(broken)?),
        other => other,
    }
}

/// Carries output to the log until all writers are gone.
fn forward_output(from: PipeReader, mut log: LogWriter, life: TaskLifetime, watch: &ScriptWatch) {
    stream::forward(from, &watch.sender(), move |bytes| {
        // A full disk must not stop the script.
        let _ = log.push(bytes);
        if matches!(life, TaskLifetime::BoundToStarter { .. }) {
            let _ = io::stdout().write_all(bytes).and_then(|()| io::stdout().flush());
        }
    });
}

/// Starts a thread that looks for the request to cancel the script, and for the end of a starter that it must not
/// outlive.
fn watch_cancellation(work: &TaskFolder, life: TaskLifetime, watch: &ScriptWatch) {
    let (work, events) = (work.clone(), watch.sender());
    std::thread::spawn(move || {
        loop {
            let asked: Option<CancelRequest> = folder::read_json(&work.cancel()).unwrap_or(None);
            let grace = match asked {
                Some(asked) => Some(Duration::from_millis(asked.grace_ms)),
                None => has_outlived(life).then_some(GRACE),
            };
            if let Some(grace) = grace {
                // The supervisor no longer listens only when it is about to exit.
                let _ = events.send(WatchEvent::Cancelled(grace));
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    });
}

/// Returns whether the script has outlived a starter that it must not outlive. A starter that has ended is no longer the
/// parent of this process.
fn has_outlived(life: TaskLifetime) -> bool {
    match life {
        TaskLifetime::Detached => false,
        TaskLifetime::BoundToStarter { starter } => i64::from(getppid().as_raw()) != i64::from(starter),
    }
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_starter_that_ended_before_the_script_began_is_missed() {
        let parent = u32::try_from(getppid().as_raw()).unwrap();
        assert!(!has_outlived(TaskLifetime::BoundToStarter { starter: parent }));
        // Any process that is not the parent shows the same.
        assert!(has_outlived(TaskLifetime::BoundToStarter { starter: std::process::id() }));
        assert!(!has_outlived(TaskLifetime::Detached));
    }
}
