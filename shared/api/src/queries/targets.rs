//! Lists and describes targets for people.

use std::collections::BTreeMap;

use ebb_documents::plan::{HookPlan, Plan, document_name};
use ebb_engine::{Hook, TargetPhase};
use ebb_protocol::api::{ResourceDetail, RunDetail, TargetDetail, TargetInfo, TargetPage, TargetSelector};
use ebb_protocol::id::unit_key;
use ebb_protocol::{FieldError, RunId, TargetAccess, TargetKey, lifecycle, limits, rfc3339, words};
use ebb_store::{ListPage, Store, TargetHead, TargetList};

use crate::queries::{open_units, resource_states, runs, sources, waits};
use crate::{HttpResult, OidcIssuers};
use ebb_flow::instance::notify;
use ebb_flow::instance::target_outputs::{OutputsProblem, READ_LESS, SensitiveValues, TargetOutputs, target_outputs};
use ebb_flow::run::removal::evidence;
use ebb_flow::{CompiledPlan, Env, FlowError, FlowResult, outages, target_facts};

/// Maximum targets of a page.
const PAGE: usize = 100;
/// The same with the keys of the targets. Each has at most about 1,500.
const KEYS_PAGE: usize = 50;
/// Targets that are read for a page before it ends, if few of them are selected. A page that ended earlier would count those
/// that the caller may not read.
const MAX_READ: usize = 1_000;
/// Maximum removals of a target in a response.
pub const MAX_REMOVALS: usize = 200;

/// Maximum labels of a selector. Each is compared with those of about 1,000 targets.
const MAX_LABELS: usize = 50;
/// Maximum bytes of the text of a selector.
const MAX_TEXT: usize = 1_000;

/// Returns true if a target has the labels and fits the rest of a selector. The kind and the place are not compared.
fn fits(
    (selector, labels): (&TargetSelector, &[(String, String)]),
    target: &TargetHead,
    owner_name: Option<&String>,
) -> bool {
    let TargetSelector { phases, owner, plugin, text, .. } = selector;
    let uses = |plugin: &String| {
        let is_name = |used: &String| used.rsplit_once('@').is_some_and(|(name, _)| name == plugin);
        target.plugins.iter().any(|used| used == plugin || is_name(used))
    };
    (phases.is_empty() || phases.contains(&target.phase))
        && labels.iter().all(|(name, value)| target.labels.get(name) == Some(value))
        && owner.as_ref().is_none_or(|owner| [target.owner.as_ref(), owner_name].contains(&Some(owner)))
        && plugin.as_ref().is_none_or(uses)
        && text.as_ref().is_none_or(|text| has_text(target, owner_name, &text.to_lowercase()))
}

/// Returns the labels of a selector, or an error for one that no target has and for a selector that takes too long.
fn checked_labels(TargetSelector { labels, text, .. }: &TargetSelector) -> Result<Vec<(String, String)>, FieldError> {
    if let Some(text) = text.as_ref().filter(|text| text.len() > MAX_TEXT) {
        let problem = format!("has {} bytes; the limit is {MAX_TEXT}", text.len());
        return Err(FieldError { field: "q", problem });
    }
    let wrong = |problem: String| FieldError { field: "label", problem };
    let mut pairs = Vec::new();
    for label in labels {
        let parsed = TargetSelector::label_pairs(label);
        pairs.extend(parsed.map_err(|expected| wrong(format!("is {:?}: {expected}", limits::message(label))))?);
    }
    let count = pairs.len();
    if count > MAX_LABELS { Err(wrong(format!("has {count} labels; the limit is {MAX_LABELS}"))) } else { Ok(pairs) }
}

/// Returns true if a target shows a text, which is in lower case.
fn has_text(target: &TargetHead, owner_name: Option<&String>, text: &str) -> bool {
    let labels = target.labels.iter().flat_map(|(name, value)| [name, value]);
    let known = [&target.name, &target.uid].into_iter().chain(&target.owner).chain(owner_name);
    let known = known.chain(&target.first_cause);
    known.chain(&target.plugins).chain(labels).any(|shown| shown.to_lowercase().contains(text))
}

