//! Explains why a target is not ready, or not gone.
//!
//! 1. Find the first cause in the runs that concern the present phase.
//! 2. List effects that may still exist, and overrides of operators.
//! 3. Find an outage of a relay, or the reasons why units wait.
//! 4. Summarise these in one sentence and name the next steps.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::{Plan, RenderedUnit, UnitContext, UnitRef, render};
use ebb_engine::{AttemptRef, Hook, Millis, TargetPhase, attempts_used};
use ebb_protocol::words::{self, TargetSituation};
use ebb_protocol::{
    FailedUnit, RelayOutage, RemainingEffect, RemovalGrade, ResourceRemoval, RootCause, RunDetail, RunId, RunState,
    TargetDiagnosis, TargetStopCause, UnitDetail, UnitState, UnitWait, limits, parse_rfc3339, rfc3339,
};
use ebb_store::{DatedEvent, RefusedUpdate, TargetHead};

use crate::queries::logs::{self, UnitLog};
use crate::queries::{live, open_units, runs, sources, targets, waits};
use ebb_flow::advance::early_start;
use ebb_flow::operator::repair::{self, RepairMode, RepairSource};
use ebb_flow::run::cause::{self, FirstCause};
use ebb_flow::run::dispatch::unit_inputs;
use ebb_flow::run::removal::evidence;
use ebb_flow::run::removal::possible_resources::{Override, RemainingResources, remaining_resources};
use ebb_flow::run::{AttemptContext, inputs};
use ebb_flow::{Env, FlowError, FlowResult, InvocationCache, RequestError, Run, lifecycle, outages};

/// Maximum lines of the log in a diagnosis.
const LOG_LINES: usize = 20;
/// Maximum characters of a line of the log.
const LINE: usize = 1_000;
/// Maximum failed units in a diagnosis.
const FAILURES: usize = 20;
/// Maximum characters of an input.
const INPUT_LENGTH: usize = 200;
/// The end of a summary that names no unit: a function ended before it moved the target on.
pub const CONTINUED: &str = "the next sweep or a retry continues it";

