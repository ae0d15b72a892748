//! Supervision of a script: its interpreter, its processes, its end, its output and its output files.
//!
//! The entrypoint of pods and containers and the relay of one machine start scripts in different surroundings. Everything
//! that decides how a script runs and how its end is read is here, so that both behave alike. Linux only; blocking.
//!
//! A supervisor starts a [`ScriptWatch`], adopts orphans with [`adopt_orphans`], and starts the script with the
//! interpreter that [`interpreter::find`] returns, in a process group of its own. [`stream::forward`] carries what it
//! prints, [`ScriptWatch::supervise`] waits for its end, and [`outputs::read_all`] reads its outputs.

mod exit;
pub mod interpreter;
pub mod outputs;
pub mod processes;
pub mod stream;
mod watch;

pub use exit::{ProcessExit, StopCause};
pub use watch::{ScriptWatch, WatchEvent};

/// Makes this process the parent of all processes that its script leaves behind.
///
/// # Errors
/// The kernel's. In a container the first process adopts them in any case.
pub fn adopt_orphans() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}
