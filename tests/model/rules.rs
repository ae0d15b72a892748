//! Checks that the removal of each rule of the state protocol results in a violation.
//!
//! `rules.yaml` has the removals. `cargo xtask verify rules` applies them to a copy of the code, in which a thread with
//! the name of a rule leaves the rule out.

use serde::Deserialize;

use super::cases::{CALM, CHAIN, GATEWAY, ModelCase, ONE, TWO, case, update_case};
use super::choice::FaultBudget;
use super::explore::{Violation, shortest};
use super::simulation::{ModelGraph, ModelUpdate, OutputMode};
use crate::simulation::{TraceMode, UnitAction, simulate};

/// The most simulations of a rule without a case.
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
    let Some(case) = without(rule) else { return check_by_simulation(rule) };
    let found = leaving_out(rule, || shortest(&case, UNUSUAL, paths));
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
    let found = leaving_out(rule, || (1..=SIMULATIONS).find_map(|seed| Some((seed, wrong(seed)?))));
    let Some((seed, promise)) = found else {
        return Err(format!("without {rule} nothing breaks in {SIMULATIONS} simulations"));
    };
    if let Some(own) = wrong(seed) {
        return Err(format!("with {rule}, the simulation {seed} breaks all the same: {own}"));
    }
    let violation = Violation { promise, schedule: Vec::new(), unusual: 0 };
    Ok(RuleFinding { case: format!("simulation {seed}"), violation, states: seed as usize })
}

/// Searches on a thread with the name of a rule, which leaves the rule out.
fn leaving_out<T: Send>(rule: &str, search: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(rule.to_owned()).spawn_scoped(scope, search);
        thread.expect("the system has threads").join().expect("the search does not panic")
    })
}

/// Returns the case that shows the removal of a rule. Without one, it shows in simulations of random targets.
fn without(rule: &str) -> Option<ModelCase> {
    use UnitAction::{Later, Once, Pod};
    let one = |runs, budget| case("one", runs, ONE, budget);
    let two = |name, runs, budget| case(name, runs, TWO, budget);
    let chain = |runs, budget| case("chain", runs, CHAIN, budget);
    let update = |runs, update, budget| update_case("update", runs, ONE, &[update], budget);
    let removed = |runs, budget| update(runs, ModelUpdate::Removed, budget);
    let sends_one = |graph: &mut ModelGraph| graph.max_dispatches = Some(1);
    let delete = FaultBudget { deletions: 1, ..CALM };
    let death = FaultBudget { deaths: 1, ..CALM };
    let failure = FaultBudget { failures: 1, ..CALM };
    Some(match rule {
        "RecordBeforeHead" => one(Pod, FaultBudget { ticks: 1, ..delete }),
        "CancelBeforeUndo" => one(Pod, FaultBudget { kills: 2, ticks: 1, ..delete }),
        "RecordDecides" | "KeepExpiredSuccess" => one(Later, FaultBudget { ticks: 1, ..CALM }),
        "CancelByEpoch" => chain(Pod, delete),
        "SealBeforeRead" | "ReopenOnLateResult" => one(Later, FaultBudget { ticks: 1, ..delete }),
        "DequeueBeforeKill" => two("two, one place", Pod, delete).with(|graph| graph.slots = Some(1)),
        "WaitForInFlight" => one(Once, FaultBudget { deaths: 1, ..delete }),
        "GatewayIsNoAnswer" => one(Once, FaultBudget { losses: 1, ..delete })
            .with(|graph| (graph.attempts, graph.gateway) = (1, Some(GATEWAY))),
        "EveryResultCounts" => one(Later, FaultBudget { contradictions: 1, ..delete }),
        "EnqueueTheRest" => two("two, one at a time", Pod, CALM).with(sends_one),
        "UndoEveryAttempt" => one(Later, FaultBudget { ticks: 2, ..CALM }),
        "RecordAccepted" => one(Later, FaultBudget { sweeps: 1, ticks: 2, ..CALM }),
        "RepetitionsWait" => chain(Later, FaultBudget { duplicates: 1, ..CALM }),
        "LeaseBeforeRepeat" => one(Once, FaultBudget { sweeps: 1, ..death }),
        "ClaimDelivery" => two("two", Once, FaultBudget { duplicates: 1, ..CALM }).with(sends_one),
        "PostOnce" => one(Once, death).with(|graph| graph.idempotent = false),
        "VersionGuardsReschedule" => one(Pod, FaultBudget { sweeps: 1, ticks: 1, ..failure }),
        "RescheduleAfterActing" => one(Pod, FaultBudget { sweeps: 1, deaths: 1, ticks: 1, ..failure }),
        "FailedSweepIsDue" => one(Pod, FaultBudget { losses: 1, ..death }),
        "DeadlineFromStart" => one(Pod, FaultBudget { ticks: 1, ..death }),
        "OneTransaction" => one(Pod, death),
        "RedriveKeepsEpoch" => two("two", Later, FaultBudget { ticks: 1, concurrent: 0, ..delete }),
        "JoinEverySend" => one(Once, CALM),
        "FailedSendIsDue" => chain(Pod, FaultBudget { losses: 1, sweeps: 1, ticks: 1, ..CALM }),
        "RetryIsDue" => one(Pod, FaultBudget { drops: 1, ..failure }),
        "UndoTheUnknown" => one(Pod, CALM).with(|graph| graph.outputs = OutputMode::Nothing),
        "StableKey" => one(Pod, failure),
        "UpdateAlone" => removed(Pod, FaultBudget { updates: 1, ..CALM }),
        "PendingUpdateIsDue" => removed(Pod, FaultBudget { updates: 1, ..death }),
        "UpdateInOneTransaction" => removed(Pod, death),
        "KeysOfUpdate" => update(Pod, ModelUpdate::Replaced, CALM),
        "KeepFormerUndos" => removed(Pod, delete),
        "SkipDoneUndo" => removed(Pod, CALM),
        "LateSuccessBeforeSkip" => removed(Later, FaultBudget { contradictions: 1, updates: 1, ..CALM }),
        "CompleteFailedUpdate" => update(Pod, ModelUpdate::Labelled, FaultBudget { failures: 2, ..CALM }),
        _ => return None,
    })
}