pub async fn why(env: &Env, target: TargetHead) -> FlowResult<TargetDiagnosis> {
    let loaded = match env.plan_of(&target).await {
        Err(FlowError::Damaged { what, fix }) => return Ok(damaged(&target, &what, fix)),
        loaded => loaded?,
    };
    let (mut failures, mut failed_hook) = (Vec::new(), None);
    let mut cause = None;
    let mut last: Option<RunDetail> = None;
    let mut notes = Vec::new();
    for id in targets::runs_of(&target) {
        if loaded.hook_plan(id.hook()).is_none() {
            continue;
        }
        let Some(run) = Run::load(env, &id).await? else { continue };
        let detail = runs::get(env, &id).await?;
        let units = detail.iter().flat_map(|run| &run.units);
        notes.extend(units.flat_map(|unit| [excess(unit), refused(unit)]).flatten());
        let is_concerned = concerns(&target, &id);
        if is_concerned {
            last = detail;
        } else if target.phase != TargetPhase::Ready || id.hook().is_teardown() || !tolerates_any(&run) {
            continue;
        }
        let mut found = cause::current(env, &run).await?;
        found.retain(|found| is_concerned || run.graph().tolerates(found.unit));
        if let Some(first) = found.first() {
            cause = Some(explain(env, &run, first.clone()).await?);
            failures = found.iter().take(FAILURES).filter_map(|found| failed_unit(&run, found)).collect();
            failed_hook = Some(id.hook());
        }
    }
    let RemainingResources { exists, overrides, notes: more } = remaining_resources(env, &target, &loaded).await?;
    let mut removals = match target.phase {
        TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone => {
            evidence::removals(env, &target, &loaded).await?
        }
        _ if loaded.plan.update.is_some() => evidence::removals(env, &target, &loaded).await?,
        _ => Vec::new(),
    };
    notes.extend(overrides.iter().filter(|one| one.is_open).map(Override::note));
    notes.extend(more);
    let outage = outages::find_outage(env, &loaded.plan, last.as_slice()).await?;
    let waiting = last.as_ref().and_then(|run| waiting(&loaded.plan, run));
    let failed = (failed_hook.as_ref().map_or("", Hook::name), failures.as_slice());
    let mut summary = summary(&target, waiting, failed, (&exists, &overrides, &removals), outage.as_ref());
    if let Some(expired) = target.expires.filter(|_| target.stop_cause == TargetStopCause::Expired) {
        summary = format!("{summary}; its time to live ended at {}", rfc3339(expired));
    }
    if let Some(undelivered) = undelivered(&target) {
        summary = format!("{summary}; {undelivered}");
    }
    notes.extend(changes_of_plan(&target, &loaded.plan));
    let registered = if outage.is_some() { env.relay.clusters().await } else { Vec::new() };
    let is_registered = |name: &String| registered.iter().any(|it| it.is_registered && it.name == *name);
    let lost = outage.as_ref().map(|outage| (outage.cluster.as_str(), is_registered(&outage.cluster)));
    let (plugin, newer) = newer_version(env, &target, &failures, &loaded.plan).await?;
    let early = Box::pin(early_start::start_early(env, (target.target_key(), Some(&target.uid)), None)).await?;
    let situation = TargetSituation {
        kind: &target.kind,
        name: &target.name,
        source: target.source.as_deref(),
        is_undelivered: waits::delivery(&target).is_some(),
        lost,
        wait: last.as_ref().and_then(|run| live::first_wait(&run.units)),
        plugin: plugin.as_deref(),
        newer: newer.as_deref(),
        is_timed: matches!(early, Some(Ok(_))),
        is_kept: target.phase.is_alive() && target.refused_deletion.is_some(),
        is_protected: matches!(lifecycle::check_unprotected(env, &target).await, Err(RequestError::Rejected(_))),
    };
    let (open, open_units) = last.as_ref().map(open_units::groups).unwrap_or_default();
    let waiting_units = last.iter().flat_map(|run| &run.units).filter(|unit| !unit.waits.is_empty());
    let unit_waits = waiting_units.map(|unit| (unit.key.clone(), unit.waits.clone())).collect();
    removals.truncate(targets::MAX_REMOVALS);
    let mut diagnosis = TargetDiagnosis {
        target: target.target_key().to_string(),
        phase: target.phase,
        summary,
        cause,
        failed: failures,
        remaining: exists,
        removals,
        notes,
        next_steps: Vec::new(),
        waits: unit_waits,
        target_waits: waits::rows(&target),
        open,
        open_units,
        decided_by: sources::deciding_event(&env.store, &target).await?,
    };
    diagnosis.next_steps = situation.next_steps(&diagnosis);
    Ok(diagnosis)
}

/// Returns notes about a repair of the teardown, a refused update and dropped events.
fn changes_of_plan(target: &TargetHead, plan: &Plan) -> Vec<String> {
    let repaired = plan.resources.iter().filter_map(|(name, it)| Some((name, it.repaired_by.as_ref()?)));
    let repaired =
        repaired.map(|(name, version)| format!("the teardown of {name} runs {version}, which an operator has chosen"));
    let refused = target.refused_update.as_ref().map(|RefusedUpdate { generation, reason }| {
        format!("the update to generation {generation} was refused when it should have begun: {reason}")
    });
    let dropped = target.events.dropped.iter().map(|DatedEvent { event, at }| {
        let at = rfc3339(*at);
        format!("the event {event} was dropped at {at}: the document has no units for it any more")
    });
    repaired.chain(refused).chain(dropped).collect()
}