/// Returns a page of the targets that fit a selector and that `access` covers. With `unconfirmed`, only those with unconfirmed
/// removals; with `keys`, they have their keys. `token` is the `nextToken` of the previous page in clear. An invalid request is
/// rejected with the malformed field.
pub(crate) async fn list(
    (env, issuers): (&Env, &OidcIssuers),
    (list, unconfirmed, keys): (TargetList, bool, bool),
    selector: &TargetSelector,
    access: &TargetAccess,
    token: Option<&str>,
) -> HttpResult<TargetPage> {
    let labels = checked_labels(selector)?;
    let owner_name = |target: &TargetHead| issuers.owner_name(target.owner.as_deref());
    let is_listed = |target: &TargetHead| {
        (!unconfirmed || target.unconfirmed > 0)
            && access.covers(target.owner.as_deref(), &target.labels)
            && fits((selector, &labels), target, owner_name(target).as_ref())
    };
    let count = if keys { KEYS_PAGE } else { PAGE };
    let found = selected(&env.store, (list, selector.kind.as_deref()), token, count, is_listed).await?;
    let ListPage { targets, damaged, next } = found;
    for reason in &damaged {
        tracing::error!(reason, "cannot read a target");
    }
    let mut shown = Vec::with_capacity(targets.len());
    for mut target in targets {
        hide_waiting(&mut target, access);
        let keys = if keys { keys_of(env, &target).await? } else { Vec::new() };
        shown.push(TargetInfo { owner_name: owner_name(&target), keys, ..about(&target) });
    }
    let next_token = next.map(|(kind, name)| format!("{kind}/{name}"));
    Ok(TargetPage { targets: shown, damaged, outages: Vec::new(), next_token })
}

/// Returns at most `count` targets that are selected, of at most about 1,000 that are read. `token` is the `nextToken` of the
/// previous page. An invalid request is rejected with the malformed field.
pub(crate) async fn selected(
    store: &Store,
    (list, kind): (TargetList, Option<&str>),
    token: Option<&str>,
    count: usize,
    selects: impl Fn(&TargetHead) -> bool,
) -> HttpResult<ListPage> {
    let after = token.map(cursor).transpose()?;
    kind.map(lifecycle::kind).transpose()?;
    let (mut page, mut read) = (ListPage::default(), 0);
    // Pages are ordered by kind, then by name. All targets of the requested kind may be before or after the token.
    page.next = match (kind, after) {
        (Some(kind), Some(after)) if after.kind > kind => return Ok(page),
        (Some(kind), Some(after)) if after.kind < kind => None,
        (_, after) => after.map(|after| (after.kind.to_owned(), after.name.to_owned())),
    };
    loop {
        let begin = page.next.as_ref().map(|(kind, name)| TargetKey { kind, name });
        let found = store.list_page(list, kind, begin, count).await?;
        read += found.targets.len() + found.damaged.len();
        page.damaged.extend(found.damaged);
        page.targets.extend(found.targets.into_iter().filter(|target| selects(target)));
        page.next = found.next;
        if page.targets.len() > count {
            page.targets.truncate(count);
            page.next = page.targets.last().map(|target| (target.kind.clone(), target.name.clone()));
        }
        if page.next.is_none() || page.targets.len() == count || read >= MAX_READ {
            return Ok(page);
        }
    }
}

/// Parses a `nextToken` into the kind and name of the last target of a page.
pub(crate) fn cursor(text: &str) -> Result<TargetKey<'_>, FieldError> {
    let (kind, name) = text.split_once('/').unwrap_or((text, ""));
    // A target cannot be named `.` or `..`, but a page can begin after these names.
    let is_folder = matches!(name, "." | "..");
    match lifecycle::kind(kind).and_then(|()| if is_folder { Ok(()) } else { lifecycle::name(name) }) {
        Ok(()) => Ok(TargetKey { kind, name }),
        Err(_) => Err(FieldError {
            field: "nextToken",
            problem: "is not the `nextToken` of a page: expected KIND/NAME".to_owned(),
        }),
    }
}

/// Removes the instance that waits for the name of a target, if the access does not cover it.
pub(crate) fn hide_waiting(target: &mut TargetHead, access: &TargetAccess) {
    target.waiting.take_if(|waiting| !access.covers(waiting.owner.as_deref(), &waiting.labels));
}

