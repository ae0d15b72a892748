//! Writes targets by conditional writes that are repeated.

use ebb_protocol::id::TargetKey;
use ebb_store::{TargetHead, TargetTransition};

use crate::env::Env;
use crate::error::{FlowError, FlowResult};

/// Reads a target and writes the transition that `decide` returns for it. Repeats both while other writers change the
/// target. Returns the written transition, or `None` without a target or a transition.
pub(crate) async fn update_target(
    env: &Env,
    target: TargetKey<'_>,
    decide: impl Fn(&TargetHead) -> Option<TargetTransition>,
) -> FlowResult<Option<TargetTransition>> {
    for _ in 0..crate::ATTEMPTS {
        let seen = env.store.read_target(target).await?;
        let Some(transition) = seen.and_then(|seen| decide(&seen)) else { return Ok(None) };
        if env.store.move_target(&transition).await? {
            return Ok(Some(transition));
        }
    }
    Err(FlowError::Contended(target.to_string()))
}