/// Returns the plugin of a failed unit, and its newest published version, if the target has an older one. A stuck one can be
/// repaired with it.
async fn newer_version(
    env: &Env,
    target: &TargetHead,
    failures: &[FailedUnit],
    plan: &Plan,
) -> FlowResult<(Option<String>, Option<String>)> {
    let unit = failures.first().filter(|failed| match target.phase {
        TargetPhase::Stuck => true,
        // The version of an undo of a former resource does not change.
        TargetPhase::Failed => !failed.unit.contains('~'),
        _ => false,
    });
    let resource = unit.and_then(|failed| plan.resource(failed.unit.split_once('/')?.0));
    let used = resource.map(|resource| resource.repaired_by.as_ref().unwrap_or(&resource.plugin));
    let Some((plugin, used)) = used.and_then(|used| used.rsplit_once('@')) else { return Ok((None, None)) };
    let name = Some(plugin.to_owned());
    let versions = env.store.list_versions(plugin).await?;
    let published = versions.iter().filter(|item| item.withdrawn.is_none());
    let newest = published.filter_map(|item| item.version.parse::<semver::Version>().ok()).max();
    let fits = |newest: &semver::Version, used: semver::Version| {
        *newest > used && (target.phase == TargetPhase::Stuck || newest.major == used.major)
    };
    let newer = newest.filter(|newest| used.parse().is_ok_and(|used| fits(newest, used)));
    let Some(newer) = newer.map(|newer| format!("{plugin}@{newer}")) else { return Ok((name, None)) };
    if target.phase == TargetPhase::Failed {
        return Ok((name, Some(newer)));
    }
    let instance = (target.target_key(), Some(target.uid.as_str()));
    let repair =
        Box::pin(repair::repair(env, instance, (RepairSource::Plugin(&newer), None), RepairMode::Preview)).await;
    Ok((name, repair.is_ok().then_some(newer)))
}

/// Returns the diagnosis of a target whose plan is lost.
fn damaged(target: &TargetHead, what: &str, fix: &str) -> TargetDiagnosis {
    TargetDiagnosis {
        target: format!("{}/{}", target.kind, target.name),
        phase: target.phase,
        summary: format!("{what}; the resources of the target are unknown until it is restored"),
        next_steps: vec![fix.to_owned()],
        target_waits: waits::rows(target),
        ..TargetDiagnosis::default()
    }
}

/// Returns the sentence of the summary about an undelivered notification, or about an instance that waits for the name.
fn undelivered(target: &TargetHead) -> Option<String> {
    let delivery = waits::delivery(target);
    if delivery.is_none() && target.waiting.is_none() {
        return None;
    }
    let next = delivery.and_then(|delivery| delivery.next);
    let next = next.map(|next| format!("; next delivery at {next}")).unwrap_or_default();
    words::waits_for(&waits::rows(target)).map(|waits| format!("waits for {waits}{next}"))
}

/// Returns true if `run` explains the present phase of the target.
fn concerns(target: &TargetHead, run: &RunId) -> bool {
    match (target.phase, target.hook) {
        (TargetPhase::Failed | TargetPhase::Updating, _) => target.is_last_run(run),
        (TargetPhase::Starting, _) => run.hook() == Hook::PreStart,
        (TargetPhase::Ready, _) => run.hook() != Hook::PreStart && target.is_last_run(run),
        // The run is being cancelled. The teardown begins after the cancellation.
        (TargetPhase::Stopping, Some(last)) if !last.is_teardown() => target.is_last_run(run),
        (TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone, _) => run.hook().is_teardown(),
    }
}

/// Returns true if the run tolerates the failure of a unit. A ready target can have such failures in each run.
fn tolerates_any(run: &Run) -> bool {
    run.graph().units().any(|unit| run.graph().tolerates(unit))
}

fn failed_unit(run: &Run, found: &FirstCause) -> Option<FailedUnit> {
    let unit = run.unit(found.unit)?;
    Some(FailedUnit {
        unit: unit.key.clone(),
        attempt: found.attempt.0,
        attempt_in_series: attempts_used(found.attempt, unit.retry.attempts),
        reason: found.reason.clone(),
    })
}

