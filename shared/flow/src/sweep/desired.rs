//! Sweeps one desired state: applies it if its invocation has ended early or the target could not take it.

use ebb_store::{DesiredKey, DesiredTarget, DueItem};

use crate::env::Env;
use crate::error::{FlowError, FlowResult};
use crate::source::reconcile;

/// Applies a desired state. After an error, it is due again later.
pub(super) async fn sweep_desired(env: &Env, key: &DesiredKey) -> FlowResult<()> {
    let due = DueItem::Desired(key.clone());
    let applied = async {
        let (_, follow_ups) = reconcile::apply(env, key).await?;
        for follow_up in follow_ups {
            follow_up.finish(env).await?;
        }
        Ok(())
    };
    let result = applied.await;
    match &result {
        Ok(()) => env.cache.failed_sweeps.clear(&due),
        Err(error) => {
            let wait = env.cache.failed_sweeps.next_wait(&due, FlowError::is_retryable(error));
            let postponed = async {
                let Some(seen) = env.store.read_desired(key).await? else { return Ok(()) };
                if seen.due.is_some_and(|due| due <= env.now()) {
                    let due = Some(env.now().plus(wait));
                    env.store.put_desired(&DesiredTarget { due, version: seen.version + 1, ..seen }).await?;
                }
                Ok::<_, FlowError>(())
            };
            if let Err(error) = postponed.await {
                tracing::warn!(?key, %error, "cannot postpone the desired state");
            }
        }
    }
    result
}
