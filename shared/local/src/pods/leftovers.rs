//! Kills the processes of a script whose supervisor was killed.
//!
//! While the supervisor runs, these processes are its descendants. Afterwards they are recognised by a variable in
//! their environment, or by their private root.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ebb_script::processes::{KILL_TIMEOUT, pids};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

use super::task_folder::TaskFolder;

/// Kills every process of a task until none is left. Returns the number of processes that do not end.
///
/// A process can drop the variable, with `env -i`. It cannot leave the private root.
pub(super) fn kill_all(task: &TaskFolder) -> usize {
    let (name, value) = task.mark();
    let variable = format!("{name}={value}");
    let root = identity(&task.root());
    let is_marked = |pid: &Pid| {
        // A process with an unreadable environment belongs to another user.
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
            || (root.is_some() && identity(Path::new(&format!("/proc/{pid}/root"))) == root)
    };
    let until = Instant::now() + KILL_TIMEOUT;
    loop {
        let found: Vec<Pid> = pids().filter(|pid| *pid != getpid() && is_marked(pid)).collect();
        for pid in &found {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        if found.is_empty() || Instant::now() > until {
            return found.len();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn identity(folder: &Path) -> Option<(u64, u64)> {
    fs::metadata(folder).ok().map(|found| (found.dev(), found.ino()))
}
