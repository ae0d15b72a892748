//! The limit of open files. It bounds the scripts that run at a time, and the open connections.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::sync::Semaphore;

/// The files of an idle server: table, listeners, streams and those of the runtime.
const RESERVED: u64 = 24;
/// A script needs one file, and another one while it sends its result. A connection needs one. The rest is for starts
/// of scripts and for requests to other servers.
const FILES_PER_PLACE: u64 = 4;
/// A smaller number of places is logged.
const ENOUGH: usize = 1_000;

/// Returns the maximum number of scripts that run at a time, which is that of open connections too.
pub(crate) fn places() -> usize {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1_024, 1_024));
    let places = limit.saturating_sub(RESERVED) / FILES_PER_PLACE;
    usize::try_from(places).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS)
}

/// Raises the limit to the hard limit. Shells often set 1,024.
pub(crate) fn raise() {
    let raised =
        getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    let places = places();
    if places < ENOUGH {
        tracing::warn!("the limit of open files permits {places} scripts and {places} connections at a time");
    }
}
