//! Slots of plugins and connections with `maxConcurrent`. An attempt holds them from its first request until its end.
//!
//! An attempt that gets no slot is postponed, and keeps no other one, so no two attempts wait for each other. A slot ends some
//! time after the deadline of its attempt, because its release can be lost.

use ebb_documents::render::{KnownOutputs, RenderedUnit, TargetFacts};
use ebb_protocol::{Millis, Timestamp, id};

use crate::FlowResult;
use crate::run::{AttemptContext, credential, rendered_unit};

/// The time from the deadline of an attempt, as the dispatch computes it, to the end of its slot. A task in the queue of a relay
/// starts up to 5 min later.
const SLACK: Millis = Millis(10 * 60 * 1000);
/// The wait for a slot until the next dispatch, in milliseconds: this, and a random part of the spread.
const MIN_WAIT: u64 = 5_000;
const SPREAD: u64 = 10_000;
/// Characters of a digest of an attempt.
const HOLDER: usize = 16;

/// Returns the kind and the name of what limits a unit, with the number of slots. That of a connection is in its document.
fn caps(AttemptContext { run, unit, .. }: AttemptContext<'_>) -> Vec<(&'static str, &str, Option<u32>)> {
    let slots = run.loaded.plan.resource(unit.resource()).and_then(|resource| resource.max_concurrent);
    let plugin = slots.and_then(|slots| Some(("plugin", run.plugin(unit)?, Some(slots))));
    let connection = unit.action.connection().filter(|connection| connection.is_capped);
    plugin.into_iter().chain(connection.map(|connection| ("connection", connection.name.as_str(), None))).collect()
}

fn holder(AttemptContext { run, attempt, .. }: AttemptContext<'_>) -> String {
    let [unit, number] = [attempt.unit.0, attempt.number.0].map(|number| number.to_string());
    id::short_digest(&[run.id.as_str(), &unit, &number], HOLDER)
}

/// Takes the slots of an attempt. Returns the time of the next dispatch and the reason if one is missing.
pub(super) async fn take(
    context: AttemptContext<'_>,
    (facts, known): (&TargetFacts, &KnownOutputs),
) -> FlowResult<Option<(Timestamp, String)>> {
    let (AttemptContext { env, run, unit, .. }, caps) = (context, caps(context));
    let describes = |&at| run.loaded.plan.unit(at).is_some_and(|undone| undone.action.can_describe());
    let is_skipped =
        || matches!(rendered_unit::rendered(context, (facts, known), None).0, Ok(RenderedUnit::Skipped(_)));
    // A unit that has nothing to do does not wait. The question of an undo can show something to do.
    if caps.is_empty() || (!unit.undoes.iter().any(describes) && is_skipped()) {
        return Ok(None);
    }
    for (index, (kind, name, slots)) in caps.into_iter().enumerate() {
        let slots = match slots {
            None => credential::open(&env.store, name).await?.ok().and_then(|found| Some(found.max_concurrent?.value)),
            slots => slots,
        };
        let Some(slots) = slots else { continue };
        let now = env.now();
        let end = now.plus(Millis(unit.timeout_ms)).plus(SLACK);
        let (is_taken, used) = env.store.take_slot((kind, name), &holder(context), (slots, now, end)).await?;
        if !is_taken {
            if index > 0 {
                release(context).await?;
            }
            let at = now.plus(Millis(MIN_WAIT + env.random.next() % SPREAD));
            return Ok(Some((at, format!("waits for a slot of {kind} {name} ({} of {slots})", used.len()))));
        }
    }
    Ok(None)
}

/// Gives back the slots of an attempt that has ended or is postponed. Without caps, nothing is written.
pub(crate) async fn release(context: AttemptContext<'_>) -> FlowResult<()> {
    for (kind, name, _) in caps(context) {
        context.env.store.release_slot((kind, name), &holder(context), None).await?;
    }
    Ok(())
}
