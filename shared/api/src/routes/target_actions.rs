//! Handles actions on several targets: `POST /v1/targets/actions`.
//!
//! 1. A selection names targets, or filters the list of the targets that the caller may read.
//! 2. Each target is changed as by the route for one target, with the same checks. Its problem becomes its outcome.
//! 3. A request handles as many targets as fit into its time and its answer. The answer has the selection of the others.

use std::collections::BTreeSet;

use axum::Json;
use axum::body::Body;
use ebb_flow::advance::early_start;
use ebb_flow::lifecycle::other_instance;
use ebb_flow::operator::repair::{RepairMode, RepairSource};
use ebb_flow::operator::target_request;
use ebb_protocol::{
    ActOnTargets, ErrorCode, FieldError, Millis, NamedTarget, TargetAction, TargetInfo, TargetKey, TargetOutcome,
    TargetOutcomes, TargetPhase, TargetSelection, TargetSelector, lifecycle, limits,
};
use ebb_store::TargetHead;
use futures::future::join_all;

use super::target_list::{self, ListQuery};
use super::{NoQuery, Query, plugin_upgrades, target_requests, targets};
use crate::{
    ApiPermission, HttpProblem, HttpResult, Permitted, ReadTargets, RemainingWork, RestOfRequest, WriteTargets, queries,
};

/// Targets that are changed at the same time.
const CONCURRENT: usize = 25;
/// Maximum changes by others during the upgrade of a target after which it is tried again.
const MAX_CONFLICTS: u32 = 3;
/// The time after which no further target begins. A function ends after 29 s.
const LATEST: Millis = Millis(15_000);
/// The size of the outcomes after which no further target begins, measured as that of a response.
const MAX_SIZE: usize = 1 << 20;
/// Maximum bytes of a request. The names of 100 targets have less.
const MAX_BODY: usize = 256 << 10;

/// Takes an action on several targets: on each as the route for one target, with its own outcome. A repetition deletes and
/// updates nothing more. Scope: `targets:write`, and `read` for a filter. A plugin without a whole version needs `read` or
/// `plugins:write`.
#[utoipa::path(post, path = "/v1/targets/actions", operation_id = "actOnTargets", tag = "targets", request_body = ActOnTargets, responses(
    (status = 200, body = TargetOutcomes, description = "The outcome for each target, also if all were refused."),
))]
pub(crate) async fn act(
    server: Permitted<WriteTargets>,
    _: NoQuery,
    body: Body,
) -> HttpResult<(RestOfRequest, Json<TargetOutcomes>)> {
    acted(server, super::read_json_within(body, MAX_BODY).await?).await
}

pub(crate) async fn acted(
    server: Permitted<WriteTargets>,
    ActOnTargets { select, mut action, dry_run }: ActOnTargets,
) -> HttpResult<(RestOfRequest, Json<TargetOutcomes>)> {
    let begun = server.env.steady();
    if let TargetAction::Upgrade { plugin, .. } = &mut action {
        *plugin = plugin_upgrades::published(&server, plugin).await?;
    }
    let (found, mut answer) = selected(&server, &select, &action).await?;
    if let TargetAction::Upgrade { plugin, .. } = &action {
        answer.plugin = Some(plugin.clone());
    }
    let (mut left, mut rests, mut size) = (found.into_iter(), Vec::new(), 0);
    while left.len() > 0 {
        let begin = |(target, outcome): (NamedTarget, TargetOutcome)| {
            let outcome = TargetOutcome { dry_run, ..outcome };
            Box::pin(handled(&server, &action, target, outcome))
        };
        let begun_now: Vec<_> = left.by_ref().take(CONCURRENT).map(begin).collect();
        for (outcome, rest) in join_all(begun_now).await {
            size += limits::lambda_event_size_of(&outcome);
            answer.outcomes.push(outcome);
            rests.push(rest);
        }
        if size > MAX_SIZE || server.env.steady().since(begun) > LATEST {
            break;
        }
    }
    if let (true, Some(last)) = (left.len() > 0, answer.outcomes.last()) {
        answer.next = Some(match select {
            TargetSelection::Targets(_) => TargetSelection::Targets(left.map(|(target, _)| target).collect()),
            TargetSelection::Filter(selector) => {
                let last = TargetKey::new(&last.kind, &last.name);
                let reader = Permitted::<ReadTargets>::of(&server, &server.caller)?;
                let next_token = Some(reader.sealed(target_list::PAGE, last.to_string()));
                TargetSelection::Filter(TargetSelector { next_token, ..selector })
            }
        });
    }
    Ok((RemainingWork::joined(rests), Json(answer)))
}

