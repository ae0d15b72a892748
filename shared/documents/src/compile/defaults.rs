//! Defaults and limits of documents.

use crate::plan::HookName;

/// Milliseconds that one try of a webhook or an object may take.
pub const TIMEOUT_MS: u64 = 5 * 60 * 1000;
/// Milliseconds that one try of a pod may take; images have to be pulled.
pub const POD_TIMEOUT_MS: u64 = 10 * 60 * 1000;
/// The longest `timeout`, `backoff` and `maxBackoff`: 24 hours.
pub const MAX_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;

/// Tries in all before a target is ready, after it, and before it stops.
pub const ATTEMPTS: u32 = 3;
/// Tries in all of what takes things away: it gives up later.
pub const TEARDOWN_ATTEMPTS: u32 = 10;
/// The most tries that a document can ask for.
pub const MAX_ATTEMPTS: u32 = 100;
/// Milliseconds; the bound of the first wait.
pub const BACKOFF_MS: u64 = 2_000;
/// Milliseconds; the bound of every wait.
pub const MAX_BACKOFF_MS: u64 = 30_000;
/// Milliseconds; the bound of every wait of what takes things away.
pub const TEARDOWN_MAX_BACKOFF_MS: u64 = 5 * 60 * 1000;

/// The most inputs, and the most outputs, of one unit.
pub const MAX_INPUTS: usize = 100;
/// The most resources of one sandbox.
pub const MAX_RESOURCES: usize = 500;

/// The most steps that the compilation of a plugin or target takes. A step takes about 50 ns of one core in a release
/// build, so this is half a second to a second.
pub const MAX_STEPS: u64 = 10_000_000;

/// The failure classes that `retry.on` can name, beside an exact status from 400 to 599.
pub const RETRY_CLASSES: [&str; 14] = [
    "timeout",
    "5xx",
    "4xx",
    "429",
    "408",
    "connect",
    "exit",
    "lost",
    "failed",
    "imagePull",
    "unschedulable",
    "evicted",
    "quota",
    "outOfMemory",
];

/// Tries in all.
pub(super) fn attempts(hook: HookName) -> u32 {
    if hook == HookName::PostStop { TEARDOWN_ATTEMPTS } else { ATTEMPTS }
}

/// The bound of every wait.
pub(super) fn max_backoff(hook: HookName) -> u64 {
    if hook == HookName::PostStop { TEARDOWN_MAX_BACKOFF_MS } else { MAX_BACKOFF_MS }
}
