//! Kills the processes of a script whose supervisor was killed.
//!
//! As long as the supervisor lives, they are its descendants. Afterwards they are recognised by a variable of their
//! environment, or by the private root that they run in.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ebb_script::processes::{KILL_TIMEOUT, pids};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

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

    fn is_on(&self, pid: Pid) -> bool {
        let has_variable = |environ: Vec<u8>| environ.split(|byte| *byte == 0).any(|one| one == self.variable);
        // A process whose environment is not readable belongs to another user.
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(has_variable)
            || (self.root.is_some() && identity(Path::new(&format!("/proc/{pid}/root"))) == self.root)
    }
}

fn identity(folder: &Path) -> Option<(u64, u64)> {
    fs::metadata(folder).ok().map(|found| (found.dev(), found.ino()))
}

/// Kills every process that has one of the marks, until there is none. Returns the number of processes that do not die.
pub(super) fn kill_marked(marks: &ProcessMarks) -> usize {
    let until = Instant::now() + KILL_TIMEOUT;
    loop {
        let found = marked(marks);
        for pid in &found {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        if found.is_empty() || Instant::now() > until {
            return found.len();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn marked(marks: &ProcessMarks) -> Vec<Pid> {
    pids().filter(|pid| *pid != getpid() && marks.is_on(*pid)).collect()
}
