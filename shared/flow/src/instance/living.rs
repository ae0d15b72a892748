//! Slots of the living targets of a source with a limit, or of an owner. Their holders are `KIND/NAME`.
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
/// Kinds of slots.
pub(crate) const SOURCE: &str = "source";
const OWNER: &str = "owner";

fn lives(head: &TargetHead, (kind, name): (&str, &str)) -> bool {
    let of = |source: &Option<String>, owner: &Option<String>| {
        let known = if kind == SOURCE { source } else { owner };
        known.as_deref() == Some(name)
    };
    let waits = head.waiting.as_ref().is_some_and(|waiting| of(&waiting.source, &waiting.owner));
    waits || (head.phase.is_alive() && of(&head.source, &head.owner))
}

/// Gives a target one of `most` slots of its source or owner. If none is left, returns the targets with a slot, as far as they
/// live or wait for their names, and the ends of their slots.
pub(crate) async fn take(
    env: &Env,
    (cap, most): ((&str, &str), u32),
    target: TargetKey<'_>,
) -> FlowResult<Vec<(Option<TargetHead>, Timestamp)>> {
    let (holder, now) = (target.to_string(), env.now());
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
            let head = env.store.read_target(TargetKey::new(kind, name)).await?.filter(|head| lives(head, cap));
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

/// Refuses to begin a target if as many targets of its source or owner live as the requester or the deployment permits. One that
/// is `seen` to live gets a slot above the limit, too, because it may have begun without a limit. If none is left, it lives on.
pub(crate) async fn check(
    env: &Env,
    requester: Requester<'_>,
    seen: Option<&TargetHead>,
    target: TargetKey<'_>,
) -> Result<(), RequestError> {
    let of_source = requester.sender.source().map(|source| ((SOURCE, source), requester.most_living));
    let of_owner = || Some(((OWNER, requester.access?.caller.as_str()), env.settings.living_per_owner));
    let Some((cap, Some(most))) = of_source.or_else(of_owner) else { return Ok(()) };
    if seen.is_some_and(|head| lives(head, cap)) {
        let slot = (MAX_SLOTS, Timestamp(0), env.now().plus(env.settings.max_in_flight));
        env.store.take_slot(cap, &target.to_string(), slot).await?;
        return Ok(());
    }
    match take(env, (cap, most), target).await?.len() {
        0 => Ok(()),
        used if cap.0 == OWNER => {
            let remedy = "delete one, or ask an operator for a larger LivingPerOwner of the deployment";
            let text = format!("{used} of {most} targets of {} live: {remedy}", cap.1);
            Err(RequestError::refused(ErrorCode::TooManyTargets, text))
        }
        used => {
            let text = format!("waits: {used} of {most} targets of the source live");
            Err(RequestError::refused(ErrorCode::Busy, text))
        }
    }
}
