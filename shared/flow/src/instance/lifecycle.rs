//! Applies lifecycle webhooks to targets. This is the function `receive`.
//!
//! 1. Decide with the engine what the webhook means for the present state of the target.
//! 2. Compile the document of a creation with the published plugins.
//! 3. Move the target and start its first run in one transaction (rule 9).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_documents::compile::{self, BoundPlugin, resolve_version};
use ebb_documents::diagnostic::{Diagnostic, Diagnostics};
use ebb_documents::load::{self, Document, DocumentVars, NoFiles};
use ebb_documents::model::{PluginDoc, ResourceDoc, SandboxDoc, SandboxKind};
use ebb_documents::plan::Plan;
use ebb_engine::target::{CreateDecision, DeleteDecision, create as decide_create, delete as decide_delete};
use ebb_engine::{HookSet, Millis, TargetPhase};
use ebb_protocol::api::DocumentChange;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::id;
use ebb_protocol::lifecycle::{LifecycleData, LifecycleResponse, LifecycleResult, TargetStopCause};
use ebb_store::{PendingCreation, PluginItem, ReadPlugins, StoreError, TargetHead, TargetTransition};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use tracing::Instrument as _;

use crate::env::{CompiledPlan, Env};
use crate::error::{FlowError, RequestError};
use crate::instance::changes::{self, PinnedVersions};
pub use crate::instance::rejection::LifecycleRejection;
use crate::instance::rejection::stale;
use crate::instance::transition::{self, NotificationSender};
use crate::instance::{due, events, notify};
use crate::offload::offload;
use crate::operator::retry;
use crate::run::cancel;
use crate::run::follow_up::FollowUp;
use crate::sweep::retention;

/// Applies a verified lifecycle webhook with the CloudEvent id `id` and runs its follow-up. A repetition returns the
/// same response and changes nothing.
pub async fn receive(
    env: &Env,
    plugins: &dyn ReadPlugins,
    (event_type, id): (LifecycleType, &str),
    event: &LifecycleData,
) -> Result<LifecycleResponse, RequestError<LifecycleRejection>> {
    let (response, follow_up) = begin(env, plugins, (event_type, id), event).await?;
    follow_up.finish(env).await?;
    Ok(response)
}

/// Applies a verified lifecycle webhook. The state is durable when this returns.
pub async fn begin(
    env: &Env,
    plugins: &dyn ReadPlugins,
    (event_type, id): (LifecycleType, &str),
    event: &LifecycleData,
) -> Result<(LifecycleResponse, FollowUp), RequestError<LifecycleRejection>> {
    let span = tracing::info_span!("lifecycle webhook", kind = event.kind, name = event.name);
    let take = async {
        match event_type {
            LifecycleType::Created | LifecycleType::Updated => create(env, plugins, event_type, event).await,
            LifecycleType::Deleted => {
                let follow_up =
                    begin_delete(env, (&event.kind, &event.name, &event.uid), TargetStopCause::Deleted).await?;
                Ok((response(event, LifecycleResult::Stopping), follow_up))
            }
            LifecycleType::Event => {
                let (result, generation, follow_up) = events::receive(env, event, id).await?;
                Ok((LifecycleResponse { generation, ..response(event, result) }, follow_up))
            }
        }
    };
    Box::pin(take.instrument(span)).await
}

fn response(event: &LifecycleData, result: LifecycleResult) -> LifecycleResponse {
    LifecycleResponse {
        target: format!("{}/{}", event.kind, event.name),
        uid: event.uid.clone(),
        generation: event.generation,
        result,
    }
}

