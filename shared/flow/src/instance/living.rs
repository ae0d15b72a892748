//! Slots of the living targets of a source with a limit. Their holders are `KIND/NAME`.
//!
//! A target gets its slot before it begins. The slot ends when no write that begins the target can arrive any more. From then
//! on, the target has it while it lives or waits for its name, so its end writes nothing: a slot without such a target, also
//! one that a crash has left, is given to another target when no slot is left.

use ebb_engine::Timestamp;
use ebb_protocol::{ErrorCode, TargetKey};
use ebb_store::TargetHead;

use super::requester::Requester;
use crate::{Env, FlowResult, RequestError};

/// Maximum slots, also of targets that have begun before their source had a limit. They fit into an item.
const MAX_SLOTS: u32 = 400;

fn lives(head: &TargetHead, source: &str) -> bool {
    let waits = head.waiting.as_ref().is_some_and(|waiting| waiting.source.as_deref() == Some(source));
    waits || (head.phase.is_alive() && head.source.as_deref() == Some(source))
}

/// Gives a target one of `most` slots of its source. If none is left, returns the targets with a slot, as far as they live or
/// wait for their names, and the ends of their slots.
pub(crate) async fn take(
    env: &Env,
    (source, most): (&str, u32),
    target: TargetKey<'_>,
) -> FlowResult<Vec<(Option<TargetHead>, Timestamp)>> {
    let (cap, holder, now) = (("source", source), target.to_string(), env.now());
    'taking: loop {
        // No slot is free because of its end alone.
        let slot = (most, Timestamp(0), now.plus(env.settings.max_in_flight));
        let (is_taken, held) = env.store.take_slot(cap, &holder, slot).await?;
        // More targets may have begun before the source had this limit.
        if is_taken && held.len() <= most as usize {
            return Ok(Vec::new());
        }
        let mut used = Vec::new();
        for (other, end) in held.into_iter().filter(|(other, _)| *other != holder) {
            let Some((kind, name)) = other.split_once('/') else { continue };
            let head = env.store.read_target(TargetKey::new(kind, name)).await?.filter(|head| lives(head, source));
            if head.is_none() && end <= now {
                // A target that has got its slot again since keeps it.
                env.store.release_slot(cap, &other, Some(end)).await?;
                continue 'taking;
            }
            used.push((head, end));
        }
        return Ok(used);
    }
}

/// Refuses to begin a target if as many targets of its source live as the requester permits. One that is `seen` to live gets a
/// slot above the limit, too, because its source may have had none when it began. It stays without a slot.
pub(crate) async fn check(
    env: &Env,
    requester: Requester<'_>,
    seen: Option<&TargetHead>,
    target: TargetKey<'_>,
) -> Result<(), RequestError> {
    let Some((source, most)) = requester.sender.source().zip(requester.most_living) else { return Ok(()) };
    if seen.is_some_and(|head| lives(head, source)) {
        let slot = (MAX_SLOTS, Timestamp(0), env.now().plus(env.settings.max_in_flight));
        env.store.take_slot(("source", source), &target.to_string(), slot).await?;
        return Ok(());
    }
    match take(env, (source, most), target).await?.len() {
        0 => Ok(()),
        used => {
            let text = format!("waits: {used} of {most} targets of the source live");
            Err(RequestError::refused(ErrorCode::Busy, text))
        }
    }
}
