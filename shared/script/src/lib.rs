//! Supervision of a script: its files, its interpreter, its processes, its end, its output and its output files.
//!
//! Two programs are the entrypoint of a script: `ebb-entrypoint` in pods and containers, and `ebb` for a process of one
//! machine. Both call [`run`], so that a script behaves alike everywhere. Linux only; blocking.
//!
//! 1. The program starts a [`ScriptWatch`] and adopts orphans with [`adopt_orphans`].
//! 2. [`run`] puts the inputs where the script expects them, and starts it in a process group of its own.
//! 3. It waits for the end of the script, its deadline, a signal or a cancellation.
//! 4. It ends all processes that the script has left, and reads its outputs.

mod exit;
mod interpreter;
mod outputs;
mod prepare;
pub mod processes;
pub mod stream;
mod tail;
mod watch;

use std::time::{Duration, Instant};

use ebb_protocol::entrypoint::{EntrypointSpec, ScriptExit};

pub use prepare::{StartError, check_path};
pub use tail::LogTail;
pub use watch::{ScriptWatch, WatchEvent};

/// The longest time that can be added to any clock: as good as none.
const FAR_AWAY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The differences between the programs that run scripts.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The place that has the interpreters, for messages, such as `this image`.
    pub place: &'a str,
    /// The recipient of a signal that asks the script to end, for messages, such as `the pod`.
    pub supervisor: &'a str,
    /// Keeps the end of the log, which this process forwards to its own outputs. `None`: the script writes to the outputs
    /// of this process itself.
    pub tail: Option<&'a LogTail>,
}

/// Runs a script to its end. Its deadline counts from `begun`. The result has no log.
///
/// # Errors
/// [`StartError`] if the script was not started.
pub fn run(
    spec: &EntrypointSpec,
    surroundings: Surroundings<'_>,
    watch: &mut ScriptWatch,
    begun: Instant,
) -> Result<ScriptExit, StartError> {
    let mut script = prepare::start(spec, surroundings)?;
    let streams = surroundings.tail.map_or(0, |tail| stream::forward_outputs(&mut script, tail, &watch.sender()));
    let end = watch.supervise(&script, begun + millis(spec.timeout_ms), streams);
    Ok(end.script_exit(spec, surroundings.supervisor))
}

/// Makes this process the parent of all processes that its script leaves behind.
///
/// # Errors
/// The kernel's. In a container the first process adopts them in any case.
pub fn adopt_orphans() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// Returns a duration that can be added to any time.
pub fn millis(count: u64) -> Duration {
    Duration::from_millis(count).min(FAR_AWAY)
}
