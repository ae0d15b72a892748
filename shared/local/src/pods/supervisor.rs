//! The process that stands between a script and everything else.
//!
//! Flow: take a session of its own; read what is asked; say `started` on disk; start the script; carry what it prints
//! to the log; wait for its end, its deadline or a cancellation; end all that it has left; write the result.
//!
//! Guarantees: it holds the work's lock, which it was given as its standard input, until it ends; when it ends by
//! itself there is a result or a tombstone, and no process of the script is left, unless one is stuck in the kernel.
//! Assumptions: nobody else writes to the folder while the lock is held, but for `cancel.json`.

use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ebb_wire::callback::{Callback, ReasonCode};
use ebb_wire::limits::LOG_TAIL;
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid, setsid};

use super::PodsError;
use super::contained;
use super::folder;
use super::logs::{self, LogWriter};
use super::outputs;
use super::script::{self, Prepared};
use super::stage::{self, Trouble};
use super::strays;
use super::work::{Cancel, Life, Received, Surroundings, Work};

/// The argument that makes our program a supervisor; the work's folder follows.
pub(super) const ARGUMENT: &str = "--ebb-supervise";

/// Between `SIGTERM` and `SIGKILL` when the deadline has passed, and when the starter has gone.
const GRACE: Duration = Duration::from_secs(5);
/// How often files are looked at while the script runs.
const LOOK: Duration = Duration::from_millis(25);

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
        std::process::exit(folder.map_or(2, |folder| supervise(&Work { folder })));
    }
}

/// How a script came to its end.
enum End {
    /// By itself.
    Exit(WaitStatus),
    /// It took longer than it may.
    Deadline,
    /// Somebody has cancelled it.
    Cancelled,
}

/// What becomes of work.
pub(super) enum Outcome {
    Result(Box<Callback>),
    Tombstone,
}

fn supervise(work: &Work) -> i32 {
    // Fails only if it is the leader of a session already, which is what we want.
    let _ = setsid();
    let around = folder::read_json::<Surroundings>(&work.surroundings()).unwrap_or(None);
    let outcome = match set_child_subreaper(true) {
        Err(error) => failed(ReasonCode::Lost, &format!("no subreaper: {error}")),
        Ok(()) => run(work).unwrap_or_else(|error| failed(ReasonCode::Lost, &error.to_string())),
    };
    // The private root may hold secrets, and is of no use any more.
    let _ = std::fs::remove_dir_all(work.root());
    let written = match outcome {
        Outcome::Result(result) => folder::write_json(&work.result(), &result.fit()),
        Outcome::Tombstone => work.bury(),
    };
    if written.is_ok()
        && let Some(containers) = around.and_then(|around| around.containers)
    {
        contained::remove(work, &containers);
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

fn failed(code: ReasonCode, message: &str) -> Outcome {
    Outcome::Result(Box::new(Callback::failed(code, message)))
}

fn run(work: &Work) -> Result<Outcome, PodsError> {
    let _ = folder::write_whole(&work.folder.join("pid"), std::process::id().to_string().as_bytes());
    let lost = |path: PathBuf| PodsError::Damaged { path, message: "it is missing".to_owned() };
    let received: Received = folder::read_json(&work.request())?.ok_or_else(|| lost(work.request()))?;
    let around: Surroundings =
        folder::read_json(&work.surroundings())?.ok_or_else(|| lost(work.surroundings()))?;
    let request = &received.request;
    if work.cancel().exists() {
        return Ok(Outcome::Tombstone);
    }
    if now_ms() > received.at_ms.saturating_add(request.not_after_ms) {
        return Ok(failed(
            ReasonCode::Lost,
            "the script could not be started within the time allowed for that",
        ));
    }
    if let Some(containers) = &around.containers {
        return contained::run(work, request, &around, containers);
    }
    let mut prepared = match script::prepare(work, &request.work, &around) {
        Ok(prepared) => prepared,
        Err(trouble) => return Ok(not_started(&trouble)),
    };
    let begin = Instant::now();
    let pipe = io::pipe().map_err(|error| PodsError::io(&work.folder, error))?;
    let log = LogWriter::create(&work.folder).map_err(|error| PodsError::io(&work.folder, error))?;
    folder::write_whole(&work.started(), b"")?;
    let script = match start(&mut prepared, pipe.1) {
        Ok(script) => script,
        Err(trouble) => return Ok(not_started(&trouble)),
    };
    let drained = carry(pipe.0, log, around.life);
    let deadline = begin.checked_add(Duration::from_millis(request.timeout_ms));
    let end = wait(work, script, deadline, around.life);
    let left = strays::kill_descendants();
    // All writers are dead, so that this ends at once; unless one is stuck in the kernel.
    let _ = drained.recv_timeout(Duration::from_secs(if left == 0 { 60 } else { 1 }));
    let took = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut result = match end {
        End::Cancelled => return Ok(Outcome::Tombstone),
        End::Deadline => {
            let message = format!("the script took longer than {} ms", request.timeout_ms);
            Callback::failed(ReasonCode::Timeout, &message)
        }
        End::Exit(WaitStatus::Exited(_, 0)) => outputs::collect(
            &request.name,
            &request.work.outputs,
            &prepared.outputs,
            &work.root(),
            &around.state,
        ),
        End::Exit(status) => Callback::failed(ReasonCode::Exit, &describe(status)),
    };
    result.took_ms = Some(took);
    result.log = Some(logs::tail_text(&work.folder, LOG_TAIL));
    Ok(Outcome::Result(Box::new(result)))
}

fn not_started(trouble: &Trouble) -> Outcome {
    let code = match trouble {
        Trouble::NotStartable(_) | Trouble::Unavailable(_) => ReasonCode::NotStartable,
        Trouble::Broken(_) => ReasonCode::Lost,
    };
    failed(code, &trouble.to_string())
}

fn start(prepared: &mut Prepared, output: io::PipeWriter) -> Result<Pid, Trouble> {
    let copies =
        || -> io::Result<(OwnedFd, OwnedFd)> { Ok((output.try_clone()?.into(), output.try_clone()?.into())) };
    let broken = |error: io::Error| Trouble::Broken(error.to_string());
    let child = match stage::launch(&prepared.isolated(), copies().map_err(broken)?) {
        Err(Trouble::Unavailable(why)) => stage::launch(&prepared.bare(&why)?, copies().map_err(broken)?)?,
        other => other?,
    };
    Ok(Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX)))
}