async fn create(
    env: &Env,
    plugins: &dyn ReadPlugins,
    event_type: LifecycleType,
    event: &LifecycleData,
) -> Result<(LifecycleResponse, FollowUp), RequestError<LifecycleRejection>> {
    let only = |response| Ok((response, FollowUp::default()));
    let instance = id::instance_key(&event.kind, &event.name, &event.uid);
    let mut compiled: Option<CompiledDocument> = None;
    for _ in 0..crate::ATTEMPTS {
        // The target is read before the tombstone. The writer of a tombstone changes the target after it, so one of the
        // two detects the other.
        let seen = env.store.read_target(&event.kind, &event.name).await?;
        let known = seen.as_ref().map(transition::engine_target);
        let decide = |hooks| decide_create(known.as_ref(), &event.uid, event.generation, hooks);
        // A webhook without effect gets its response before the document is compiled.
        match (decide(HookSet::default()), &seen) {
            (CreateDecision::Changed, Some(target)) => {
                return only(update(env, plugins, event, target).await?);
            }
            (CreateDecision::Repeated, Some(target)) if event_type == LifecycleType::Updated => {
                return only(update(env, plugins, event, target).await?);
            }
            (CreateDecision::Repeated, _) => {
                let waits = seen.as_ref().is_some_and(|target| target.uid != event.uid);
                let result = if waits { LifecycleResult::Waiting } else { LifecycleResult::Starting };
                return only(response(event, result));
            }
            (CreateDecision::Stale, _) => return Err(stale(event).into()),
            (CreateDecision::QueueFull, _) => {
                let text = format!("another {} already waits for the name {:?}", event.kind, event.name);
                return Err(LifecycleRejection::Conflict("name-taken", text).into());
            }
            (CreateDecision::Begin(_) | CreateDecision::Wait | CreateDecision::Changed, _) => {}
        }
        if env.store.read_tombstone(&instance).await?.is_some() {
            return Err(stale(event).into());
        }
        let plan = match compiled.take() {
            Some(plan) => plan,
            None => compile(plugins, event).await?,
        };
        let plan = compiled.insert(plan);
        let decision = decide(plan.loaded.hooks());
        let undelivered = match &seen {
            Some(target) => notify::pending_notification(env, target).await?.is_some(),
            None => false,
        };
        match (decision, seen) {
            (CreateDecision::Begin(step), seen) if !undelivered || seen.is_none() => {
                let target = new_head(env, event, plan, seen.as_ref());
                let mut transition = transition::transition(env, &target, step, &plan.loaded, None);
                transition.expected_version = seen.as_ref().map(|target| target.version);
                transition.tombstone =
                    seen.map(|former| retention::tombstone(env, former.instance_key(), former.since));
                if env.store.begin_instance(&transition, &instance, plan.json.as_bytes()).await? {
                    let sender = NotificationSender::Queue;
                    let continuation = transition::after_transition(env, transition, &plan.loaded, sender).await?;
                    return Ok((response(event, LifecycleResult::Starting), FollowUp::drive(continuation)));
                }
            }
            // The platform has not accepted the `gone` of the previous instance, so this one waits.
            (CreateDecision::Wait | CreateDecision::Begin(_), Some(target)) => {
                let transition = target.update(|after| {
                    after.waiting = Some(PendingCreation {
                        uid: event.uid.clone(),
                        generation: event.generation,
                        plan: plan.loaded.digest.clone(),
                        routing_key: event.routing_key.clone(),
                        plugins: plan.plugins.clone(),
                        ttl_ms: plan.loaded.plan.target.ttl_ms,
                    });
                    after.due = due::next_due(env, after);
                });
                if env.store.begin_instance(&transition, &instance, plan.json.as_bytes()).await? {
                    return only(response(event, LifecycleResult::Waiting));
                }
            }
            _ => {}
        }
    }
    Err(FlowError::Contended(format!("{}/{}", event.kind, event.name)).into())
}

