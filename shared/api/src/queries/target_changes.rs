//! Tells which targets have changed since a former question. A question without news costs at most half a read unit.

use ebb_flow::instance::change_watch;
use ebb_flow::{Env, FlowResult};
use ebb_protocol::{TargetAccess, TargetKey};

/// Returns the number of the last change, or `None` while changes may be missing, and the targets that have changed after the
/// change `since`, as `KIND/NAME`, or `None` if they are not known. Renews the watch, so that later changes are written.
/// `access` limits them to targets that a caller may read. This check costs a read unit per target.
///
/// # Errors
/// Returns an error if the table cannot be read or written.
pub async fn since(
    env: &Env,
    access: Option<&TargetAccess>,
    since: Option<u64>,
) -> FlowResult<(Option<u64>, Option<Vec<String>>)> {
    let feed = change_watch::watch(env).await?;
    let last = change_watch::is_settled(&feed, env.now()).then_some(feed.last);
    let Some(found) = since.and_then(|since| feed.since(since)).filter(|_| last.is_some()) else {
        return Ok((last, None));
    };
    let mut targets = Vec::new();
    for target in found {
        let Some((kind, name)) = target.split_once('/') else { continue };
        if may_read(env, access, TargetKey::new(kind, name)).await? {
            targets.push(target.to_owned());
        }
    }
    Ok((last, Some(targets)))
}

async fn may_read(env: &Env, access: Option<&TargetAccess>, key: TargetKey<'_>) -> FlowResult<bool> {
    let Some(access) = access else { return Ok(true) };
    let head = env.store.read_target(key).await?;
    Ok(head.is_some_and(|head| access.covers(head.owner.as_deref(), &head.labels)))
}
