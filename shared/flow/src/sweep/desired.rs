//! Sweeps one desired state: applies it if its invocation has ended early or the target could not take it.

use ebb_store::{DesiredKey, DueItem};

use super::postpone::record_end;
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
    record_end(env, &DueItem::Desired(key.clone()), end).await
}
