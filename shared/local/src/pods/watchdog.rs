//! Ending supervisors that were stopped: a script may send `SIGSTOP` to the process that watches over it.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::supervisor;
use super::task_folder::TaskFolder;

/// Returns whether the supervisor of `work` is stopped, so that it keeps neither deadlines nor cancellations.
pub(super) fn is_stopped(work: &TaskFolder) -> bool {
    stopped(work).is_some()
}

/// Kills the supervisor of `work` if it is stopped. Its script dies with it; the work is settled as that of any
/// supervisor that was killed.
pub(super) fn kill_stopped(work: &TaskFolder) {
    if let Some(pid) = stopped(work) {
        tracing::warn!(folder = %work.folder.display(), %pid, "the supervisor of a script was stopped; it is killed");
        // One that has just ended needs no signal.
        let _ = kill(pid, Signal::SIGKILL);
    }
}

fn stopped(work: &TaskFolder) -> Option<Pid> {
    let pid: i32 = fs::read_to_string(work.folder.join("pid")).ok()?.trim().parse().ok()?;
    // The process may have ended and another one may have its pid.
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = command.split(|byte| *byte == 0).skip(1);
    let is_ours = words.next() == Some(supervisor::ARGUMENT.as_bytes())
        && words.next() == Some(work.folder.as_os_str().as_bytes());
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // `PID (NAME) STATE …`: the name may hold anything. `T` is stopped, `t` is stopped by a debugger.
    let state = stat.rsplit_once(')')?.1.trim_start().chars().next();
    (is_ours && matches!(state, Some('T' | 't'))).then(|| Pid::from_raw(pid))
}
