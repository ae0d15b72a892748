//! Finding and ending the processes that a script has left.
//!
//! While the supervisor lives, all of them are its descendants, because it is their subreaper. After its death they
//! are known by a variable in their environment, or by the private root that they run in.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long death may take after `SIGKILL`. Longer only in uninterruptible sleep, where nothing helps.
const DEATH: Duration = Duration::from_secs(10);

/// Sends `signal` to all descendants of this process. Gives how many there are.
pub(super) fn signal_descendants(signal: Signal) -> usize {
    let descendants = descendants(std::process::id());
    for pid in &descendants {
        // One that has just ended is no matter.
        let _ = kill(Pid::from_raw(*pid), signal);
    }
    descendants.len()
}

/// The signs by which processes of a script are recognised without their supervisor. A process can drop the variable,
/// with `env -i`; it cannot leave the private root.
#[derive(Debug)]
pub(super) struct ProcessMarks {
    variable: Vec<u8>,
    /// Device and inode of the private root; `None`: there is none.
    root: Option<(u64, u64)>,
}

impl ProcessMarks {
    /// Returns the marks of scripts whose environment has the variable `name=value` and whose private root is `root`.
    pub(super) fn new((name, value): (&str, String), root: &Path) -> Self {
        Self { variable: format!("{name}={value}").into_bytes(), root: identity(root) }
    }

    fn is_on(&self, pid: i32) -> bool {
        let has_variable =
            |environ: Vec<u8>| environ.split(|byte| *byte == 0).any(|one| one == self.variable);
        // A process that we may not look at is not ours.
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(has_variable)
            || (self.root.is_some() && identity(Path::new(&format!("/proc/{pid}/root"))) == self.root)
    }
}

fn identity(folder: &Path) -> Option<(u64, u64)> {
    fs::metadata(folder).ok().map(|found| (found.dev(), found.ino()))
}

/// Kills every process that has one of the marks, until there is none. Gives how many were seen last: not 0 if some do
/// not die.
pub(super) fn kill_marked(marks: &ProcessMarks) -> usize {
    let until = Instant::now() + DEATH;
    loop {
        let found = marked(marks);
        for pid in &found {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        if found.is_empty() || Instant::now() > until {
            return found.len();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Kills and reaps all descendants of this process. Gives how many are left, which is 0 unless some do not die.
pub(super) fn kill_descendants() -> usize {
    use nix::sys::wait::{WaitPidFlag, waitpid};
    let until = Instant::now() + DEATH;
    loop {
        let left = signal_descendants(Signal::SIGKILL);
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(nix::sys::wait::WaitStatus::StillAlive) => break,
                Err(Errno::ECHILD) => return 0,
                Err(_) => break,
                Ok(_) => {}
            }
        }
        if Instant::now() > until {
            return left;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn marked(marks: &ProcessMarks) -> Vec<i32> {
    let own = std::process::id() as i32;
    pids().filter(|pid| *pid != own && marks.is_on(*pid)).collect()
}

fn descendants(of: u32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = pids().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![of as i32];
    let mut next = 0;
    while next < found.len() {
        let above = found[next];
        found.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything: `PID (NAME) STATE PARENT …`.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}
