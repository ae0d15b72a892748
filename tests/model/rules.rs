//! The absence of each rule, and where it shows.

use ebb_flow::switch::{self, Rule};

use super::cases::{CALM, CHAIN, Case, FAN_IN, GATEWAY, ONE, ONE_ITEM, TWO, case};
use super::choice::Budget;
use super::explore::{Violation, shortest};
use super::place::{Runs, Says};

/// Unusual steps that show a rule's absence, at most.
const UNUSUAL: u32 = 5;

/// That the absence of a rule was noticed.
#[derive(Clone, Debug)]
pub struct Noticed {
    pub case: String,
    /// A broken promise with the fewest unusual steps.
    pub violation: Violation,
    /// States that were gone through, with the rule and without it.
    pub states: usize,
}

/// Switches `rule` off and looks for a promise that breaks, in at most `paths` paths for each number of unusual steps;
/// with the rule, the same orders must break none.
///
/// # Errors
/// What was expected and not seen.
pub fn notice(rule: Rule, paths: usize) -> Result<Noticed, String> {
    let case = without(rule);
    switch::switch_off(Some(rule));
    let found = shortest(&case, UNUSUAL, paths);
    switch::switch_off(None);
    let Some(violation) = found.violation else {
        return Err(format!("without {rule:?} nothing breaks in {} ({} states)", case.name, found.states));
    };
    let held = shortest(&case, violation.unusual, paths);
    if let Some(own) = held.violation {
        return Err(format!("with {rule:?}, {} breaks all the same: {own}", case.name));
    }
    Ok(Noticed { case: case.name, violation, states: found.states + held.states })
}

/// Where the absence of a rule shows.
fn without(rule: Rule) -> Case {
    use Rule as R;
    let one = |runs, budget| case("one", runs, ONE, ONE_ITEM, budget);
    let delete = Budget { deletions: 1, ..CALM };
    match rule {
        R::RecordBeforeHead => one(Runs::Pod, Budget { ticks: 1, ..delete }),
        R::SettleBeforeUndo => one(Runs::Pod, Budget { kills: 2, ticks: 1, ..delete }),
        R::RecordDecides => one(Runs::Later, Budget { ticks: 1, ..CALM }),
        R::CancelByEpoch => case("chain", Runs::Pod, CHAIN, ONE_ITEM, delete),
        R::SealBeforeRead | R::ReopenOnLate => one(Runs::Later, Budget { ticks: 1, ..delete }),
        R::DequeueBeforeKill => {
            let mut case = case("two, one place", Runs::Pod, TWO, ONE_ITEM, delete);
            case.graph.places = Some(1);
            case
        }
        R::WaitForLanding => one(Runs::AtOnce, Budget { deaths: 1, ..delete }),
        R::GatewayIsNoAnswer => {
            let mut case = one(Runs::AtOnce, Budget { losses: 1, ..delete });
            (case.graph.tries, case.graph.gateway) = (1, Some(GATEWAY));
            case
        }
        R::EveryResultCounts => one(Runs::Later, Budget { contradictions: 1, ..delete }),
        R::PassOnTheRest => {
            let mut case = case("two, one at a time", Runs::Pod, TWO, ONE_ITEM, CALM);
            case.graph.sends = Some(1);
            case
        }
        R::UndoEveryAttempt => one(Runs::Later, Budget { ticks: 2, ..CALM }),
        R::RecordAccepted => one(Runs::Later, Budget { sweeps: 1, ticks: 2, ..CALM }),
        R::RepetitionsWait => case("chain", Runs::Later, CHAIN, ONE_ITEM, Budget { doubles: 1, ..CALM }),
        R::LeaseBeforeRepeat => one(Runs::AtOnce, Budget { deaths: 1, sweeps: 1, ..CALM }),
        R::ClaimDelivery => {
            let mut case = case("two", Runs::AtOnce, TWO, ONE_ITEM, Budget { doubles: 1, ..CALM });
            case.graph.sends = Some(1);
            case
        }
        R::PostOnce => one(Runs::Once, Budget { deaths: 1, ..CALM }),
        R::VersionGuardsRearm => one(Runs::Pod, Budget { failures: 1, sweeps: 1, ticks: 1, ..CALM }),
        R::RearmAfterActing => one(Runs::Pod, Budget { failures: 1, sweeps: 1, deaths: 1, ticks: 1, ..CALM }),
        R::FailedLookIsDue => one(Runs::Pod, Budget { deaths: 1, losses: 1, ..CALM }),
        R::DeadlineFromStart => one(Runs::Pod, Budget { deaths: 1, ticks: 1, ..CALM }),
        R::LookAtAllItems => case("fan-in over items", Runs::Pod, FAN_IN, 1, CALM),
        R::StopEveryItem => case("chain of three over items", Runs::Pod, &[&[], &[0], &[1]], 1, delete),
        R::OneTransaction => one(Runs::Pod, Budget { deaths: 1, ..CALM }),
        R::RedriveKeepsEpoch => {
            case("two", Runs::Later, TWO, ONE_ITEM, Budget { ticks: 1, beside: 0, ..delete })
        }
        R::JoinEverySend => one(Runs::AtOnce, CALM),
        R::FailedSendIsDue => {
            case("chain", Runs::Pod, CHAIN, ONE_ITEM, Budget { losses: 1, sweeps: 1, ticks: 1, ..CALM })
        }
        R::RetryIsDue => one(Runs::Pod, Budget { failures: 1, drops: 1, ..CALM }),
        R::KeepExpiredSuccess => one(Runs::Later, Budget { ticks: 1, ..CALM }),
        R::UndoTheUnknown => {
            let mut case = one(Runs::Pod, CALM);
            case.graph.says = Says::Nothing;
            case
        }
        R::StableKey => one(Runs::Pod, Budget { failures: 1, ..CALM }),
    }
}
