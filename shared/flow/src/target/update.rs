//! Conditional writes of targets.

use ebb_store::{TargetHead, TargetTransition};

use crate::env::Env;
use crate::error::FlowError;

/// Reads a target and writes the transition that `decide` returns for it. Repeats both while others change the target.
/// Returns what it wrote, or `None` if there is no target or no transition.
///
/// # Errors
/// The store's.
pub(crate) async fn update_target(
    env: &Env,
    kind: &str,
    name: &str,
    decide: impl Fn(&TargetHead) -> Option<TargetTransition>,
) -> Result<Option<TargetTransition>, FlowError> {
    for _ in 0..crate::ATTEMPTS {
        let seen = env.store.read_target(kind, name).await?;
        let Some(transition) = seen.and_then(|seen| decide(&seen)) else { return Ok(None) };
        if env.store.move_target(&transition).await? {
            return Ok(Some(transition));
        }
    }
    Err(FlowError::Contended(format!("{kind}/{name}")))
}