/// Returns the response to an update of an instance that has begun or waits for its name. An active target cannot be
/// changed, so a different document is rejected. An unchanged document retries the failed units of a failed target.
async fn update(
    env: &Env,
    plugins: &dyn ReadPlugins,
    event: &LifecycleData,
    target: &TargetHead,
) -> Result<LifecycleResponse, RequestError<LifecycleRejection>> {
    let waiting = target.waiting.as_ref().filter(|waiting| target.uid != event.uid && waiting.uid == event.uid);
    let (plan, generation, routing_key) = match waiting {
        Some(waiting) => (&waiting.plan, waiting.generation, &waiting.routing_key),
        None => (&target.plan, target.generation, &target.routing_key),
    };
    let document = event.document.as_ref().ok_or_else(no_document)?;
    let instance = id::instance_key(&event.kind, &event.name, &event.uid);
    let current = match env.plan(&instance, plan).await {
        Err(error @ FlowError::Damaged { .. }) => {
            let pinned = waiting.map_or(&target.plugins, |waiting| &waiting.plugins);
            restore(env, plugins, event, document, (&instance, plan, pinned)).await?.ok_or(error)?
        }
        current => current?,
    };
    let versions = PinnedVersions::OfPlan(&current.plan);
    let compiled = compile_document(plugins, (&event.kind, &event.name), document, versions).await;
    let (updated, _) = compiled.map_err(|error| error.map(LifecycleRejection::Document))?;
    let mut changes = changes::between(&current.plan, &updated);
    if event.routing_key.is_some() && event.routing_key != *routing_key {
        let (old, new) = (routing_key.clone(), event.routing_key.clone());
        changes.push(DocumentChange { path: "routingKey".to_owned(), old, new });
    }
    if !changes.is_empty() {
        return Err(LifecycleRejection::Changed(changes).into());
    }
    let mut result = LifecycleResult::Unchanged;
    if waiting.is_none() && target.phase == TargetPhase::Failed {
        let retried = retry::retry(env, &event.kind, &event.name).await?;
        if matches!(retried, retry::RetryOutcome::Retried(_)) {
            result = LifecycleResult::Retrying;
        }
    }
    Ok(LifecycleResponse { generation, ..response(event, result) })
}

/// Stores the lost plan of a target again, if `document` compiles to it.
async fn restore(
    env: &Env,
    plugins: &dyn ReadPlugins,
    event: &LifecycleData,
    document: &str,
    (instance, digest, pinned): (&str, &str, &[String]),
) -> Result<Option<Arc<CompiledPlan>>, FlowError> {
    let versions = PinnedVersions::Listed(pinned);
    let plan = match compile_document(plugins, (&event.kind, &event.name), document, versions).await {
        Ok((plan, _)) => plan,
        Err(RequestError::Rejected(_)) => return Ok(None),
        Err(RequestError::Failed(error)) => return Err(error),
    };
    if plan.digest() != digest {
        return Ok(None);
    }
    env.store.restore_plan(instance, plan.to_json().as_bytes()).await?;
    tracing::warn!(kind = event.kind, name = event.name, digest, "restored a lost plan");
    let loaded = Arc::new(CompiledPlan::of(plan, digest)?);
    env.remember_plan(&loaded);
    Ok(Some(loaded))
}

fn no_document() -> LifecycleRejection {
    LifecycleRejection::Missing("`data.document` is missing; expected the document of the target as text".to_owned())
}

fn new_head(env: &Env, event: &LifecycleData, plan: &CompiledDocument, seen: Option<&TargetHead>) -> TargetHead {
    let now = env.now();
    TargetHead {
        generation: event.generation,
        plan: plan.loaded.digest.clone(),
        routing_key: event.routing_key.clone(),
        plugins: plan.plugins.clone(),
        expires: plan.loaded.plan.target.ttl_ms.map(|ttl| now.plus(Millis(ttl))),
        version: seen.map_or(0, |target| target.version),
        release: seen.map(|target| target.release.clone()).unwrap_or_default(),
        ..TargetHead::new(&event.kind, &event.name, &event.uid, now)
    }
}

struct CompiledDocument {
    loaded: Arc<CompiledPlan>,
    json: String,
    plugins: Vec<String>,
}

async fn compile(
    plugins: &dyn ReadPlugins,
    event: &LifecycleData,
) -> Result<CompiledDocument, RequestError<LifecycleRejection>> {
    let document = event.document.as_ref().ok_or_else(no_document)?;
    let compiled = compile_document(plugins, (&event.kind, &event.name), document, PinnedVersions::Latest).await;
    let (plan, _) = compiled.map_err(|error| error.map(LifecycleRejection::Document))?;
    let names = plan.resources.values().map(|resource| resource.plugin.clone());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    let loaded = offload(move || {
        let (digest, json) = (plan.digest(), plan.to_json());
        Ok::<_, FlowError>((Arc::new(CompiledPlan::of(plan, &digest)?), json))
    });
    let (loaded, json) = loaded.await??;
    Ok(CompiledDocument { loaded, json, plugins: names })
}

