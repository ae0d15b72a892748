//! Grades the evidence that undone resources do not exist any more.
//!
//! A record has evidence only if that of its undo differs from the usual one of its action. Most undos therefore cost no
//! record.

use std::collections::BTreeMap;

use ebb_documents::plan::{Action, Plan, RequiredEvidence, UnitPlan, UnitRef};
use ebb_egress::HttpResponse;
use ebb_engine::{Attempt, HeadState, Hook, TargetPhase, Unit, UnitProgress};
use ebb_protocol::callback::{FailureReason, ReasonCode};
use ebb_protocol::removal::{ObjectRemoval, RemovalEvidence, RemovalGrade, ResourceRemoval};
use ebb_protocol::{AttemptOutcome, AttemptRecord, AttemptResult, OutputStorage, limits, words};
use ebb_store::{TargetHead, UnitRecord};

use crate::run::removal::possible_resources;
use crate::run::removal::visibility::{self, VisibilityCheck};
use crate::run::{AttemptContext, AttemptEnd, AttemptFailure};
use crate::{CompiledPlan, CredentialDigest, Env, FlowResult, Run, SentRequest, UndoPasses, group, task_unit};

struct RecordedRun {
    head: HeadState,
    /// The records of each unit, in the order of attempts.
    records: BTreeMap<Unit, Vec<UnitRecord>>,
}

impl RecordedRun {
    fn new(head: HeadState, list: Vec<UnitRecord>) -> Self {
        Self { head, records: group(list.into_iter().map(|record| (record.0, record))) }
    }

    fn records(&self, unit: Unit) -> &[UnitRecord] {
        self.records.get(&unit).map(Vec::as_slice).unwrap_or_default()
    }

    fn is_done(&self, unit: Unit) -> bool {
        self.head.status(unit) == UnitProgress::Done
    }

    fn override_reason(&self, unit: Unit) -> Option<&FailureReason> {
        let records = self.records(unit).iter().map(|(.., record)| record);
        possible_resources::override_reason(records).filter(|_| self.is_done(unit))
    }
}

/// Returns true for a webhook whose requests make another thing each.
fn is_sent_once(unit: &UnitPlan) -> bool {
    matches!(&unit.action, Action::Webhook(webhook) if webhook.non_idempotent)
}

/// Returns true if an attempt of such a webhook has ended without a known outcome.
fn is_unknown(record: &AttemptRecord) -> bool {
    let is_open = |result: &AttemptResult| match result.outcome {
        AttemptOutcome::Failed => result.unanswered,
        AttemptOutcome::Cancelled => true,
        AttemptOutcome::Succeeded | AttemptOutcome::Skipped => false,
    };
    record.posted.is_some()
        && record.wait.is_none()
        && record.further_results.is_empty()
        && record.result.as_ref().is_some_and(is_open)
}

/// Returns true if an attempt of such a webhook has no known outcome. `records` are those of all its attempts in their order. With
/// `describe`, a further attempt succeeds or sends a request only after the outcome of those before it is known.
fn has_unknown<'r>(unit: &UnitPlan, records: impl DoubleEndedIterator<Item = &'r AttemptRecord>) -> bool {
    let describes = matches!(&unit.action, Action::Webhook(webhook) if webhook.describe.is_some());
    let decides = |record: &AttemptRecord| {
        let is_success = record.outcome() == Some(AttemptOutcome::Succeeded);
        describes && (is_success || record.wait.is_some() || record.posted.is_some())
    };
    let records: Vec<&AttemptRecord> = records.collect();
    // Without outputs, an undo asks `describe` about the request.
    let has_outputs = |record: &AttemptRecord| {
        record.wait.is_some()
            || record.reported != OutputStorage::Nothing
            || record.results().any(|result| result.has_outputs)
    };
    let sent = records.iter().filter(|record| record.posted.is_some()).count();
    if describes && sent == 1 && !records.iter().any(|record| has_outputs(record)) {
        return false;
    }
    let last = records.iter().rev().find(|record| is_unknown(record) || decides(record));
    is_sent_once(unit) && last.is_some_and(|record| is_unknown(record))
}

/// Returns true if an undo addresses the resource of a unit by a name that all attempts of the unit share. An output is that
/// of one attempt.
fn covers_unknown(undo: &UnitPlan, undone: UnitRef) -> bool {
    !undo.reads.iter().any(|read| read.at == undone)
}