/// Returns the targets of a selection, or of its first page, and an answer without outcomes.
async fn selected(
    server: &Permitted<WriteTargets>,
    select: &TargetSelection,
    action: &TargetAction,
) -> HttpResult<(Vec<(NamedTarget, TargetOutcome)>, TargetOutcomes)> {
    match select {
        TargetSelection::Targets(named) => {
            let max = TargetSelection::MAX_TARGETS;
            if named.len() > max {
                let detail = format!("the request names {} targets; send at most {max} at a time", named.len());
                return Err(HttpProblem::new(ErrorCode::TooLarge, detail));
            }
            let mut seen = BTreeSet::new();
            let targets = named.iter().map(|target| -> HttpResult<_> {
                if !seen.insert((&target.kind, &target.name)) {
                    let key = TargetKey::new(&target.kind, &target.name).to_string();
                    let detail = format!("the request names {} twice", limits::message(&key));
                    return Err(HttpProblem::new(ErrorCode::InvalidField, detail));
                }
                check(target).map_err(|error| {
                    HttpProblem::new(ErrorCode::InvalidField, format!("{:?}: {error}", limits::message(&target.name)))
                })?;
                let NamedTarget { kind, name, uid, .. } = target.clone();
                Ok((target.clone(), TargetOutcome { uid, ..TargetOutcome::named(kind, name) }))
            });
            Ok((targets.collect::<HttpResult<_>>()?, TargetOutcomes::default()))
        }
        TargetSelection::Filter(selector) => {
            let mut query = selector.clone();
            query.plugin = query.plugin.or_else(|| Some(plugin_name(plugin_of(action)?).to_owned()));
            if query.is_open() {
                let detail = "a filter of an action needs one of phase, label, owner, plugin and q";
                return Err(HttpProblem::new(ErrorCode::MissingField, detail));
            }
            let query = Query(ListQuery { selector: query, ..ListQuery::default() });
            let Json(page) = target_list::list(Permitted::of(server, &server.caller)?, query).await?;
            let found = page.targets.into_iter().filter(|target| has_effect(action, target)).map(|target| {
                let TargetInfo { kind, name, uid, .. } = target.clone();
                (NamedTarget { kind, name, uid: Some(uid), ..NamedTarget::default() }, TargetOutcome::of(target))
            });
            let rest = |token| TargetSelector { next_token: Some(token), ..selector.clone() };
            let next = page.next_token.map(|token| TargetSelection::Filter(rest(token)));
            Ok((found.collect(), TargetOutcomes { damaged: page.damaged, next, ..TargetOutcomes::default() }))
        }
    }
}

fn check(NamedTarget { kind, name, uid, .. }: &NamedTarget) -> Result<(), FieldError> {
    lifecycle::kind(kind)?;
    lifecycle::name(name)?;
    uid.as_deref().map_or(Ok(()), lifecycle::uid)
}

fn plugin_of(action: &TargetAction) -> Option<&str> {
    match action {
        TargetAction::Delete { .. } => None,
        TargetAction::Retry { plugin } => plugin.as_deref(),
        TargetAction::Upgrade { plugin, .. } => Some(plugin),
    }
}

fn plugin_name(plugin: &str) -> &str {
    plugin.split_once('@').map_or(plugin, |(name, _)| name)
}

/// Returns true if an action can have an effect on a target that a filter has found.
fn has_effect(action: &TargetAction, target: &TargetInfo) -> bool {
    let phase = target.phase;
    match action {
        TargetAction::Delete { .. } => true,
        TargetAction::Retry { plugin: None } => has_failed(phase),
        TargetAction::Retry { plugin: Some(_) } => phase == TargetPhase::Stuck,
        TargetAction::Upgrade { plugin, .. } => {
            let is_other = |used: &String| used != plugin && plugin_name(used) == plugin_name(plugin);
            phase.is_alive() && target.plugins.iter().any(is_other)
        }
    }
}

fn has_failed(phase: TargetPhase) -> bool {
    matches!(phase, TargetPhase::Failed | TargetPhase::Stuck)
}

/// Takes an action on a target. Returns its outcome, and the rest of the work.
async fn handled(
    server: &Permitted<WriteTargets>,
    action: &TargetAction,
    target: NamedTarget,
    outcome: TargetOutcome,
) -> (TargetOutcome, RestOfRequest) {
    let mut begun = BegunAction { server, target: &target, outcome };
    let changed = match action {
        TargetAction::Delete { allow_protected } => Box::pin(begun.delete(*allow_protected)).await,
        TargetAction::Retry { plugin } => Box::pin(begun.retry(plugin.as_deref())).await.map(|()| None),
        TargetAction::Upgrade { plugin, allow_replace } => Box::pin(begun.upgrade((plugin, *allow_replace))).await,
    };
    match changed {
        Ok(rest) => (begun.outcome, rest),
        Err(HttpProblem(problem)) => (begun.outcome.refused(problem), None),
    }
}

/// An action on a target, and what is known of its outcome.
struct BegunAction<'a> {
    server: &'a Permitted<WriteTargets>,
    target: &'a NamedTarget,
    outcome: TargetOutcome,
}

