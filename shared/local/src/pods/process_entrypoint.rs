//! The entrypoint of a script that is a process of this machine: this program, executed again.
//!
//! It isolates itself and then runs the script, as the entrypoint of a container does. It is a separate process for two
//! reasons: isolation needs a process without threads, and the private root must not hide the task's folder from the
//! supervisor. Its standard input is a socket:
//!
//! 1. It reads one line of JSON: a [`RootLayout`], or `null` for no isolation, and an [`EntrypointSpec`].
//! 2. It reads the grace period of a cancellation: milliseconds as eight bytes, in little-endian order. The end of the
//!    stream, which occurs when the supervisor ends, is a cancellation with a grace period of 0.
//! 3. It writes an [`Answer`].

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use ebb_protocol::entrypoint::{EntrypointSpec, ScriptExit};
use ebb_script::{ScriptWatch, StartError, Surroundings, WatchEvent, millis};

use super::isolation::{IsolationError, RootLayout};

/// The argument that makes this program an entrypoint.
pub(super) const ARGUMENT: &str = "--ebb-entrypoint";

/// The end of the script, or the reason why this machine cannot isolate scripts.
pub(super) type Answer = Result<ScriptExit, String>;

pub(super) fn run() -> i32 {
    let Err(error) = answer() else { return 0 };
    let _ = writeln!(io::stderr(), "ebb: {error}");
    1
}

fn answer() -> io::Result<()> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut requests = BufReader::new(socket.try_clone()?);
    let mut line = Vec::new();
    requests.read_until(b'\n', &mut line)?;
    let (layout, spec): (Option<RootLayout>, EntrypointSpec) = serde_json::from_slice(&line)?;
    let answer: Answer = match layout.as_ref().map_or(Ok(()), RootLayout::enter) {
        Ok(()) => Ok(run_script(&spec, requests)?),
        Err(IsolationError::Unavailable(why)) => Err(why),
        Err(IsolationError::Failed(why)) => Ok(StartError::not_startable(why).script_exit()),
    };
    socket.write_all(&serde_json::to_vec(&answer)?)
}

fn run_script(spec: &EntrypointSpec, mut requests: BufReader<UnixStream>) -> io::Result<ScriptExit> {
    // `HOME` is in the private root.
    env::set_current_dir(env::var_os("HOME").unwrap_or_default())?;
    ebb_script::adopt_orphans()?;
    let mut watch = ScriptWatch::start(millis(spec.grace_ms))?;
    let events = watch.sender();
    thread::spawn(move || {
        let mut grace = [0; 8];
        let _ = requests.read_exact(&mut grace);
        events.send(WatchEvent::Cancelled(millis(u64::from_le_bytes(grace))))
    });
    let surroundings = Surroundings { place: "this machine", supervisor: "the supervisor", tail: None };
    let ended = ebb_script::run(spec, surroundings, &mut watch, Instant::now());
    Ok(ended.unwrap_or_else(|error| error.script_exit()))
}