/// Returns evidence that shows nothing, with the reason.
fn unconfirmed(why: Option<String>) -> RemovalEvidence {
    RemovalEvidence { answered: why, ..RemovalGrade::Unconfirmed.into() }
}

/// Returns the evidence of an undo that has removed what it knows.
fn of_unknown() -> RemovalEvidence {
    let why = "a request of the setup has no known outcome, and may have made another thing";
    unconfirmed(Some(why.to_owned()))
}

type RecordedRuns = BTreeMap<Hook, RecordedRun>;

/// Returns the removal of each setup unit that may have made something, the lowest grades first. Of a target that is not
/// gone, only those whose undos are done. Before the teardown, these are the undos of updates.
pub async fn removals(env: &Env, target: &TargetHead, loaded: &CompiledPlan) -> FlowResult<Vec<ResourceRemoval>> {
    let mut runs = RecordedRuns::new();
    for (id, head) in possible_resources::runs(env, target, loaded).await? {
        runs.insert(id.hook(), RecordedRun::new(head, env.store.read_outlines(&id).await?));
    }
    let is_done = |undo: &UnitRef| runs.get(&undo.hook).is_some_and(|run| run.is_done(Unit(undo.unit)));
    let mut removals = Vec::new();
    let is_ending = matches!(target.phase, TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone);
    for (at, undos) in undos(&loaded.plan, is_ending) {
        let hook = at.hook;
        let (Some(run), Some((_, graph)), Some(unit)) = (runs.get(&hook), loaded.hook_plan(hook), loaded.plan.unit(at))
        else {
            continue;
        };
        let attempts = run.records(Unit(at.unit)).iter().map(|(.., record)| record);
        let is_made = possible_resources::may_have_made((graph, &run.head), Unit(at.unit), attempts.clone());
        let counts = |undo: &UnitPlan| undo.verifies || possible_resources::removes(&loaded.plan, undo, at);
        let has_ended = |undo: &UnitRef| is_done(undo) || !loaded.plan.unit(*undo).is_some_and(counts);
        if is_made && (target.phase == TargetPhase::Gone || undos.iter().all(has_ended)) {
            let (undo, evidence) = removal(&loaded.plan, &runs, &undos);
            let undo = undo.and_then(|undo| loaded.plan.unit(undo));
            let is_covered = undo.is_none_or(|undo| covers_unknown(undo, at));
            let evidence = if is_covered || !has_unknown(unit, attempts) { evidence } else { of_unknown() };
            let by = undo.map(|undo| undo.key.clone());
            removals.push(ResourceRemoval { unit: unit.key.clone(), by, evidence });
        }
    }
    removals.sort_by(|a, b| (a.evidence.grade, &a.unit).cmp(&(b.evidence.grade, &b.unit)));
    Ok(removals)
}

