//! Checks that the removal of each rule of the state protocol results in a violation.
//!
//! `rules.yaml` has the removals. `cargo xtask verify rules` applies them to a copy of the code, in which a thread with
//! the name of a rule leaves the rule out.

use super::*;
use crate::simulation::{TraceMode, simulate};

/// The most simulations of a rule without a case.
const SIMULATIONS: u64 = 5_000;
/// Maximum number of unusual steps of a path that shows a removal.
const UNUSUAL: u32 = 5;

#[derive(Clone, Debug)]
pub struct RuleFinding {
    pub case: String,
    /// A violation with the fewest unusual steps.
    pub violation: Violation,
    /// The number of explored states, with the rule and without it.
    pub states: usize,
}

/// The file without what the build of the copy reads.
#[derive(Deserialize)]
struct RuleFile {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    rule: String,
    case: Option<CaseEntry>,
}

fn read() -> Result<Vec<Rule>, serde_saphyr::Error> {
    let file: RuleFile = serde_saphyr::from_str(include_str!("rules.yaml"))?;
    Ok(file.rules)
}

/// Returns the names of all rules.
///
/// # Errors
/// If `rules.yaml` has another format.
pub fn rules() -> Result<Vec<String>, serde_saphyr::Error> {
    Ok(read()?.into_iter().map(|rule| rule.rule).collect())
}

/// Leaves `rule` out and searches for a violation in at most `paths` paths per number of unusual steps. With the rule,
/// the same orders must have no violation.
///
/// # Errors
/// If no violation is found without the rule, or one is found with it, or `rules.yaml` has another format.
pub fn check_rule(rule: &str, paths: usize) -> Result<RuleFinding, String> {
    let rules = read().map_err(|error| error.to_string())?;
    let entry = rules.into_iter().find(|one| one.rule == rule).and_then(|one| one.case);
    // Without a case, the removal shows in simulations of random targets.
    let Some((_, case)) = entry.and_then(|entry| entry.cases().next()) else { return check_by_simulation(rule) };
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