/// Carries output to the log until all writers are gone, and then says so.
fn carry(mut from: PipeReader, mut log: LogWriter, life: Life) -> Receiver<()> {
    let (done, drained) = channel();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            // A full disk must not stop the script.
            let _ = log.push(&buffer[..count]);
            if life == Life::OfStarter {
                let _ = io::stdout().write_all(&buffer[..count]).and_then(|()| io::stdout().flush());
            }
        }
        let _ = done.send(());
    });
    drained
}

fn wait(work: &Work, script: Pid, deadline: Option<Instant>, life: Life) -> End {
    let starter = getppid();
    let mut look = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = reap(script) {
            return End::Exit(status);
        }
        let now = Instant::now();
        if now >= look {
            look = now + LOOK;
            let asked: Option<Cancel> = folder::read_json(&work.cancel()).unwrap_or(None);
            if let Some(asked) = asked {
                return match terminate(script, Duration::from_millis(asked.grace_ms)) {
                    // It came through before the signal took effect: what it has made is known, which is better.
                    Some(status @ WaitStatus::Exited(_, 0)) => End::Exit(status),
                    _ => End::Cancelled,
                };
            }
            if life == Life::OfStarter && getppid() != starter {
                terminate(script, GRACE);
                return End::Cancelled;
            }
        }
        if deadline.is_some_and(|deadline| now >= deadline) {
            terminate(script, GRACE);
            return End::Deadline;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Asks the script and all that it has started to end, and waits for the script for at most `grace`. The caller kills
/// what is left.
fn terminate(script: Pid, grace: Duration) -> Option<WaitStatus> {
    strays::signal_descendants(Signal::SIGTERM);
    let until = Instant::now().checked_add(grace);
    loop {
        if let Some(status) = reap(script) {
            return Some(status);
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reaps who has ended; gives how the script did if it is among them.
fn reap(script: Pid) -> Option<WaitStatus> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return None,
            Ok(status) if status.pid() == Some(script) => return Some(status),
            // Descendants that the script did not wait for.
            Ok(_) => {}
            Err(Errno::EINTR) => {}
            // Cannot be: the script is our child until it is reaped.
            Err(_) => return Some(WaitStatus::Exited(script, -1)),
        }
    }
}

fn describe(status: WaitStatus) -> String {
    match status {
        WaitStatus::Exited(_, code) => format!("the script ended with {code}"),
        WaitStatus::Signaled(_, signal, _) => format!("the script was ended by {signal}"),
        other => format!("the script ended in a strange way: {other:?}"),
    }
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
