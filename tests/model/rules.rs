//! Checks that the removal of each rule of the state protocol results in a violation.
//!
//! `rules.yaml` has the removals. `cargo xtask verify rules` applies them to a copy of the code, in which a thread with
//! the name of a rule leaves the rule out.

use serde::Deserialize;

use super::cases::{CALM, CHAIN, FAN_IN, GATEWAY, ModelCase, ONE, ONE_ITEM, TWO, case, update_case};
use super::choice::FaultBudget;
use super::explore::{Violation, shortest};
use super::simulation::{ModelAction, ModelUpdate, OutputMode};
use crate::simulation::{TraceMode, simulate};

/// The rules whose removal shows in simulations of random targets, and the most simulations of each.
const SIMULATED: [&str; 8] = [
    "EventHasUnits",
    "EndedEventNeedsNoCancel",
    "FailedStaysFailed",
    "OwnerDecides",
    "ArrivalDecides",
    "NewestDocumentWaits",
    "NextGeneration",
    "InstanceEndsOnce",
];
const SIMULATIONS: u64 = 5_000;
/// Maximum number of unusual steps of a path that shows a removal.
const UNUSUAL: u32 = 5;

/// The result of a removal.
#[derive(Clone, Debug)]
pub struct RuleFinding {
    pub case: String,
    /// A violation with the fewest unusual steps.
    pub violation: Violation,
    /// The number of explored states, with the rule and without it.
    pub states: usize,
}

/// Returns the names of all rules.
///
/// # Errors
/// If `rules.yaml` has another format.
pub fn rules() -> Result<Vec<String>, serde_saphyr::Error> {
    #[derive(Deserialize)]
    struct RuleFile {
        rules: Vec<Rule>,
    }
    #[derive(Deserialize)]
    struct Rule {
        rule: String,
    }
    let file: RuleFile = serde_saphyr::from_str(include_str!("rules.yaml"))?;
    Ok(file.rules.into_iter().map(|rule| rule.rule).collect())
}

/// Leaves `rule` out and searches for a violation in at most `paths` paths per number of unusual steps. With the rule,
/// the same orders must have no violation.
///
/// # Errors
/// If no violation is found without the rule, or one is found with it.
pub fn check_rule(rule: &str, paths: usize) -> Result<RuleFinding, String> {
    if SIMULATED.contains(&rule) {
        return check_by_simulation(rule);
    }
    let case = without(rule).ok_or_else(|| format!("`tests/model/rules.rs` has no case for the rule {rule}"))?;
    let found = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(rule.to_owned());
        let search = thread.spawn_scoped(scope, || shortest(&case, UNUSUAL, paths));
        search.expect("the system has threads").join().expect("the search does not panic")
    });
    let Some(violation) = found.violation else {
        return Err(format!("without {rule} nothing breaks in {} ({} states)", case.name, found.states));
    };
    let held = shortest(&case, violation.unusual, paths);
    if let Some(own) = held.violation {
        return Err(format!("with {rule}, {} breaks all the same: {own}", case.name));
    }
    Ok(RuleFinding { case: case.name, violation, states: found.states + held.states })
}

/// Leaves `rule` out of simulations until one has a violation. With the rule, it must have none.
fn check_by_simulation(rule: &str) -> Result<RuleFinding, String> {
    let wrong = |seed| simulate(seed, &[], TraceMode::Off).violations.into_iter().next();
    let found = std::thread::scope(|scope| {
        let search = || (1..=SIMULATIONS).find_map(|seed| Some((seed, wrong(seed)?)));
        let thread = std::thread::Builder::new().name(rule.to_owned()).spawn_scoped(scope, search);
        thread.expect("the system has threads").join().expect("a simulation does not panic")
    });
    let Some((seed, promise)) = found else {
        return Err(format!("without {rule} nothing breaks in {SIMULATIONS} simulations"));
    };
    if let Some(own) = wrong(seed) {
        return Err(format!("with {rule}, the simulation {seed} breaks all the same: {own}"));
    }
    let violation = Violation { promise, schedule: Vec::new(), unusual: 0 };
    Ok(RuleFinding { case: format!("simulation {seed}"), violation, states: seed as usize })
}

