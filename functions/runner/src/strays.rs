//! Signals to a script and all that it has started, however these have detached themselves.
//!
//! They are our descendants, for we are the first process of the container or their subreaper. Where there is no
//! `/proc` to find them in, the script's process group has to do, and as first process of the container whatever is in it.

use std::fs;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid, getpid};

/// How long death may take after `SIGKILL`. Longer only in uninterruptible sleep, where nothing helps.
pub(crate) const DEATH: Duration = Duration::from_secs(10);

/// Sends `signal` to the group of the script, and to descendants that have left it. Each gets it once.
pub(crate) fn signal(script: Pid, signal: Signal) {
    // Whoever has just ended is no matter.
    let _ = killpg(script, signal);
    for pid in descendants() {
        if getpgid(Some(pid)) != Ok(script) {
            let _ = kill(pid, signal);
        }
    }
}

/// Kills and reaps all that is left. Gives whether nothing is.
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
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn descendants() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parents: Vec<(i32, i32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![getpid().as_raw()];
    let mut next = 0;
    while next < found.len() {
        let above = found[next];
        found.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        next += 1;
    }
    found.into_iter().skip(1).map(Pid::from_raw).collect()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything: `PID (NAME) STATE PARENT …`.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}
