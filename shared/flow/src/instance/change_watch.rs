//! The feed of changed targets, by which readers learn that a list or a target has changed.
//!
//! A change of a target is written to the feed only while a reader watches, after the write of the target. [`watch`] renews
//! the watch. A function looks at most every 5 s whether a reader watches, so the first changes of a watch can be
//! missing; [`is_settled`] tells when they are not. A change is also missing if its invocation ends before it is written. Readers
//! therefore read everything from time to time.

use std::sync::Arc;

use ebb_protocol::{Millis, TargetKey, Timestamp};
use ebb_store::ChangeFeed;

use crate::env::MAX_CLOCK_SKEW;
use crate::{Env, FlowResult, SteadyTime, lock};

/// The time for which a writer uses the feed that it has read.
const KNOWN: Millis = Millis(5_000);
/// The time for which readers share the feed that one of them has read.
pub const SHARED: Millis = Millis(1_000);
/// The time until which a watch lasts after its renewal.
const WATCH: Millis = Millis(180_000);
/// A watch that lasts longer than this is not renewed, so that it is renewed every 30 s at most.
const LONG: Millis = Millis(150_000);
/// The time after which all writers know of a watch that has begun: [`KNOWN`], and the age of a look at the table.
const SETTLING: Millis = Millis(10_000);

/// The feed as this function instance has read or written it, with the time.
type KnownFeed = Option<(SteadyTime, Arc<ChangeFeed>)>;

/// Writes that a target has changed, if a reader watches.
pub async fn note(env: &Env, target: TargetKey<'_>) {
    if let Err(error) = append(env, target).await {
        let TargetKey { kind, name } = target;
        tracing::warn!(kind, name, %error, "a change is not in the feed; open pages show it later");
    }
}

async fn append(env: &Env, target: TargetKey<'_>) -> FlowResult<()> {
    lock(&env.cache.noted_changes).push(target.to_string());
    // A function instance writes changes one after the other, so that each write succeeds at once. Those that come during a
    // write share the next one, so a change waits for two writes at most.
    let mut known = env.cache.change_feed.lock().await;
    let noted = lock(&env.cache.noted_changes).clone();
    if noted.is_empty() {
        return Ok(());
    }
    let written = write(env, &mut known, &noted.iter().map(String::as_str).collect::<Vec<_>>()).await;
    // Until now, the next write would have them if this invocation had ended.
    lock(&env.cache.noted_changes).drain(..noted.len());
    written
}

async fn write(env: &Env, known: &mut KnownFeed, targets: &[&str]) -> FlowResult<()> {
    let seen = known_feed(env, known, KNOWN).await?;
    if env.now() < seen.watched {
        let noted = env.store.note_changes(&seen, targets).await?;
        *known = Some((env.steady(), Arc::new(noted)));
    }
    Ok(())
}

/// Returns the feed, which is at most [`SHARED`] old, and renews its watch.
///
/// # Errors
/// Returns an error if the table cannot be read or written.
pub async fn watch(env: &Env) -> FlowResult<Arc<ChangeFeed>> {
    let mut known = env.cache.change_feed.lock().await;
    let (seen, now) = (known_feed(env, &mut known, SHARED).await?, env.now());
    if seen.watched > now.plus(LONG) {
        return Ok(seen);
    }
    // A writer with a fast clock may have seen the end of the former watch.
    let begun = (seen.watched <= now.plus(MAX_CLOCK_SKEW)).then_some(now);
    let renewed = Arc::new(env.store.watch_changes(now.plus(WATCH), begun).await?);
    *known = Some((env.steady(), Arc::clone(&renewed)));
    Ok(renewed)
}

/// Returns false while changes may be missing, because the watch has begun a short time ago.
pub fn is_settled(feed: &ChangeFeed, now: Timestamp) -> bool {
    feed.begun.plus(SETTLING) <= now
}

async fn known_feed(env: &Env, known: &mut KnownFeed, age: Millis) -> FlowResult<Arc<ChangeFeed>> {
    let now = env.steady();
    if let Some((at, feed)) = known.as_ref()
        && now.since(*at) < age
    {
        return Ok(Arc::clone(feed));
    }
    let feed = Arc::new(env.store.peek_changes().await?);
    *known = Some((now, Arc::clone(&feed)));
    Ok(feed)
}
