//! Sends signals to a script and to all processes that it has started.
//!
//! They are descendants of this process, which is the first process of its container or adopts orphans. Without
//! `/proc`, signals reach only the process group of the script. The first process of a container can still kill all
//! others.

use std::fs;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpgid, getpid};

/// The longest time that a process may take to end after `SIGKILL`. It takes longer only in uninterruptible sleep.
pub const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Shells exit with this code plus the number of the signal that ended a process.
const SIGNALED: i32 = 128;
/// The pause between two rounds of `SIGKILL`.
const PAUSE: Duration = Duration::from_millis(2);

/// Sends `signal` once to each process in the process group of the script, and to each descendant that has left it. The
/// script must not be reaped yet: until then, its number is not given to another process or group.
pub(crate) fn signal(script: Pid, signal: Signal) {
    // The call fails if the process has just ended.
    let _ = killpg(script, signal);
    for pid in descendants() {
        if getpgid(Some(pid)) != Ok(script) {
            let _ = kill(pid, signal);
        }
    }
}

/// Kills and reaps every process that is left, and the script itself, which must not be reaped yet. Returns true if
/// none is left. Returns false if a process is stuck in the kernel.
pub(crate) fn kill_all(script: Pid) -> bool {
    let until = Instant::now() + KILL_TIMEOUT;
    // Once is enough, because `SIGKILL` reaches a group as a whole. Later, another group may have the same number.
    let _ = killpg(script, Signal::SIGKILL);
    loop {
        for pid in descendants() {
            let _ = kill(pid, Signal::SIGKILL);
        }
        if getpid() == Pid::from_raw(1) {
            let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) => return true,
                Ok(WaitStatus::StillAlive) | Err(_) => break,
                Ok(_) => {}
            }
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reaps children that have ended, except for the script. As long as the script is a zombie, its pid and its process
/// group are not reused. Returns how the script has ended.
pub fn reap(script: Pid) -> Option<WaitStatus> {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::All, look) {
            Ok(status) if status.pid() == Some(script) => return Some(status),
            // A descendant whose parent did not wait for it.
            Ok(status) => {
                let _ = waitpid(status.pid()?, Some(WaitPidFlag::WNOHANG));
            }
            Err(Errno::EINTR) => {}
            // `nix` cannot represent the real-time signal that ended a child.
            Err(Errno::EINVAL) if waitid(Id::Pid(script), look) == Err(Errno::EINVAL) => {
                return Some(WaitStatus::Exited(script, SIGNALED + ending_signal(script).unwrap_or_default()));
            }
            Err(Errno::EINVAL) if reap_others(script) => {}
            Err(_) => return None,
        }
    }
}

/// Reaps the children that have ended, except for the script. Returns true if there was one.
fn reap_others(script: Pid) -> bool {
    let others = descendants().into_iter().filter(|&pid| pid != script);
    let ended = others.map(|pid| waitpid(pid, Some(WaitPidFlag::WNOHANG)));
    // The list is collected so that each child is reaped. `EINVAL` means that it is reaped and `nix` cannot represent
    // its signal.
    let ended: Vec<_> =
        ended.filter(|ended| !matches!(ended, Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD))).collect();
    !ended.is_empty()
}

/// Returns the number of the signal that ended a child that is not reaped yet, or `None` without `/proc`.
fn ending_signal(pid: Pid) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The last field is the status in the format of `waitpid`: the signal is in its lowest seven bits.
    let status: i32 = stat.split_ascii_whitespace().next_back()?.parse().ok()?;
    Some(status & 0x7f)
}

/// Returns the pids of all processes of this machine or container. The list is empty without `/proc`.
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
    // The name in parentheses may contain any characters: `PID (NAME) STATE PARENT …`.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    // This test reaps all children of the process. No other test of this executable may wait for children.
    #[test]
    #[allow(clippy::zombie_processes, reason = "`kill_all` reaps it")]
    fn an_ended_script_keeps_its_pid_until_its_process_group_is_killed() {
        crate::adopt_orphans().unwrap();
        let script = Command::new("sh").args(["-c", "sleep 1000 & exit 3"]).process_group(0).spawn().unwrap();
        let script = Pid::from_raw(i32::try_from(script.id()).unwrap());
        let exited = waitid(Id::Pid(script), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        assert_eq!(exited, Ok(WaitStatus::Exited(script, 3)));

        assert_eq!(reap(script), Some(WaitStatus::Exited(script, 3)));
        assert_eq!(getpgid(Some(script)), Ok(script));

        assert!(kill_all(script));
        assert_eq!(getpgid(Some(script)), Err(Errno::ESRCH));
        assert_eq!(killpg(script, None), Err(Errno::ESRCH));
    }
}