/// Returns the keys of a target and of its present and former resources and units.
async fn keys_of(env: &Env, target: &TargetHead) -> FlowResult<Vec<String>> {
    let loaded = match env.plan_of(target).await {
        // Its stored data is removed before its entry in the list.
        Err(FlowError::Damaged { .. }) if target.removed.is_some() => return Ok(vec![target.instance_key()]),
        loaded => loaded?,
    };
    let plan = &loaded.plan;
    let facts = target_facts(target.target_key().instance(&target.uid), target.generation, &plan.target);
    let former = plan.update.iter().flat_map(|update| &update.former);
    let former = former.filter_map(|(name, former)| Some((name, former.resource.as_ref()?)));
    let resources = plan.resources.iter().chain(former);
    let resources = resources.map(|(name, resource)| facts.resource_key(document_name(name), resource.incarnation));
    let units = plan.hooks.iter().flat_map(HookPlan::places).filter(|(at, unit)| unit.is_setup(at.hook));
    let units = units.map(|(at, unit)| {
        let scope = if let Hook::Update(_) = at.hook { target.run(at.hook).to_string() } else { facts.key.clone() };
        unit_key(&scope, document_name(unit.resource()), unit.name())
    });
    Ok(std::iter::once(facts.key.clone()).chain(resources).chain(units).collect())
}

/// Returns the facts of a target for lists.
pub fn about(target: &TargetHead) -> TargetInfo {
    let stops = !target.phase.is_alive();
    let waits = waits::rows(target);
    TargetInfo {
        kind: target.kind.clone(),
        name: target.name.clone(),
        uid: target.uid.clone(),
        owner: target.owner.clone(),
        owner_name: None,
        labels: target.labels.clone(),
        generation: target.generation,
        phase: target.phase,
        since: rfc3339(target.phase_since()),
        created: rfc3339(target.created),
        first_cause: target.first_cause.clone(),
        usable: target.phase == TargetPhase::Failed && target.hook == Some(Hook::PostStart),
        expires: target.expires.map(rfc3339),
        stop_cause: stops.then_some(target.stop_cause),
        overridden: target.is_overridden,
        unconfirmed: target.unconfirmed,
        plugins: target.plugins.clone(),
        keys: Vec::new(),
        waits_for: words::waits_for(&waits),
        waits,
    }
}

/// Returns the detail of a target, and the names of the sensitive values that are revealed in it.
pub async fn get(
    env: &Env,
    target: TargetHead,
    only: Option<&str>,
    values: SensitiveValues,
) -> FlowResult<(TargetDetail, Vec<String>)> {
    let loaded = match env.plan_of(&target).await {
        Err(error @ FlowError::Damaged { .. }) => {
            let waits = vec![waits::repair(&error)];
            let info = TargetInfo { waits_for: Some(format!("repair: {error}")), waits, ..about(&target) };
            return Ok((TargetDetail { info, ..without_plan(&target) }, Vec::new()));
        }
        loaded => loaded?,
    };
    let mut runs = Vec::new();
    for run in runs_of(&target) {
        if loaded.hook_plan(run.hook()).is_some() {
            runs.extend(runs::get(env, &run).await?);
        }
    }
    let (mut outputs, outputs_error) = shown_outputs(env, &target, &loaded, only, values).await?;
    let resources = resource_details(&target, &loaded.plan, &runs, &mut outputs);
    let first_wait = open_units::first(&runs);
    let pending = notify::pending_notification(env, &target, None).await?.map(|_| target.phase.name().to_owned());
    let outage = outages::find_outage(env, &loaded.plan, &runs).await?;
    let mut removals = match target.phase {
        TargetPhase::Gone => evidence::removals(env, &target, &loaded).await?,
        _ => Vec::new(),
    };
    removals.truncate(MAX_REMOVALS);
    let labels = loaded.plan.target.labels.clone();
    let mut detail = TargetDetail {
        info: TargetInfo { labels, ..about(&target) },
        resources,
        env: outputs.env,
        workloads: outputs.workloads,
        outputs_error,
        removals,
        first_wait,
        pending_notification: pending,
        outage,
        decided_by: sources::deciding_event(&env.store, &target).await?,
        ..without_plan(&target)
    };
    // The units of the runs get the rest of the response.
    let mut remaining = limits::API_RESPONSE.saturating_sub(limits::lambda_event_size_of(&detail));
    for run in &mut runs {
        remaining = runs::page(run, None, remaining).unwrap_or(remaining);
    }
    detail.runs = runs;
    Ok((detail, outputs.revealed))
}

