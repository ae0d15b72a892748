//! Random planned targets, and what is expected of their units.

use ebb_engine::Hook;
use ebb_tests::simulation::{ATTEMPTS, AttemptFate, Scenario, SetupUnit, UndoUnit, UnitAction, UnitEffect};
use proptest::prelude::*;

pub(crate) fn setup_key(unit: usize) -> String {
    format!("r/u{unit}")
}

pub(crate) fn waits_for(scenario: &Scenario, unit: usize) -> Vec<usize> {
    let own = &scenario.units[unit];
    let reads = own.reads.iter().filter(|&&read| scenario.units[read].hook == own.hook);
    reads.chain(&own.after).copied().collect()
}

/// Returns true if a unit is skipped: by itself, or because it reads a skipped one.
pub(crate) fn is_skipped(scenario: &Scenario, unit: usize) -> bool {
    let own = &scenario.units[unit];
    own.fate == AttemptFate::Skipped || own.reads.iter().any(|&read| is_skipped(scenario, read))
}

/// Returns true if a unit that is not skipped succeeds after its failures.
pub(crate) fn succeeds(scenario: &Scenario, unit: usize) -> bool {
    match scenario.units[unit].fate {
        AttemptFate::Fails(first) => first < ATTEMPTS,
        AttemptFate::Never => false,
        AttemptFate::Skipped => true,
    }
}

/// Generates scenarios of 1 to `most` units. Of 400 units, `2 * faults` fail at first, `faults` fail always, and
/// `faults` are skipped.
pub(crate) fn scenarios(most: usize, faults: u32) -> impl Strategy<Value = Scenario> {
    let units = prop::collection::vec(raw(faults), 1..=most);
    (units, any::<u64>(), 0..3_usize).prop_map(|(raw, seed, post)| {
        let count = raw.len();
        let first_post = if post == 0 { count.div_ceil(2).max(1) } else { count };
        let mut units: Vec<SetupUnit> = Vec::new();
        for (position, (mut unit, edges)) in raw.into_iter().enumerate() {
            unit.hook = if position < first_post { Hook::PreStart } else { Hook::PostStart };
            for (other, edge) in edges.into_iter().take(position).enumerate() {
                match edge {
                    0 | 1 => unit.reads.push(other),
                    2 if units[other].hook == unit.hook => unit.after.push(other),
                    _ => {}
                }
            }
            units.push(unit);
        }
        Scenario { seed, ..Scenario::of(units) }
    })
}

fn action() -> impl Strategy<Value = UnitAction> {
    prop_oneof![Just(UnitAction::Pod), Just(UnitAction::Once), Just(UnitAction::Later)]
}

fn raw(faults: u32) -> impl Strategy<Value = (SetupUnit, Vec<u8>)> {
    let effect = prop_oneof![Just(UnitEffect::Once), Just(UnitEffect::PerAttempt)];
    let fate = prop_oneof![
        400 - 4 * faults + 1 => Just(AttemptFate::Fails(0)),
        2 * faults => (1..ATTEMPTS).prop_map(AttemptFate::Fails),
        faults => Just(AttemptFate::Never),
        faults => Just(AttemptFate::Skipped),
    ];
    let undo = (action(), 1..8_000_u64, prop_oneof![3 => Just(0_u32), 1 => 1..ATTEMPTS]);
    let millis = prop_oneof![1..50_u64, 1..15_000_u64];
    (action(), millis, fate, effect, undo, prop::collection::vec(0..6_u8, 12)).prop_map(
        |(action, millis, fate, effect, (undo, undo_millis, fails), edges)| {
            let undo = UndoUnit { action: undo, millis: undo_millis, fate: AttemptFate::Fails(fails) };
            (SetupUnit { fate, effect, undo: Some(undo), ..SetupUnit::plain(action, millis, &[]) }, edges)
        },
    )
}