/// Returns a note about a unit that reported too many distinct results.
fn excess(unit: &UnitDetail) -> Option<String> {
    let UnitDetail { key, excess_results: Some(excess), .. } = unit else { return None };
    Some(format!(
        "{key} reported more than {} distinct results of one attempt; {excess} further callbacks were rejected, and \
         their resources are not undone: check the receiver",
        limits::DISTINCT_RESULTS
    ))
}

/// Returns a note about a unit with rejected callbacks. The unit still waits for a valid one.
fn refused(unit: &UnitDetail) -> Option<String> {
    let UnitDetail { key, refused_callbacks: Some(refused), .. } = unit else { return None };
    let reason = &refused.reason;
    Some(match refused.count {
        1 => format!("{key}: 1 callback was rejected: {reason}"),
        count => format!("{key}: {count} callbacks were rejected, the last one: {reason}"),
    })
}

async fn explain(env: &Env, run: &Run, found: FirstCause) -> FlowResult<RootCause> {
    let missing = || FlowError::Broken(format!("run {} has no unit {}", run.id, found.unit.0));
    let unit = run.unit(found.unit).ok_or_else(missing)?;
    let cache = InvocationCache::default();
    let mut known = inputs::read_inputs(env, run, unit, &cache).await?;
    if !unit.undoes.is_empty() {
        let attempt = AttemptRef { unit: found.unit, number: found.attempt, epoch: run.read_head(env).await?.epoch };
        let of_undo = unit_inputs(AttemptContext { env, run, attempt, unit, cache: &cache }).await?;
        known = of_undo.map_or(known, |(known, _)| known);
    }
    let at = UnitRef { hook: run.hook(), unit: found.unit.0 };
    let facts = run.target_facts();
    let mut texts = BTreeMap::new();
    let plan = &run.loaded.plan;
    let context = UnitContext { plan, at, facts: &facts, known: &known };
    if let Ok(RenderedUnit::Pod { inputs }) = render::preview(context) {
        for input in inputs {
            let value = input.value.shown().unwrap_or_else(|| "<unset>".to_owned());
            texts.insert(input.name, limits::excerpt(&value, INPUT_LENGTH));
        }
    }
    let log = match logs::log(env, &run.id, &unit.key, Some(found.attempt.0)).await {
        Ok(UnitLog { found: Ok(tail), .. }) => tail.log,
        Err(RequestError::Failed(error)) => return Err(error),
        Ok(_) | Err(RequestError::Rejected(_)) => String::new(),
    };
    Ok(RootCause {
        run: run.id.to_string(),
        unit: unit.key.clone(),
        attempt: found.attempt.0,
        attempt_in_series: attempts_used(found.attempt, unit.retry.attempts),
        reason: found.reason,
        file: unit.source.file.clone(),
        line: unit.source.line,
        column: unit.source.column,
        inputs: texts,
        log: last_lines(&log),
        evidence: found.evidence.map(|evidence| *evidence),
    })
}

/// Returns the last lines of a log. Long ones are shortened.
fn last_lines(log: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| limits::excerpt(line, LINE)).collect()
}

