//! Sweeps one desired state: applies it if its invocation has ended early or the target could not take it.

use ebb_engine::Millis;
use ebb_store::{DesiredKey, DesiredTarget, DueItem};

use crate::source::reconcile;
use crate::{Env, FlowResult};

/// Applies a desired state. After an error, it is due again later.
pub(super) async fn sweep_desired(env: &Env, key: &DesiredKey) -> FlowResult<()> {
    let applied = async {
        let (_, follow_ups) = reconcile::apply(env, key).await?;
        for follow_up in follow_ups {
            follow_up.finish(env).await?;
        }
        Ok(())
    };
    let end = applied.await;
    super::record_end(env, &DueItem::Desired(key.clone()), end).await
}

pub(super) async fn postpone(env: &Env, key: &DesiredKey, wait: Millis) -> FlowResult<()> {
    let Some(seen) = env.store.read_desired(key).await? else { return Ok(()) };
    if seen.due.is_some_and(|due| due <= env.now()) {
        let due = Some(env.now().plus(wait));
        env.store.put_desired(&DesiredTarget { due, version: seen.version + 1, ..seen }).await?;
    }
    Ok(())
}