/// Compiles a target's document with the published plugins. `versions` are used for resources that do not name a
/// version. Returns the plan and the warnings. An invalid document is rejected with its errors.
pub async fn compile_document(
    plugins: &dyn ReadPlugins,
    (kind, name): (&str, &str),
    document: &str,
    versions: PinnedVersions<'_>,
) -> Result<(Plan, Vec<Diagnostic>), RequestError<Diagnostics>> {
    let text = document.to_owned();
    let loaded = offload(move || load::document("document", &text, &NoFiles, &DocumentVars::none())).await?;
    let mut sandbox = match loaded? {
        Document::Sandbox(sandbox) => sandbox,
        Document::RouteGroup(group) => {
            compile::check_route_group(&group)?;
            group.target
        }
        other @ (Document::Plugin(_) | Document::Source(_)) => {
            let text = format!("this is {}; expected the document of the target", other.noun());
            return Err(Diagnostics::from(Diagnostic::error("not-a-target", other.source(), None, text)).into());
        }
    };
    if sandbox.name.value != name {
        let text = format!("the document is named {:?}, the target {name:?}", sandbox.name.value);
        let error = Diagnostic::error("other-name", &sandbox.source, Some(sandbox.name.at), text);
        return Err(Diagnostics::from(error).into());
    }
    if let Some(own) =
        sandbox.target_kind.as_ref().filter(|own| sandbox.kind == SandboxKind::Target && own.value != kind)
    {
        let text = format!("the document has `targetKind: {}`, the kind of the target is {kind:?}", own.value);
        let error = Diagnostic::error("other-kind", &sandbox.source, Some(own.at), text);
        return Err(Diagnostics::from(error).into());
    }
    versions.apply(&mut sandbox);
    let (found, errors) = find_plugins(plugins, &sandbox, versions).await?;
    if errors.has_errors() {
        return Err(errors.sorted().into());
    }
    let compiled = offload(move || {
        let bound: BTreeMap<String, BoundPlugin<'_>> = found
            .iter()
            .map(|(resource, published)| {
                let PublishedPlugin { plugin, version, digest } = published.as_ref();
                (resource.clone(), BoundPlugin { plugin, version, digest })
            })
            .collect();
        compile::plan(&sandbox, &bound)
    });
    Ok(compiled.await??)
}

struct PublishedPlugin {
    plugin: PluginDoc,
    version: semver::Version,
    digest: String,
}

type ResourcePlugins = BTreeMap<String, Arc<PublishedPlugin>>;

const PLUGIN_READS: usize = 16;

