//! Defaults and limits of documents.

use ebb_engine::Hook;

use crate::model::{ActionDoc, UnitDoc};

/// The default timeout of one attempt of a webhook or object, in milliseconds.
pub const TIMEOUT_MS: u64 = 5 * 60 * 1000;
/// The default timeout of one attempt of a pod, in milliseconds. It includes pulling images.
pub const POD_TIMEOUT_MS: u64 = 10 * 60 * 1000;
/// The default timeout of one attempt of a webhook with `until`, in milliseconds. It includes the wait for the state.
pub const UNTIL_TIMEOUT_MS: u64 = 30 * 60 * 1000;
/// The default of `until.every`, in milliseconds.
pub const UNTIL_EVERY_MS: u64 = 2_000;
/// The default of `until.maxEvery`, in milliseconds.
pub const UNTIL_MAX_EVERY_MS: u64 = 60_000;
/// The maximum of `until.maxEvery`, in milliseconds: 15 minutes.
pub const MAX_UNTIL_EVERY_MS: u64 = 15 * 60 * 1000;
/// The maximum of `timeout`, `backoff` and `maxBackoff`: 24 hours.
pub const MAX_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;

/// The default number of attempts in preStart, postStart and preStop.
pub const ATTEMPTS: u32 = 3;
/// The default number of attempts in postStop, the hook that deletes resources.
pub const TEARDOWN_ATTEMPTS: u32 = 10;
/// The number of attempts of a unit that deletes objects. An attempt waits for its objects until its timeout, and a
/// further one waits for the same finalizers.
pub const REMOVAL_ATTEMPTS: u32 = 2;
/// The least timeout of one attempt of such a unit, in milliseconds. A controller may take as long to delete something.
pub const REMOVAL_TIMEOUT_MS: u64 = 15 * 60 * 1000;
pub const MAX_ATTEMPTS: u32 = 100;
/// The default maximum of the first wait, in milliseconds.
pub const BACKOFF_MS: u64 = 2_000;
/// The default maximum of every wait, in milliseconds.
pub const MAX_BACKOFF_MS: u64 = 30_000;
/// The default maximum of every wait in postStop, in milliseconds.
pub const TEARDOWN_MAX_BACKOFF_MS: u64 = 5 * 60 * 1000;

/// The maximum number of inputs of a unit, and of outputs.
pub const MAX_INPUTS: usize = 100;
pub const MAX_RESOURCES: usize = 500;
pub const MAX_ENTRIES: usize = 50;
/// The help for a hook with too many units.
pub const FEWER_UNITS: &str = "use several targets, or let one unit do the work of several";
/// The maximum number of entries in `events` of a source.
pub const MAX_EVENTS: usize = 100;

/// The maximum number of steps to compile a plugin or target. A step takes about 50 ns of one core in a release build,
/// so the limit is half a second to a second.
pub const MAX_STEPS: u64 = 10_000_000;

/// The number of steps of a unit, in addition to those of its expressions.
pub(super) const UNIT_STEPS: u64 = 40;

/// The failure classes of `retry.on` and `retry.never`, separated by blanks. Both can also contain an exit code from 1 to
/// 255 and a status from 400 to 599.
pub const RETRY_CLASSES: &str = "timeout 5xx 4xx 429 408 connect exit lost failed imagePull unschedulable evicted quota \
                                 outOfMemory";

/// The wait between two requests of `repeat`, in milliseconds.
pub const REPEAT_EVERY_MS: u64 = 1000;
/// The maximum of requests of one attempt with `repeat`: the default, and its limit.
pub const REPEATS: u32 = 100;
pub const MAX_REPEATS: u32 = 10_000;

pub(super) fn timeout(unit: &UnitDoc) -> u64 {
    let default = match unit.action {
        ActionDoc::Pod(_) => POD_TIMEOUT_MS,
        _ if unit.until.is_some() => UNTIL_TIMEOUT_MS,
        _ => TIMEOUT_MS,
    };
    unit.timeout.map_or(default, |timeout| timeout.0)
}

pub(super) fn attempts(hook: Hook) -> u32 {
    if hook == Hook::PostStop { TEARDOWN_ATTEMPTS } else { ATTEMPTS }
}

pub(super) fn max_backoff(hook: Hook) -> u64 {
    if hook == Hook::PostStop { TEARDOWN_MAX_BACKOFF_MS } else { MAX_BACKOFF_MS }
}
