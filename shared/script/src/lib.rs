//! Supervises a script: its files, interpreter and processes, its end, its log and its output files.
//!
//! Two programs are entrypoints of scripts: `ebb-entrypoint` in pods and containers, and `ebb` for a process of one
//! machine. Both call [`run`], so that a script behaves in the same way everywhere. Linux only. All calls block.
//!
//! 1. The program starts a [`ScriptWatch`] and adopts orphans with [`adopt_orphans`].
//! 2. [`run`] writes the inputs to their paths, and starts the script in its own process group.
//! 3. It waits for the end of the script, its deadline, a signal or a cancellation.
//! 4. It kills all processes that the script has left, and reads its outputs.
//!
//! [`LogMask`] masks sensitive values in the log. Lines of the log that begin with `::ebb progress ` report the
//! progress of the script, see [`ProgressLine`].

mod exit;
mod mask;
mod outputs;
mod prepare;
pub mod processes;
mod progress_lines;
pub mod stream;
mod tail;
mod watch;

use std::time::{Duration, Instant};

use ebb_protocol::entrypoint::{EntrypointSpec, ScriptExit};

pub use mask::LogMask;
pub use prepare::{StartError, Surroundings, check_path};
pub use progress_lines::{ProgressLine, last_progress};
pub use tail::LogTail;
use watch::FAR_AWAY;
pub use watch::{ScriptWatch, WatchEvent};

/// Runs a script to its end. Its deadline counts from `begun`. The result has no log. After a failure, its sensitive
/// outputs are those that the script has written. They serve to mask the log.
///
/// # Errors
/// Returns [`StartError`] if the script was not started.
pub fn run(
    spec: &EntrypointSpec,
    surroundings: Surroundings<'_>,
    watch: &mut ScriptWatch,
    begun: Instant,
) -> Result<ScriptExit, StartError> {
    let mut script = prepare::start(spec, surroundings)?;
    let mask = LogMask::of_inputs(spec);
    let forward = |tail| stream::forward_outputs(&mut script, tail, &mask, &watch.sender());
    let streams = surroundings.tail.map_or(0, forward);
    Ok(watch.supervise(&script, begun + millis(spec.timeout_ms), streams).script_exit(spec, surroundings.supervisor))
}

/// Makes this process the parent of all processes that its script leaves behind.
///
/// # Errors
/// Returns the error of the kernel. In a container, the first process adopts them anyway.
pub fn adopt_orphans() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

pub fn millis(count: u64) -> Duration {
    Duration::from_millis(count).min(FAR_AWAY)
}