/// Finds the published plugin of each resource, or the withdrawn one that an active target has `pinned`. Reads and
/// parses each version once.
async fn find_plugins(
    plugins: &dyn ReadPlugins,
    sandbox: &SandboxDoc,
    pinned: PinnedVersions<'_>,
) -> Result<(ResourcePlugins, Diagnostics), FlowError> {
    let mut errors = Diagnostics::new();
    let diagnostic = |resource: &ResourceDoc, code, text: String| {
        Diagnostic::error(code, &sandbox.source, Some(resource.plugin.at), text)
    };
    let versions = list_versions(plugins, sandbox).await?;
    let mut published: Option<Vec<PluginItem>> = None;
    let mut wanted: BTreeMap<(&str, &semver::Version), Vec<&ResourceDoc>> = BTreeMap::new();
    for resource in &sandbox.resources {
        let name = resource.plugin.value.as_str();
        let Some(versions) = versions.get(name) else { continue };
        let PluginVersions { published: usable, withdrawn } = versions;
        let in_use = pinned.pinned_versions(&resource.name.value, name);
        let withdrawn_in_use =
            withdrawn.iter().find(|one| resource.version.as_ref() == Some(*one) && in_use.contains(one));
        if let Some(version) = resolve_version(resource.version.as_ref(), usable).or(withdrawn_in_use) {
            wanted.entry((name, version)).or_default().push(resource);
            continue;
        }
        if usable.is_empty() && compile::is_built_in(resource) {
            continue;
        }
        if usable.is_empty() && withdrawn.is_empty() {
            let all = match published.take() {
                Some(all) => all,
                None => plugins.list_plugins().await?,
            };
            let names = published.insert(all).iter().map(|item| item.name.as_str());
            let publish = "publish it: ebb plugin apply -f FILE";
            let help = match ebb_documents::expr::nearest(name, names) {
                Some(near) => format!("did you mean `{near}`? If not, {publish}"),
                None => publish.to_owned(),
            };
            let error = diagnostic(resource, "unknown-plugin", format!("no plugin {name:?} is published"));
            errors.push(error.help(help));
        } else {
            let (code, text) = versions.none_for(resource);
            errors.push(diagnostic(resource, code, text).help(versions.help()));
        }
    }
    let reads = wanted.into_iter().map(|((name, version), resources)| {
        async move {
            let item = plugins.get_plugin(name, &version.to_string()).await?;
            Ok::<_, StoreError>((name, version, resources, item))
        }
        .boxed()
    });
    let reads: Vec<_> = reads.collect();
    let mut reads = futures::stream::iter(reads).buffered(PLUGIN_READS);
    let mut found = ResourcePlugins::new();
    while let Some((name, version, resources, item)) = reads.try_next().await? {
        let Some(first) = resources.first() else { continue };
        let stored = format!("{name}@{version}");
        let Some(item) = item else {
            errors.push(diagnostic(first, "unknown-version", format!("plugin {stored} is not in the table")));
            continue;
        };
        let (source, text) = (stored.clone(), item.document);
        match offload(move || load::plugins(&source, &text, &NoFiles, &DocumentVars::none())).await? {
            Ok(mut list) if list.len() == 1 => {
                let version = version.clone();
                let published = Arc::new(PublishedPlugin { plugin: list.remove(0), version, digest: item.digest });
                let names = resources.iter().map(|resource| resource.name.value.clone());
                found.extend(names.map(|name| (name, Arc::clone(&published))));
            }
            Ok(_) => errors.push(diagnostic(first, "broken-plugin", format!("{stored} is not one plugin"))),
            Err(broken) => errors.extend(broken),
        }
    }
    Ok((found, errors))
}

struct PluginVersions {
    published: Vec<semver::Version>,
    withdrawn: Vec<semver::Version>,
}

impl PluginVersions {
    /// Returns the code and the text of the error that a resource has no usable version.
    fn none_for(&self, resource: &ResourceDoc) -> (&'static str, String) {
        let name = &resource.plugin.value;
        match &resource.version {
            Some(version) if self.withdrawn.contains(version) => {
                ("withdrawn-version", format!("plugin {name}@{version} was withdrawn"))
            }
            Some(version) => ("unknown-version", format!("plugin {name:?} has no version {version}")),
            None => {
                let all = version_list(&self.withdrawn);
                ("withdrawn-version", format!("all versions of plugin {name:?} were withdrawn: {all}"))
            }
        }
    }

    fn help(&self) -> String {
        match self.published.as_slice() {
            [] => "publish another version: ebb plugin apply -f FILE".to_owned(),
            published => format!("published: {}", version_list(published)),
        }
    }
}

fn version_list(versions: &[semver::Version]) -> String {
    versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the versions of all plugins that a sandbox names.
async fn list_versions<'a>(
    plugins: &dyn ReadPlugins,
    sandbox: &'a SandboxDoc,
) -> Result<BTreeMap<&'a str, PluginVersions>, StoreError> {
    let published = sandbox.resources.iter().filter(|resource| resource.collection.is_none());
    let names: BTreeSet<&str> = published.map(|resource| resource.plugin.value.as_str()).collect();
    let lists = names.into_iter().map(|name| {
        async move {
            let listed = plugins.list_versions(name).await?;
            let (withdrawn, published): (Vec<_>, Vec<_>) = listed.iter().partition(|item| item.withdrawn.is_some());
            let parsed =
                |items: Vec<&PluginItem>| items.into_iter().filter_map(|item| item.version.parse().ok()).collect();
            Ok((name, PluginVersions { published: parsed(published), withdrawn: parsed(withdrawn) }))
        }
        .boxed()
    });
    let lists: Vec<_> = lists.collect();
    futures::stream::iter(lists).buffer_unordered(PLUGIN_READS).try_collect().await
}

/// Ends an instance for `cause`. The call can be repeated.
pub async fn delete(env: &Env, kind: &str, name: &str, uid: &str, cause: TargetStopCause) -> Result<(), FlowError> {
    begin_delete(env, (kind, name, uid), cause).await?.finish(env).await
}