/// Returns the outputs of a target that fit into a response, and the reason why others are missing.
async fn shown_outputs(
    env: &Env,
    target: &TargetHead,
    loaded: &CompiledPlan,
    only: Option<&str>,
    values: SensitiveValues,
) -> FlowResult<(TargetOutputs, Option<String>)> {
    // A starting target has no complete outputs, and clients read it often.
    let outputs = match target.phase {
        TargetPhase::Starting => TargetOutputs::default(),
        _ => target_outputs(env, target, loaded, only, values).await?,
    };
    if let Some(only) = only
        && loaded.plan.public_outputs(Some(only)).next().is_none()
        && !loaded.plan.resources.contains_key(only)
    {
        let error =
            match only.split_once('/').map(|(resource, output)| (limits::message(resource), limits::message(output))) {
                Some((resource, output)) => format!("no resource {resource:?} has an output {output:?}"),
                None => format!("no resource has the name {:?}", limits::message(only)),
            };
        return Ok((outputs, Some(error)));
    }
    let size = limits::lambda_event_size_of(&outputs.outputs)
        + limits::lambda_event_size_of(&outputs.env)
        + limits::lambda_event_size_of(&outputs.workloads);
    let most = limits::API_RESPONSE_OUTPUTS;
    if size > most {
        let error = format!("outputs and env have {size} bytes, and a response holds at most {most}; {READ_LESS}");
        return Ok((TargetOutputs::default(), Some(error)));
    }
    let error = outputs.problem.clone().map(|problem| match problem {
        OutputsProblem::TooLarge(text) | OutputsProblem::Render(text) => text,
    });
    Ok((outputs, error))
}

/// Returns the resources of a target, with their outputs, which are taken out of `outputs`.
fn resource_details(
    target: &TargetHead,
    plan: &Plan,
    runs: &[RunDetail],
    outputs: &mut TargetOutputs,
) -> BTreeMap<String, ResourceDetail> {
    let state_of = resource_states::states(target, plan, runs);
    let resources = plan.resources.iter().map(|(name, resource)| {
        let outputs = outputs.outputs.remove(name).unwrap_or_default();
        let params = resource.params.iter().map(|(name, value)| (name.clone(), value.shown())).collect();
        let (plugin, repaired_by) = (resource.plugin.clone(), resource.repaired_by.clone());
        let protect = resource.protect == Some(true);
        let links = resource.outputs.iter().filter(|(_, output)| output.link).map(|(name, _)| name.clone()).collect();
        (name.clone(), ResourceDetail { plugin, repaired_by, protect, params, outputs, links, ..state_of(name) })
    });
    resources.collect()
}

fn without_plan(target: &TargetHead) -> TargetDetail {
    TargetDetail {
        info: about(target),
        delivery: waits::delivery(target),
        waiting_uid: target.waiting.as_ref().map(|waiting| waiting.uid.clone()),
        pending_generation: target.pending_update.as_ref().map(|pending| pending.generation),
        ..TargetDetail::default()
    }
}

/// Returns the possible runs of the present instance, in the order of its hooks, with those of its last events.
pub fn runs_of(target: &TargetHead) -> Vec<RunId> {
    let events = target.events.recent.iter();
    let events = events.map(|event| RunId::of_event(&target.instance_key(), target.first_generation, event));
    let updates = (1..=target.updates).map(Hook::Update);
    let mut runs: Vec<RunId> =
        Hook::ALL.into_iter().chain(updates).map(|hook| target.run(hook)).chain(events).collect();
    runs.sort_by_key(|run| match run.hook() {
        // Events are in the order in which they came.
        Hook::Event(_) => (Hook::PostStart, true),
        hook => (hook, false),
    });
    runs
}