fn summary(
    target: &TargetHead,
    waiting: Option<String>,
    (hook, failures): (&str, &[FailedUnit]),
    (exists, overrides, removals): (&[RemainingEffect], &[Override], &[ResourceRemoval]),
    outage: Option<&RelayOutage>,
) -> String {
    let since = rfc3339(target.phase_since());
    let failed = |first: &FailedUnit| {
        let others = match failures.len() - 1 {
            0 => String::new(),
            1 => format!("; {} also failed", failures[1].unit),
            others => format!("; {others} other units also failed"),
        };
        let retry = if first.attempt == first.attempt_in_series { "" } else { " after a retry" };
        let number = first.attempt_in_series;
        format!("unit {} failed at attempt {number}{retry}: {}{others}", first.unit, first.reason.message)
    };
    match target.phase {
        // A failed event and a tolerated failure do not change the phase.
        TargetPhase::Ready => match failures.first() {
            Some(first) => format!("ready since {since}; {hook}: {}", failed(first)),
            None => match may_remain(&[], removals) {
                (0, _) => format!("ready since {since}"),
                (_, remaining) => format!("ready since {since}; of what an update has replaced, {remaining}"),
            },
        },
        TargetPhase::Gone => format!("gone since {since}: {}", end(target, exists, overrides, removals)),
        TargetPhase::Failed | TargetPhase::Stuck => failures
            .first()
            .map_or_else(|| format!("failed since {since}; no unit has failed, and {CONTINUED}"), failed),
        TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping => match (outage, waiting) {
            (Some(outage), _) => format!("cluster {} {}", outage.cluster, words::silence(outage)),
            (None, Some(waiting)) => waiting,
            (None, None) => {
                let hook = target.hook.as_ref().map_or("starting", Hook::name);
                format!("{hook} since {since}; no unit runs, and {CONTINUED}")
            }
        },
    }
}

/// Returns the number of resources that may remain, with their units.
fn may_remain(exists: &[RemainingEffect], removals: &[ResourceRemoval]) -> (usize, String) {
    let unconfirmed = removals.iter().filter(|removal| removal.evidence.grade == RemovalGrade::Unconfirmed);
    let unconfirmed = unconfirmed.map(|removal| removal.unit.as_str());
    let units: BTreeSet<&str> = exists.iter().map(|existing| existing.unit.as_str()).chain(unconfirmed).collect();
    let shown: Vec<&str> = units.into_iter().collect();
    let named = if shown.is_empty() { String::new() } else { format!(": {}", words::named(&shown, shown.len())) };
    (shown.len(), remaining(shown.len(), &named))
}

fn remaining(count: usize, named: &str) -> String {
    match count {
        0 => "nothing remains".to_owned(),
        1 => format!("1 resource may remain{named}"),
        count => format!("{count} resources may remain{named}"),
    }
}

/// Returns the end of a gone instance.
fn end(
    target: &TargetHead,
    exists: &[RemainingEffect],
    overrides: &[Override],
    removals: &[ResourceRemoval],
) -> String {
    // Retention removes the plan of an instance, too, but the instance keeps its hook.
    if target.plan.is_empty() && target.hook.is_none() {
        return "it was deleted before it was created".to_owned();
    }
    // Without the data of an instance, only its number is known.
    let remaining = match target.plan.is_empty() {
        true => remaining(target.unconfirmed as usize, ""),
        false => may_remain(exists, removals).1,
    };
    let Some(first) = overrides.first() else { return remaining };
    let units: Vec<&str> = overrides.iter().map(|one| one.unit.as_str()).collect();
    format!("{remaining}; {}: {}", units.join(", "), first.reason)
}

fn is_waiting(unit: &UnitDetail) -> bool {
    matches!(unit.state, UnitState::Running | UnitState::Retrying)
}

