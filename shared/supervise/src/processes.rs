//! Signals to a script and to all processes that it has started, however they have detached themselves.
//!
//! They are descendants of this process, which is the first process of its container or has adopted its orphans. Where
//! there is no `/proc` to find them in, signals reach the script's process group; the first process of a container can
//! also kill everything in it.

use std::fs;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid, getpid};

/// The longest time that a process may take to end after `SIGKILL`. It takes longer only in uninterruptible sleep.
pub const DEATH: Duration = Duration::from_secs(10);
/// The pause between two rounds of `SIGKILL`.
const PAUSE: Duration = Duration::from_millis(2);

/// Sends `signal` to the process group of the script, and to descendants that have left it. Each gets it once.
pub(crate) fn signal(script: Pid, signal: Signal) {
    // A process that has just ended needs no signal.
    let _ = killpg(script, signal);
    for pid in descendants() {
        if getpgid(Some(pid)) != Ok(script) {
            let _ = kill(pid, signal);
        }
    }
}

/// Kills and reaps every process that is left. Returns whether none is: a process may be stuck in the kernel.
pub(crate) fn kill_all(script: Pid) -> bool {
    let until = Instant::now() + DEATH;
    loop {
        signal(script, Signal::SIGKILL);
        if getpid() == Pid::from_raw(1) {
            let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                Err(Errno::ECHILD) => return true,
                Err(_) => break,
                Ok(_) => {}
            }
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reaps every child that has ended. Returns how the script has ended if it is among them.
pub(crate) fn reap(script: Pid) -> Option<WaitStatus> {
    let mut found = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return found,
            Ok(status) if status.pid() == Some(script) => found = Some(status),
            // Descendants whose parents did not wait for them.
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return found,
        }
    }
}

/// Returns the pids of all processes of this machine or container; none without `/proc`.
pub fn pids() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid::from_raw))
}

fn descendants() -> Vec<Pid> {
    let parents: Vec<(Pid, Pid)> = pids().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![getpid()];
    let mut next = 0;
    while next < found.len() {
        let above = found[next];
        found.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything: `PID (NAME) STATE PARENT …`.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}