impl BegunAction<'_> {
    /// Adds the state of the instance on which an action is taken. Owner and cause are for callers that may read it.
    fn note(&mut self, head: &TargetHead) {
        let owner_name = self.server.tokens.issuers.owner_name(head.owner.as_deref());
        let dry_run = self.outcome.dry_run;
        let seen = TargetOutcome { dry_run, owner_name, ..TargetOutcome::of(queries::targets::about(head)) };
        self.outcome = match self.server.check_permission(ApiPermission::ReadTargets, head) {
            Ok(()) => seen,
            Err(_) => TargetOutcome { owner: None, owner_name: None, first_cause: None, ..seen },
        };
    }

    async fn delete(&mut self, allow_protected: bool) -> HttpResult<RestOfRequest> {
        let (server, target) = (self.server, self.target);
        let protection = target_requests::protection(server, allow_protected)?;
        let (key, uid) = (TargetKey::new(&target.kind, &target.name), target.uid.as_deref());
        let present = match server.present(key).await {
            Ok(present) => present,
            // The caller may have the right to change only the instance that waits.
            Err(HttpProblem(problem)) if problem.status < 500 && target.run.is_none() => None,
            Err(problem) => return Err(problem),
        };
        if let Some(head) = &present {
            let waiting = head.waiting.as_ref().map(|waiting| waiting.uid.as_str());
            if let Some(uid) = uid.filter(|uid| *uid != head.uid && Some(*uid) != waiting) {
                if !self.outcome.dry_run {
                    target_request::block_creation(&server.env, key.instance(uid), &server.access()).await?;
                }
                return Err(other_instance(key, uid, Some(&head.uid)).into());
            }
            check_run(target, head)?;
            // A gone one has nothing to delete, but the instance that waits for its name has.
            let is_named = head.phase != TargetPhase::Gone || waiting.is_none();
            if uid.map_or(is_named, |uid| uid == head.uid) {
                self.note(head);
            }
        }
        let instance = (uid, target.generation, protection);
        let mut rest = None;
        if self.outcome.dry_run {
            if target_request::covered_instances(&server.env, key, instance, &server.access()).await?.is_none() {
                return Err(server.refusal(key).await);
            }
        } else {
            let (follow_ups, receipt) = target_requests::deleted(server, key, instance).await?;
            (rest, self.outcome.uid) = (follow_ups, receipt.uid);
        }
        let waiting = present.and_then(|head| head.waiting).filter(|_| uid.is_none());
        self.outcome.waiting_uid = waiting.map(|waiting| waiting.uid);
        Ok(rest)
    }

    /// Returns the instance on which a retry or an upgrade acts.
    async fn instance(&mut self) -> HttpResult<TargetHead> {
        let key = TargetKey::new(&self.target.kind, &self.target.name);
        let head = self.server.instance(key, self.target.uid.as_deref()).await?;
        check_run(self.target, &head)?;
        self.note(&head);
        Ok(head)
    }

    async fn retry(&mut self, plugin: Option<&str>) -> HttpResult<()> {
        let head = self.instance().await?;
        let key = head.target_key();
        let mode = if self.outcome.dry_run { RepairMode::Preview } else { RepairMode::Make };
        if mode == RepairMode::Preview && plugin.is_none() {
            if has_failed(head.phase) {
                return Ok(());
            }
            let nothing = || HttpProblem::new(ErrorCode::NothingFailed, format!("{key} is neither failed nor stuck"));
            let waits = Box::pin(early_start::start_early(&self.server.env, (key, Some(&head.uid)), None)).await?;
            waits.ok_or_else(nothing)??;
            return Ok(());
        }
        self.outcome.retry =
            Some(targets::retried(self.server, (key, &head.uid), plugin.map(RepairSource::Plugin), mode).await?);
        Ok(())
    }

    async fn upgrade(&mut self, plugin: (&str, Option<bool>)) -> HttpResult<RestOfRequest> {
        // Another request may change the document between the read and the update.
        let mut conflicts = 0;
        loop {
            let head = self.instance().await?;
            match plugin_upgrades::upgraded(self.server, &head, plugin, self.outcome.dry_run).await {
                Err(problem) if problem.is(ErrorCode::Outdated) && conflicts < MAX_CONFLICTS => conflicts += 1,
                upgraded => {
                    let (rest, receipt) = upgraded?;
                    self.outcome.update = Some(receipt);
                    return Ok(rest);
                }
            }
        }
    }
}

/// Checks that the last run of a target is the one that the caller has seen, if the request names one.
fn check_run(target: &NamedTarget, head: &TargetHead) -> HttpResult<()> {
    let present = head.hook.map(|hook| head.run(hook).to_string());
    if target.run.is_none() || target.run == present {
        return Ok(());
    }
    let detail = format!("{} has changed since, and other units would run: read it again", head.target_key());
    Err(HttpProblem::new(ErrorCode::Outdated, detail))
}