/// Describes the unit with the first wait, or else the first unit that a run waits for, with start and deadline. It
/// counts the others.
fn waiting(plan: &Plan, run: &RunDetail) -> Option<String> {
    if run.state == RunState::Cancelling {
        return cancelled(run);
    }
    let wait = live::first_wait(&run.units);
    let unit = wait.map(|(unit, _)| unit).or_else(|| run.units.iter().find(|unit| is_waiting(unit)))?;
    let activity = match unit.state {
        UnitState::Retrying => {
            let why = unit.reason.as_ref().map(|reason| reason.message.as_str()).unwrap_or("it failed");
            format!("is retried at {} ({why})", unit.next.as_deref().unwrap_or("an unknown time"))
        }
        _ => match (&unit.started, &unit.deadline, &unit.next) {
            (Some(started), Some(deadline), _) => format!("started at {started} and runs at most until {deadline}"),
            // A webhook without a start was postponed: a receiver of its setup unit gave no response.
            (_, _, Some(next)) if unit.kind == "webhook" && unit.progress.is_none() => {
                format!("sends its next request at {next}, because the receiver may act on an earlier one until then")
            }
            (_, _, Some(next)) if unit.kind == "pod" => format!("is dispatched again at {next}"),
            (_, _, Some(next)) => format!("sends its next request at {next}"),
            _ => "runs".to_owned(),
        },
    };
    let progress = unit.progress.as_ref().map(|progress| format!(" ({})", progress.replace('\n', " ")));
    let progress = progress.unwrap_or_default();
    let count = run.units.iter().filter(|unit| is_waiting(unit)).count();
    let others = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
    let pending = wait.map(|(_, UnitWait { object, message, since, fails_at, .. })| {
        let since = since.as_ref().map(|at| format!(" since {at}")).unwrap_or_default();
        let fails = fails_at.as_ref().map(|at| format!("; fails at {at} unless the cause is removed before"));
        format!("; waiting: {object}: {}{since}{}", message.replace('\n', " "), fails.unwrap_or_default())
    });
    let pending = pending.unwrap_or_default();
    let accepted = unit.accepted.as_ref().filter(|_| unit.state == UnitState::Running);
    let accepted =
        accepted.map(|at| format!("; its request was accepted (202) at {at}, and it waits for the callback"));
    let accepted = accepted.unwrap_or_default();
    let stuck = stuck_at(plan, run, unit).map(|at| format!(", stuck at {at} unless an attempt succeeds before"));
    let attempts = format!("attempt {} of {}{}", unit.attempt_in_series, unit.max_attempts, stuck.unwrap_or_default());
    Some(format!("{}: unit {} {activity}{progress}, {attempts}{others}{accepted}{pending}", run.hook, unit.key))
}

/// Returns the time at which a teardown is stuck if no attempt of a unit succeeds. The waits between attempts count with
/// their longest durations.
fn stuck_at(plan: &Plan, run: &RunDetail, unit: &UnitDetail) -> Option<String> {
    let hook = plan.hooks.iter().find(|planned| planned.hook.is_teardown() && planned.hook.name() == run.hook)?;
    let planned = hook.units.iter().find(|planned| planned.key == unit.key)?;
    let end = match unit.state {
        UnitState::Retrying => parse_rfc3339(unit.next.as_deref()?)?.plus(Millis(planned.timeout_ms)),
        _ => parse_rfc3339(unit.deadline.as_deref()?)?,
    };
    let backoff = planned.retry.backoff();
    let further = (unit.attempt_in_series..unit.max_attempts)
        .map(|failures| backoff.bound(failures).0.saturating_add(planned.timeout_ms));
    Some(rfc3339(end.plus(Millis(further.sum()))))
}

/// Returns the reason why a cancelled run waits: units that may still act, with the latest deadline.
fn cancelled(run: &RunDetail) -> Option<String> {
    let open = run.units.iter().filter(|unit| unit.state == UnitState::Cancelled && unit.ended.is_none());
    let open: Vec<&UnitDetail> = open.collect();
    let keys: Vec<&str> = open.iter().map(|unit| unit.key.as_str()).collect();
    let actor = if open.first()?.kind == "webhook" { "its receiver" } else { "it" };
    let until = open.iter().filter_map(|unit| unit.deadline.as_deref()).max();
    let until = until.map(|deadline| format!("; at most until {deadline}")).unwrap_or_default();
    Some(format!("waits for {}: cancelled, but {actor} may still be active{until}", keys.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnosis_has_the_end_of_a_log_in_short_lines() {
        let log: String = (0..30).map(|number| format!("{number}\n")).collect();
        let expected: Vec<String> = (10..30).map(|number| number.to_string()).collect();
        assert_eq!(last_lines(&log), expected);
        let long = format!("a\n{}\n", "é".repeat(100_000));
        assert_eq!(last_lines(&long), ["a".to_owned(), format!("{}…", "é".repeat(LINE))]);
    }
}
