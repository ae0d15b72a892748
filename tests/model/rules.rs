//! The absence of each rule, and where it shows.

use ebb_flow::switch::{self, ProtocolRule};

use super::cases::{CALM, CHAIN, FAN_IN, GATEWAY, ModelCase, ONE, ONE_ITEM, TWO, case};
use super::choice::FaultBudget;
use super::explore::{Violation, shortest};
use super::simulation::{ModelAction, OutputMode};

/// Unusual steps that show a rule's absence, at most.
const UNUSUAL: u32 = 5;

/// That the absence of a rule was noticed.
#[derive(Clone, Debug)]
pub struct RuleFinding {
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
pub fn check_rule(rule: ProtocolRule, paths: usize) -> Result<RuleFinding, String> {
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
    Ok(RuleFinding { case: case.name, violation, states: found.states + held.states })
}

/// Where the absence of a rule shows.
fn without(rule: ProtocolRule) -> ModelCase {
    use ProtocolRule as R;
    let one = |runs, budget| case("one", runs, ONE, ONE_ITEM, budget);
    let delete = FaultBudget { deletions: 1, ..CALM };
    match rule {
        R::RecordBeforeHead => one(ModelAction::Pod, FaultBudget { ticks: 1, ..delete }),
        R::CancelBeforeUndo => one(ModelAction::Pod, FaultBudget { kills: 2, ticks: 1, ..delete }),
        R::RecordDecides => one(ModelAction::Later, FaultBudget { ticks: 1, ..CALM }),
        R::CancelByEpoch => case("chain", ModelAction::Pod, CHAIN, ONE_ITEM, delete),
        R::SealBeforeRead | R::ReopenOnLateResult => one(ModelAction::Later, FaultBudget { ticks: 1, ..delete }),
        R::DequeueBeforeKill => {
            let mut case = case("two, one place", ModelAction::Pod, TWO, ONE_ITEM, delete);
            case.graph.slots = Some(1);
            case
        }
        R::WaitForInFlight => one(ModelAction::AtOnce, FaultBudget { deaths: 1, ..delete }),
        R::GatewayIsNoAnswer => {
            let mut case = one(ModelAction::AtOnce, FaultBudget { losses: 1, ..delete });
            (case.graph.attempts, case.graph.gateway) = (1, Some(GATEWAY));
            case
        }
        R::EveryResultCounts => one(ModelAction::Later, FaultBudget { contradictions: 1, ..delete }),
        R::EnqueueTheRest => {
            let mut case = case("two, one at a time", ModelAction::Pod, TWO, ONE_ITEM, CALM);
            case.graph.max_dispatches = Some(1);
            case
        }
        R::UndoEveryAttempt => one(ModelAction::Later, FaultBudget { ticks: 2, ..CALM }),
        R::RecordAccepted => one(ModelAction::Later, FaultBudget { sweeps: 1, ticks: 2, ..CALM }),
        R::RepetitionsWait => case("chain", ModelAction::Later, CHAIN, ONE_ITEM, FaultBudget { duplicates: 1, ..CALM }),
        R::LeaseBeforeRepeat => one(ModelAction::AtOnce, FaultBudget { deaths: 1, sweeps: 1, ..CALM }),
        R::ClaimDelivery => {
            let mut case = case("two", ModelAction::AtOnce, TWO, ONE_ITEM, FaultBudget { duplicates: 1, ..CALM });
            case.graph.max_dispatches = Some(1);
            case
        }
        R::PostOnce => one(ModelAction::Once, FaultBudget { deaths: 1, ..CALM }),
        R::VersionGuardsReschedule => one(ModelAction::Pod, FaultBudget { failures: 1, sweeps: 1, ticks: 1, ..CALM }),
        R::RescheduleAfterActing => {
            one(ModelAction::Pod, FaultBudget { failures: 1, sweeps: 1, deaths: 1, ticks: 1, ..CALM })
        }
        R::FailedSweepIsDue => one(ModelAction::Pod, FaultBudget { deaths: 1, losses: 1, ..CALM }),
        R::DeadlineFromStart => one(ModelAction::Pod, FaultBudget { deaths: 1, ticks: 1, ..CALM }),
        R::ReadAllItems => case("fan-in over items", ModelAction::Pod, FAN_IN, 1, CALM),
        R::StopEveryItem => case("chain of three over items", ModelAction::Pod, &[&[], &[0], &[1]], 1, delete),
        R::OneTransaction => one(ModelAction::Pod, FaultBudget { deaths: 1, ..CALM }),
        R::RedriveKeepsEpoch => {
            case("two", ModelAction::Later, TWO, ONE_ITEM, FaultBudget { ticks: 1, concurrent: 0, ..delete })
        }
        R::JoinEverySend => one(ModelAction::AtOnce, CALM),
        R::FailedSendIsDue => {
            case("chain", ModelAction::Pod, CHAIN, ONE_ITEM, FaultBudget { losses: 1, sweeps: 1, ticks: 1, ..CALM })
        }
        R::RetryIsDue => one(ModelAction::Pod, FaultBudget { failures: 1, drops: 1, ..CALM }),
        R::KeepExpiredSuccess => one(ModelAction::Later, FaultBudget { ticks: 1, ..CALM }),
        R::UndoTheUnknown => {
            let mut case = one(ModelAction::Pod, CALM);
            case.graph.outputs = OutputMode::Nothing;
            case
        }
        R::StableKey => one(ModelAction::Pod, FaultBudget { failures: 1, ..CALM }),
    }
}