/// Begins to end an instance for `cause`. No unit of its setup starts after this returns; the follow-up stops running
/// attempts.
pub(crate) async fn begin_delete(
    env: &Env,
    (kind, name, uid): (&str, &str, &str),
    cause: TargetStopCause,
) -> Result<FollowUp, FlowError> {
    let tombstone = || retention::tombstone(env, id::instance_key(kind, name, uid), env.now());
    for _ in 0..crate::ATTEMPTS {
        let seen = env.store.read_target(kind, name).await?;
        let known = seen.as_ref().map(transition::engine_target);
        let is_active = |target: &&TargetHead| target.uid == uid && target.phase != TargetPhase::Gone;
        let loaded = match seen.as_ref().filter(is_active) {
            Some(target) => Some(env.plan_of(target).await?),
            None => None,
        };
        let hooks = loaded.as_ref().map(|loaded| loaded.hooks()).unwrap_or_default();
        let decision = decide_delete(known.as_ref(), uid, hooks);
        let is_cancel = matches!(decision, DeleteDecision::Cancel(_));
        match (decision, seen, loaded) {
            (DeleteDecision::PutTombstone, seen, _) => {
                env.store.put_tombstone(&tombstone()).await?;
                // A concurrent creation may have read the table before the tombstone. The new version of the target
                // makes its transaction fail.
                if bump_version(env, kind, name, uid, seen).await? {
                    return Ok(FollowUp::default());
                }
            }
            (DeleteDecision::Repeated, Some(target), _) => return stop_setup_run(env, &target).await,
            (DeleteDecision::Unqueue, Some(target), _) => {
                if let Some(waiting) = &target.waiting {
                    retention::schedule_waiting_removal(env, &target, waiting).await?;
                }
                let tombstone = Some(tombstone());
                let transition = TargetTransition { tombstone, ..target.update(|after| after.waiting = None) };
                if env.store.move_target(&transition).await? {
                    return Ok(FollowUp::default());
                }
            }
            (DeleteDecision::Cancel(step) | DeleteDecision::Begin(step), Some(target), Some(loaded)) => {
                retention::schedule_removal(env, &target).await?;
                let mut transition = transition::transition(env, &target, step, &loaded, None);
                transition.target.stop_cause = cause;
                if env.store.move_target(&transition).await? {
                    if is_cancel {
                        return stop_setup_run(env, &transition.target).await;
                    }
                    let sender = NotificationSender::Queue;
                    let continuation = transition::after_transition(env, transition, &loaded, sender).await?;
                    return Ok(FollowUp::drive(continuation));
                }
            }
            (decision, ..) => {
                return Err(FlowError::Broken(format!("{kind}/{name}: {decision:?} does not match the target")));
            }
        }
    }
    Err(FlowError::Contended(format!("{kind}/{name}")))
}

/// Gives the target of a name a new version. A target that does not exist is written as gone, because it was deleted
/// before it was created. Returns false if the target has changed.
async fn bump_version(
    env: &Env,
    kind: &str,
    name: &str,
    uid: &str,
    seen: Option<TargetHead>,
) -> Result<bool, FlowError> {
    let expected_version = seen.as_ref().map(|target| target.version);
    let gone = || TargetHead { phase: TargetPhase::Gone, ..TargetHead::new(kind, name, uid, env.now()) };
    let transition = TargetTransition { expected_version, ..seen.unwrap_or_else(gone).update(|_| {}) };
    Ok(env.store.move_target(&transition).await?)
}

/// Cancels the run of a stopping target that its teardown waits for: of its setup, or of an event. A crash before this
/// may have left it running.
async fn stop_setup_run(env: &Env, target: &TargetHead) -> Result<FollowUp, FlowError> {
    let Some(hook) = target.hook.filter(|hook| !hook.is_teardown()) else {
        return Ok(FollowUp::default());
    };
    if target.phase != TargetPhase::Stopping {
        return Ok(FollowUp::default());
    }
    let run = target.run(hook);
    cancel::stop_dispatch(env, &run).await?;
    Ok(FollowUp { cancelled_run: Some(run), ..FollowUp::default() })
}