/// Returns the number of setup units whose removal is unconfirmed in a target that becomes gone. Reads no record if the plan
/// permits no such removal, and only those of undos if none has one.
pub(crate) async fn count_unconfirmed(env: &Env, target: &TargetHead, loaded: &CompiledPlan) -> FlowResult<u32> {
    if !may_be_unconfirmed(env, target, loaded).await? {
        return Ok(0);
    }
    let removals = removals(env, &TargetHead { phase: TargetPhase::Gone, ..target.clone() }, loaded).await?;
    let count = removals.iter().filter(|removal| removal.evidence.grade == RemovalGrade::Unconfirmed).count();
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

async fn may_be_unconfirmed(env: &Env, target: &TargetHead, loaded: &CompiledPlan) -> FlowResult<bool> {
    for hook in loaded.lifecycle_hooks() {
        let Some((hook_plan, _)) = loaded.hook_plan(hook) else { continue };
        if hook_plan.units.iter().any(|unit| unit.is_setup(hook) && is_sent_once(unit)) {
            let sent_once = |unit: Unit| hook_plan.units.get(unit.0 as usize).is_some_and(is_sent_once);
            let records = env.store.read_outlines(&target.run(hook)).await?;
            if records.iter().any(|(unit, _, record)| sent_once(*unit) && is_unknown(record)) {
                return Ok(true);
            }
        }
        let is_undo = |unit: &&UnitPlan| !unit.undoes.is_empty();
        let undos: Vec<&UnitPlan> = hook_plan.units.iter().filter(is_undo).collect();
        if undos.is_empty() {
            continue;
        }
        let run = target.run(hook);
        // A target that was never ready skips preStop, so its undos have removed nothing.
        if hook == Hook::PreStop && env.store.read_run(&run).await?.is_none() {
            return Ok(true);
        }
        if undos.iter().any(|undo| usual_evidence(undo).is_none()) {
            return Ok(true);
        }
        if !target.is_overridden && !undos.iter().any(|undo| can_be_unconfirmed(&loaded.plan, undo)) {
            continue;
        }
        let is_weak = |unit: Unit, record: &AttemptRecord| {
            let undo = hook_plan.units.get(unit.0 as usize).filter(is_undo);
            undo.is_some_and(|undo| has_weak_result(undo, record))
        };
        if env.store.read_outlines(&run).await?.iter().any(|(unit, _, record)| is_weak(*unit, record)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if a record of this undo can have evidence below `reported`, or if its condition can skip it.
fn can_be_unconfirmed(plan: &Plan, unit: &UnitPlan) -> bool {
    let describes = |at: &UnitRef| {
        plan.unit(*at).and_then(|undone| undone.action.webhook()).is_some_and(|webhook| webhook.describe.is_some())
    };
    let by_action = match &unit.action {
        Action::Webhook(webhook) => {
            webhook.method == visibility::DELETE
                || webhook.connection.is_some()
                || webhook.until.is_some()
                || webhook.failed.is_some()
                || webhook.repeat.is_some()
                || unit.verifies
        }
        Action::Destroy | Action::Removal => true,
        Action::Pod(_) | Action::Object(_) | Action::Infrakit(_) => false,
    };
    by_action || unit.when.is_some() || unit.undoes.iter().any(describes)
}

fn has_weak_result(unit: &UnitPlan, record: &AttemptRecord) -> bool {
    record.results().any(|result| {
        let grade = result.removal.as_ref().map(|removal| removal.grade);
        let is_overridden = result.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::Overridden);
        let is_skipped = result.outcome == AttemptOutcome::Skipped && unit.when.is_some();
        grade == Some(RemovalGrade::Unconfirmed) || is_overridden || is_skipped
    })
}

/// Returns the evidence of an undo that has succeeded and whose record has none. One that shows no removal gives none.
fn usual_evidence(unit: &UnitPlan) -> Option<RemovalEvidence> {
    match &unit.action {
        _ if unit.verifies => Some(RemovalGrade::Confirmed.into()),
        // The relay has observed that the objects of its records are gone, see `of_objects`.
        Action::Removal => Some(RemovalGrade::Confirmed.into()),
        _ if unit.shows_no_removal() => None,
        Action::Pod(_) | Action::Webhook(_) | Action::Object(_) | Action::Infrakit(_) | Action::Destroy => {
            Some(RemovalGrade::Reported.into())
        }
    }
}

/// Returns the evidence of a removal of objects, if it is not the usual one. The relay confirms only what its records name: it
/// may run in a namespace that was made again, and a list by labels shows only the kinds and namespaces of its policy.
pub(crate) fn of_objects(run: &Run, unit: &UnitPlan, observed: Option<&ObjectRemoval>) -> Option<RemovalEvidence> {
    if unit.action != Action::Removal {
        return None;
    }
    let is_unknown = |at: &&UnitRef| observed.is_none_or(|it| !it.objects.contains_key(&task_unit(run, **at)));
    let unknown = unit.undoes.iter().filter(is_unknown).filter_map(|&at| run.loaded.plan.unit(at));
    let unknown: Vec<&str> = unknown.map(|unit| unit.key.as_str()).collect();
    if unknown.is_empty() {
        return None;
    }
    let unlisted = observed.map(|it| it.unlisted.join("; ")).filter(|it| !it.is_empty());
    let unlisted = unlisted.map(|places| format!("; it cannot list {places}")).unwrap_or_default();
    let why = format!("the relay has no record of the objects of {}{unlisted}", unknown.join(", "));
    Some(unconfirmed(Some(limits::message(&why))))
}

/// Returns the undos of the teardown by the setup units that they undo. It has each undo that an update has.
fn undos(plan: &Plan, is_ending: bool) -> BTreeMap<UnitRef, Vec<UnitRef>> {
    let undos = plan.hooks.iter().filter(|hook| hook.hook.is_teardown() == is_ending).flat_map(|hook| hook.places());
    group(undos.flat_map(|(at, unit)| unit.undoes.iter().map(move |&undone| (undone, at))))
}

/// Returns the evidence for a unit with the undo that gives it: that of its verification, or the lowest one of the
/// undos that have acted. A verification decides for the undos before it. The override of another one stays.
fn removal(plan: &Plan, runs: &RecordedRuns, undos: &[UnitRef]) -> (Option<UnitRef>, RemovalEvidence) {
    let is_verification = |at: &UnitRef| plan.unit(*at).is_some_and(|unit| unit.verifies);
    let (mut decisive, undos): (Vec<UnitRef>, Vec<UnitRef>) = undos.iter().partition(|at| is_verification(at));
    let is_after = |at: UnitRef, undo: UnitRef| {
        at.hook == undo.hook && plan.unit(at).is_some_and(|unit| unit.dependencies.contains(&undo.unit))
    };
    let is_open = |undo: &UnitRef| {
        let removes = plan.unit(*undo).is_some_and(|unit| !unit.shows_no_removal());
        let is_overridden = runs.get(&undo.hook).is_some_and(|run| run.override_reason(Unit(undo.unit)).is_some());
        removes && is_overridden && !decisive.iter().any(|&at| is_after(at, *undo))
    };
    let open: Vec<UnitRef> = undos.iter().copied().filter(is_open).collect();
    decisive.extend(open);
    let lowest = |of: &[UnitRef]| {
        of.iter().filter_map(|&at| Some((at, evidence(plan, runs, at)?))).min_by_key(|(_, evidence)| evidence.grade)
    };
    let skipped = || undos.iter().find_map(|&at| Some((at, skipped_evidence(runs, at)?)));
    match lowest(&decisive).or_else(|| lowest(&undos)).or_else(skipped) {
        Some((at, evidence)) => (Some(at), evidence),
        None => {
            let shows_none = |at: &&UnitRef| plan.unit(**at).is_some_and(|undo| undo.shows_no_removal());
            let why =
                undos.iter().find(shows_none).map(|_| "an undo that only asks, or removes parts, shows no removal");
            (None, unconfirmed(why.map(str::to_owned)))
        }
    }
}

/// Returns the evidence of an undo over the results of its last pass, the lowest of them. Returns `None` if the undo is not
/// done, was skipped, or only asks.
fn evidence(plan: &Plan, runs: &RecordedRuns, at: UnitRef) -> Option<RemovalEvidence> {
    let (undo, run, unit) = (plan.unit(at)?, runs.get(&at.hook)?, Unit(at.unit));
    if !run.is_done(unit) {
        return None;
    }
    let records = run.records(unit);
    if let Some(reason) = run.override_reason(unit) {
        return Some(unconfirmed(Some(reason.message.clone())));
    }
    let last = run.head.attempt(unit);
    let mut found: Vec<(Attempt, RemovalEvidence)> = Vec::new();
    for (_, attempt, record) in records {
        let successes = record.results().filter(|result| result.outcome == AttemptOutcome::Succeeded);
        let removed =
            successes.filter_map(|result| result.removal.as_deref().cloned().or_else(|| usual_evidence(undo)));
        found.extend(removed.map(|evidence| (*attempt, evidence)));
    }
    // A success without anything to keep has no record.
    if !records.iter().any(|(_, attempt, record)| *attempt == last && record.result.is_some()) {
        found.extend(usual_evidence(undo).map(|evidence| (last, evidence)));
    }
    let passes = UndoPasses::new(undo, records);
    let is_of_pass = |(attempt, _): &(Attempt, RemovalEvidence)| passes.is_same_pass(*attempt, last);
    // The last pass over the results counts, unless it had nothing to do.
    if found.iter().any(is_of_pass) {
        found.retain(is_of_pass);
    }
    let lowest = found.into_iter().map(|(_, evidence)| evidence).min_by_key(|evidence| evidence.grade);
    // It was skipped if an update has done the same.
    lowest.or_else(|| undo.unless.iter().find_map(|&same| evidence(plan, runs, same)))
}

/// Returns the evidence of an undo that was skipped, with the reason, if it was.
fn skipped_evidence(runs: &RecordedRuns, at: UnitRef) -> Option<RemovalEvidence> {
    let (.., last) = runs.get(&at.hook)?.records(Unit(at.unit)).last()?;
    let skipped = last.result.as_ref().filter(|result| result.outcome == AttemptOutcome::Skipped)?;
    Some(unconfirmed(skipped.reason.as_ref().map(|reason| reason.message.clone())))
}

/// Returns the evidence of an undo, or of a verification, whose request was answered without the resource, if it is not the
/// usual one. The status is 2xx, or that of *not found*. `by` is the credential of the request. `is_rejected` is true if the
/// server has rejected each request of the undone units.
///
/// Providers also answer *not found* for what a credential must not see. Only an answer of another kind, to the same
/// credential, shows that it sees the resource.
pub(crate) async fn of_answer(
    context: AttemptContext<'_>,
    (sent, response): (&SentRequest<'_>, &HttpResponse),
    by: &CredentialDigest,
    is_rejected: bool,
) -> FlowResult<Option<RemovalEvidence>> {
    let status = response.status;
    // A page can be that of a proxy, which knows no thing.
    let is_page = sent.is_page(response);
    let grade = if context.unit.verifies {
        verified_grade(context, by, (status, is_page)).await?
    } else if (200..300).contains(&status) {
        // A receiver of Ebb calls back after 202. Another server only has the request.
        if status != 202 || context.unit.undoes.is_empty() {
            return Ok(None);
        }
        RemovalGrade::Unconfirmed
    } else if is_rejected {
        return Ok(Some(of_rejection()));
    } else if !is_page && VisibilityCheck::new(context, by).await?.undo_has_seen().await? {
        return Ok(None);
    } else {
        RemovalGrade::Unconfirmed
    };
    Ok(Some(RemovalEvidence::new(grade, &sent.asked(), &status.to_string())))
}

/// Returns the evidence of an undo whose undone units have made nothing: their server has rejected each request. No removal
/// could give more.
pub(crate) fn of_rejection() -> RemovalEvidence {
    let answered = Some("the server rejected each request of the setup".to_owned());
    RemovalEvidence { answered, ..RemovalGrade::Confirmed.into() }
}

/// Returns the grade of a verification with this answer: `confirmed` if its credential has been shown the resource, or if a
/// list for it would have the resource. Otherwise that of the undos. For *not found*, the address can be wrong, too.
async fn verified_grade(
    context: AttemptContext<'_>,
    by: &CredentialDigest,
    (status, is_page): (u16, bool),
) -> FlowResult<RemovalGrade> {
    let is_success = (200..300).contains(&status);
    let check = VisibilityCheck::new(context, by).await?;
    let is_shown = !is_page && check.verification_has_seen().await?;
    if is_shown
        || (is_success && by.is_signed() && check.is_listed().await?)
        || (is_success && check.list_is_complete().await?)
    {
        return Ok(RemovalGrade::Confirmed);
    }
    let AttemptContext { run, unit, .. } = context;
    let acted = evidence_of_undos(context).await?;
    // The success of a signed request can lack a record.
    let is_shown = |at: UnitRef| {
        let undo = run.loaded.plan.unit(at);
        undo.is_some_and(|undo| matches!(undo.action, Action::Webhook(_)) && visibility::is_same_connection(undo, unit))
    };
    if by.is_signed() && acted.iter().any(|(at, evidence)| is_shown(*at) && visibility::is_answered(evidence)) {
        return Ok(RemovalGrade::Confirmed);
    }
    Ok(acted.iter().map(|(_, evidence)| evidence.grade).min().unwrap_or(RemovalGrade::Unconfirmed))
}

/// Returns the evidence of the undos in the run of a verification that have acted on what it verifies.
async fn evidence_of_undos(context: AttemptContext<'_>) -> FlowResult<Vec<(UnitRef, RemovalEvidence)>> {
    let AttemptContext { env, run, unit: verification, .. } = context;
    let undos = run.hook_plan().places();
    let undos = undos.filter(|(_, other)| !other.verifies && visibility::is_shared(verification, other));
    let undos: Vec<UnitRef> = undos.map(|(at, _)| at).collect();
    let plan = &run.loaded.plan;
    let of_updates = undos.iter().filter_map(|&at| plan.unit(at)).flat_map(|undo| &undo.unless);
    let mut runs = RecordedRuns::new();
    for (hook, units) in group(undos.iter().chain(of_updates).map(|at| (at.hook, Unit(at.unit)))) {
        let Some((run, head)) = Run::load_with_head(env, &run.id.sibling(hook)).await? else { continue };
        runs.insert(hook, RecordedRun::new(head, env.store.read_records(&run.id, &units).await?));
    }
    let mut acted = Vec::new();
    for at in undos {
        let (Some(unit), Some(known)) = (plan.unit(at), evidence(plan, &runs, at)) else { continue };
        let is_open = undoes_unknown(AttemptContext { unit, ..context }).await?;
        acted.push((at, if is_open { of_unknown() } else { known }));
    }
    Ok(acted)
}

/// Returns the failure that replaces the success of an undo with less evidence than its plugin requires.
pub(crate) async fn shortfall(context: AttemptContext<'_>, end: &AttemptEnd) -> FlowResult<Option<AttemptEnd>> {
    let AttemptEnd::Succeeded(success) = end else { return Ok(None) };
    if context.unit.evidence.is_none() {
        return Ok(None);
    }
    let evidence = match undoes_unknown(context).await? {
        true => Some(of_unknown()),
        false => success.removal.clone().or_else(|| usual_evidence(context.unit)),
    };
    let failure = Box::pin(failure_of(context, evidence, None)).await?;
    Ok(failure.map(|failure| failure.instead_of(success.duration_ms, success.log.clone())))
}

/// Returns true if an undone unit may have made something that this undo cannot address.
async fn undoes_unknown(AttemptContext { env, run, unit, .. }: AttemptContext<'_>) -> FlowResult<bool> {
    let plan = &run.loaded.plan;
    for at in unit.undoes.iter().filter(|at| !covers_unknown(unit, **at)) {
        let Some(undone) = plan.unit(*at).filter(|undone| is_sent_once(undone)) else { continue };
        let records = env.store.read_records(&run.id.sibling(at.hook), &[Unit(at.unit)]).await?;
        if has_unknown(undone, records.iter().map(|(.., record)| record)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the failure of an undo if its plugin requires more than this evidence. Without evidence, that of the other undos
/// counts; `skipped` is the reason of a skipped undo.
pub(crate) async fn failure_of(
    context: AttemptContext<'_>,
    evidence: Option<RemovalEvidence>,
    skipped: Option<&str>,
) -> FlowResult<Option<AttemptFailure>> {
    let AttemptContext { run, unit, .. } = context;
    let required = match unit.evidence {
        None => return Ok(None),
        Some(RequiredEvidence::Reported) => RemovalGrade::Reported,
        Some(RequiredEvidence::Confirmed) => RemovalGrade::Confirmed,
    };
    let units = &run.hook_plan().units;
    // A verification decides for the undos before it.
    if !unit.verifies && units.iter().any(|other| other.verifies && visibility::is_shared(unit, other)) {
        return Ok(None);
    }
    let evidence = match evidence {
        Some(evidence) => evidence,
        None if unit.verifies => {
            let of_undos = evidence_of_undos(context).await?.into_iter().map(|(_, evidence)| evidence);
            of_undos.min_by_key(|evidence| evidence.grade).unwrap_or(RemovalGrade::Unconfirmed.into())
        }
        None if has_other_undos(&run.loaded.plan, unit) => return Ok(None),
        None => unconfirmed(skipped.map(str::to_owned)),
    };
    if evidence.grade >= required {
        return Ok(None);
    }
    let answer = words::removal_answer(&evidence);
    let answer = if answer.is_empty() { answer } else { format!(" ({answer})") };
    let undone: Vec<&str> = unit.undoes.iter().filter_map(|&at| Some(run.loaded.plan.unit(at)?.key.as_str())).collect();
    let fix = match evidence.grade {
        RemovalGrade::Unconfirmed | RemovalGrade::Reported if unit.verifies => {
            "no answer has shown the resource to this credential: check that it may see the resource, and that the setup is 1 min or its `maxProcessingTime` old, then retry"
        }
        RemovalGrade::Unconfirmed => "check that the undo may see the resource, then retry",
        RemovalGrade::Reported | RemovalGrade::Confirmed => "add `verify` to the undo for targets to come",
    };
    let why = format!(
        "the removal of {} is {}{answer}, but the plugin requires `evidence: {}`; {fix}; or make sure that the resource is \
         gone, then force-complete the unit",
        undone.join(", "),
        words::name(&evidence.grade),
        words::name(&required)
    );
    Ok(Some(AttemptFailure::new(ReasonCode::Failed, &why)))
}

/// Returns true if each unit that `unit` undoes has another undo in the teardown.
fn has_other_undos(plan: &Plan, unit: &UnitPlan) -> bool {
    let undos = undos(plan, true);
    unit.undoes.iter().all(|at| {
        let mut others = undos.get(at).into_iter().flatten().filter_map(|&undo| plan.unit(undo));
        others.any(|other| !other.verifies && other.key != unit.key && !other.shows_no_removal())
    })
}

#[cfg(test)]
mod tests;