/// Returns the case that shows the removal of a rule.
fn without(rule: &str) -> Option<ModelCase> {
    let one = |runs, budget| case("one", runs, ONE, ONE_ITEM, budget);
    let delete = FaultBudget { deletions: 1, ..CALM };
    let update = |runs, updates: &[_], budget| update_case("update", runs, ONE, updates, budget);
    Some(match rule {
        "RecordBeforeHead" => one(ModelAction::Pod, FaultBudget { ticks: 1, ..delete }),
        "CancelBeforeUndo" => one(ModelAction::Pod, FaultBudget { kills: 2, ticks: 1, ..delete }),
        "RecordDecides" => one(ModelAction::Later, FaultBudget { ticks: 1, ..CALM }),
        "CancelByEpoch" => case("chain", ModelAction::Pod, CHAIN, ONE_ITEM, delete),
        "SealBeforeRead" | "ReopenOnLateResult" => one(ModelAction::Later, FaultBudget { ticks: 1, ..delete }),
        "DequeueBeforeKill" => {
            let mut case = case("two, one place", ModelAction::Pod, TWO, ONE_ITEM, delete);
            case.graph.slots = Some(1);
            case
        }
        "WaitForInFlight" => one(ModelAction::AtOnce, FaultBudget { deaths: 1, ..delete }),
        "GatewayIsNoAnswer" => {
            let mut case = one(ModelAction::AtOnce, FaultBudget { losses: 1, ..delete });
            (case.graph.attempts, case.graph.gateway) = (1, Some(GATEWAY));
            case
        }
        "EveryResultCounts" => one(ModelAction::Later, FaultBudget { contradictions: 1, ..delete }),
        "EnqueueTheRest" => {
            let mut case = case("two, one at a time", ModelAction::Pod, TWO, ONE_ITEM, CALM);
            case.graph.max_dispatches = Some(1);
            case
        }
        "UndoEveryAttempt" => one(ModelAction::Later, FaultBudget { ticks: 2, ..CALM }),
        "RecordAccepted" => one(ModelAction::Later, FaultBudget { sweeps: 1, ticks: 2, ..CALM }),
        "RepetitionsWait" => case("chain", ModelAction::Later, CHAIN, ONE_ITEM, FaultBudget { duplicates: 1, ..CALM }),
        "LeaseBeforeRepeat" => one(ModelAction::AtOnce, FaultBudget { deaths: 1, sweeps: 1, ..CALM }),
        "ClaimDelivery" => {
            let mut case = case("two", ModelAction::AtOnce, TWO, ONE_ITEM, FaultBudget { duplicates: 1, ..CALM });
            case.graph.max_dispatches = Some(1);
            case
        }
        "PostOnce" => one(ModelAction::Once, FaultBudget { deaths: 1, ..CALM }),
        "VersionGuardsReschedule" => one(ModelAction::Pod, FaultBudget { failures: 1, sweeps: 1, ticks: 1, ..CALM }),
        "RescheduleAfterActing" => {
            one(ModelAction::Pod, FaultBudget { failures: 1, sweeps: 1, deaths: 1, ticks: 1, ..CALM })
        }
        "FailedSweepIsDue" => one(ModelAction::Pod, FaultBudget { deaths: 1, losses: 1, ..CALM }),
        "DeadlineFromStart" => one(ModelAction::Pod, FaultBudget { deaths: 1, ticks: 1, ..CALM }),
        "ReadAllItems" => case("fan-in over items", ModelAction::Pod, FAN_IN, 1, CALM),
        "StopEveryItem" => case("chain of three over items", ModelAction::Pod, &[&[], &[0], &[1]], 1, delete),
        "OneTransaction" => one(ModelAction::Pod, FaultBudget { deaths: 1, ..CALM }),
        "RedriveKeepsEpoch" => {
            case("two", ModelAction::Later, TWO, ONE_ITEM, FaultBudget { ticks: 1, concurrent: 0, ..delete })
        }
        "JoinEverySend" => one(ModelAction::AtOnce, CALM),
        "FailedSendIsDue" => {
            case("chain", ModelAction::Pod, CHAIN, ONE_ITEM, FaultBudget { losses: 1, sweeps: 1, ticks: 1, ..CALM })
        }
        "RetryIsDue" => one(ModelAction::Pod, FaultBudget { failures: 1, drops: 1, ..CALM }),
        "KeepExpiredSuccess" => one(ModelAction::Later, FaultBudget { ticks: 1, ..CALM }),
        "UndoTheUnknown" => {
            let mut case = one(ModelAction::Pod, CALM);
            case.graph.outputs = OutputMode::Nothing;
            case
        }
        "StableKey" => one(ModelAction::Pod, FaultBudget { failures: 1, ..CALM }),
        "UpdateAlone" => update(ModelAction::Pod, &[ModelUpdate::Removed], FaultBudget { updates: 1, ..CALM }),
        "PendingUpdateIsDue" => {
            update(ModelAction::Pod, &[ModelUpdate::Removed], FaultBudget { deaths: 1, updates: 1, ..CALM })
        }
        "UpdateInOneTransaction" => {
            update(ModelAction::Pod, &[ModelUpdate::Removed], FaultBudget { deaths: 1, ..CALM })
        }
        "KeysOfUpdate" => update(ModelAction::Pod, &[ModelUpdate::Replaced], CALM),
        "KeepFormerUndos" => update(ModelAction::Pod, &[ModelUpdate::Removed], delete),
        "SkipDoneUndo" => update(ModelAction::Pod, &[ModelUpdate::Removed], CALM),
        "LateSuccessBeforeSkip" => {
            update(ModelAction::Later, &[ModelUpdate::Removed], FaultBudget { contradictions: 1, updates: 1, ..CALM })
        }
        "CompleteFailedUpdate" => {
            update(ModelAction::Pod, &[ModelUpdate::Labelled], FaultBudget { failures: 2, ..CALM })
        }
        _ => return None,
    })
}
