//! Compiles the document of a target with the published plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_documents::compile::{self, BoundPlugin, PolicyRequest, resolve_version};
use ebb_documents::load::{self, Document, DocumentVars, NoFiles};
use ebb_documents::model::{ConnectionDoc, Dialect, PluginDoc, ResourceDoc, SandboxDoc, SandboxKind};
use ebb_documents::{Diagnostic, Diagnostics, Plan, cluster_name};
use ebb_engine::{RequestSender, Timestamp};
use ebb_protocol::{ErrorCode, HistoryChange, InstanceRef, LifecycleData, SecretReader, TargetKey, WebhookKeys};
use ebb_store::{HistoryItem, PendingCreation, PluginItem, Store, StoreError, StoreResult, TargetHead};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};

use crate::env::PLUGIN_WEIGHT;
use crate::instance::changes::PinnedVersions;
use crate::instance::history;
use crate::run::credential::{self, secret_problem};
use crate::sealed_values;
use crate::{CompiledPlan, Env, FlowError, FlowResult, InstanceCache, Rejection, RelayClient, RequestError, offload};

pub(crate) fn no_document() -> RequestError {
    let text = "`data.document` is missing; expected the document of the target as text";
    RequestError::refused(ErrorCode::MissingField, text)
}

/// A compiled document with its plan as JSON and the plugins in use.
pub(crate) struct CompiledDocument {
    pub(crate) loaded: Arc<CompiledPlan>,
    pub(crate) json: String,
    pub(crate) plugins: Vec<String>,
    /// The document, if it may be stored.
    pub(crate) text: Option<String>,
}

impl CompiledDocument {
    /// Returns the entry of the history for a document that waits at `target`.
    pub(crate) fn accepted(
        &self,
        env: &Env,
        target: &TargetHead,
        event: &LifecycleData,
        by: Option<String>,
    ) -> HistoryItem {
        let now = target.change_time(env.now());
        let head = TargetHead::new(&event.kind, &event.name, &event.uid, now);
        let head = TargetHead { generation: event.generation, changed_by: by, ..head };
        let entry = history::entry(env, &head, HistoryChange::Accepted, now);
        history::applied(entry, (self.text.as_deref(), &self.loaded.plan))
    }

    /// Returns the creation of an instance that `source` and `owner` have requested, and that waits since `since` if the
    /// name is taken.
    pub(crate) fn pending(
        &self,
        event: &LifecycleData,
        (source, owner): (Option<&str>, Option<String>),
        since: Timestamp,
    ) -> PendingCreation {
        PendingCreation {
            uid: event.uid.clone(),
            source: source.map(str::to_owned),
            owner,
            labels: TargetHead::stored_labels(&self.loaded.plan.target.labels),
            generation: event.generation,
            first_generation: None,
            plan: self.loaded.digest.clone(),
            routing_key: event.routing_key.clone(),
            plugins: self.plugins.clone(),
            ttl_ms: self.loaded.plan.target.ttl_ms,
            since,
        }
    }
}

/// Compiles the document of a creation with the newest published plugins.
pub(crate) async fn compile(
    env: &Env,
    plugins: &Store,
    event: &LifecycleData,
    sender: RequestSender<'_>,
) -> Result<CompiledDocument, RequestError> {
    let plan = compile_event(env, plugins, event, (PinnedVersions::Latest, sender)).await?;
    let text = storable_text(&plan, event);
    Ok(load_plan(plan, text).await?)
}

/// Returns the document that was compiled to a plan, if it may be stored. One with a literal of a sensitive param may not.
pub(crate) fn storable_text(plan: &Plan, event: &LifecycleData) -> Option<String> {
    event.document.clone().filter(|_| sealed_values::sealed_param(plan).is_none())
}

/// Compiles the document of a creation or update. The documents of a source are stored until they are applied, so they
/// cannot have a literal for a sensitive param.
pub(crate) async fn compile_event(
    env: &Env,
    plugins: &Store,
    event: &LifecycleData,
    (versions, sender): (PinnedVersions<'_>, RequestSender<'_>),
) -> Result<Plan, RequestError> {
    let document = event.document.as_ref().ok_or_else(no_document)?;
    let (plan, _) = compile_document(plugins, compiler_tools(env), event.instance(), document, versions).await?;
    match sealed_values::sealed_param(&plan) {
        Some((resource, param)) if matches!(sender, RequestSender::Source(_)) => {
            let text = format!(
                "the document of a source cannot have a value for the sensitive param `{param}` of resource `{resource}`, \
                 because it is stored; give `{{secret: NAME, key: KEY}}`, or wire an output: `${{resources.R.outputs.O}}`"
            );
            Err(RequestError::refused(ErrorCode::InvalidField, text))
        }
        _ => Ok(plan),
    }
}

/// Returns a compiled plan with its JSON and the plugins in use. `text` is that of [`storable_text`].
pub(crate) async fn load_plan(plan: Plan, text: Option<String>) -> FlowResult<CompiledDocument> {
    let names = plan.resources.values().flat_map(|resource| [Some(&resource.plugin), resource.repaired_by.as_ref()]);
    let names: BTreeSet<&String> = names.flatten().collect();
    let plugins: Vec<String> = names.into_iter().cloned().collect();
    let loaded = offload(move || {
        let (digest, json) = plan.encoded();
        Ok::<_, FlowError>((Arc::new(CompiledPlan::of(plan, &digest)?), json))
    });
    let (loaded, json) = loaded.await??;
    Ok(CompiledDocument { loaded, json, plugins, text })
}

/// What a compilation found beside the plan.
#[derive(Debug)]
pub struct DocumentNotes {
    pub warnings: Vec<Diagnostic>,
    /// The requests of the units, which the policies of their clusters can refuse.
    pub requests: Vec<PolicyRequest>,
}

/// What compiling needs besides documents: the memory for parsed plugins, the keys that encrypt literals of sensitive
/// params, the secrets that connections name, and the clusters, of which some open the outputs of Signadot plugins.
pub type CompilerTools<'a> = (&'a InstanceCache, &'a WebhookKeys, &'a dyn SecretReader, Option<&'a dyn RelayClient>);

pub fn compiler_tools(env: &Env) -> CompilerTools<'_> {
    (&env.cache, &env.settings.unit_keys, env.settings.secrets.as_ref(), Some(env.relay.as_ref()))
}

/// Compiles the document of an instance with the published plugins. `versions` are used for resources that do not name a
/// version. Returns the plan and what else was found. An invalid document is rejected with its errors.
pub async fn compile_document(
    plugins: &Store,
    (cache, keys, secrets, relay): CompilerTools<'_>,
    instance: InstanceRef<'_>,
    document: &str,
    versions: PinnedVersions<'_>,
) -> Result<(Plan, DocumentNotes), RequestError> {
    let TargetKey { kind, name } = instance.target;
    let text = document.to_owned();
    let loaded = offload(move || load::document("document", &text, &NoFiles, &DocumentVars::none())).await?;
    let mut sandbox = match loaded? {
        Document::Sandbox(sandbox) => sandbox,
        Document::RouteGroup(group) => {
            compile::check_route_group(&group)?;
            group.target
        }
        other @ (Document::Plugin(_) | Document::Source(_) | Document::Connection(_) | Document::Subscription(_)) => {
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
        return Err(Diagnostics::from(Diagnostic::error("other-kind", &sandbox.source, Some(own.at), text)).into());
    }
    versions.apply(&mut sandbox);
    let (found, errors) = find_plugins(plugins, (cache, relay), &sandbox, versions).await?;
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
        let compiled = compile::plan(&sandbox, &bound);
        (sandbox, compiled)
    });
    let (sandbox, compiled) = compiled.await?;
    let (mut plan, warnings, requests) = compiled?;
    bind_connections((plugins, Some((secrets, keys))), &sandbox, versions, &mut plan).await?;
    if let Some(relay) = relay {
        pin_clusters(relay, &mut plan).await?;
    }
    sealed_values::seal_params(keys, &instance.key(), &mut plan, versions.current())?;
    Ok((plan, DocumentNotes { warnings, requests }))
}

/// Freezes the UIDs of the clusters in which the units run.
async fn pin_clusters(relay: &dyn RelayClient, plan: &mut Plan) -> StoreResult<()> {
    let clusters: Vec<Option<String>> = plan.unit_clusters().into_iter().map(|name| name.map(str::to_owned)).collect();
    for cluster in clusters {
        if let Ok(Some(uid)) = relay.cluster_uid(cluster.as_deref()).await? {
            plan.cluster_uids.insert(cluster_name(cluster.as_deref()).to_owned(), uid);
        }
    }
    Ok(())
}

/// Freezes the origins of the connections that the plan uses. With `secrets` and the keys of units, rejects a plan
/// whose connections lack a secret, or have one with a value that their requests cannot have.
pub(crate) async fn bind_connections(
    (store, secrets): (&Store, Option<(&dyn SecretReader, &WebhookKeys)>),
    sandbox: &SandboxDoc,
    versions: PinnedVersions<'_>,
    plan: &mut Plan,
) -> Result<(), RequestError> {
    let mut known = BTreeMap::new();
    for name in compile::connection::names(plan) {
        if let Ok(connection) = credential::open(store, &name).await? {
            known.insert(name, connection);
        }
    }
    let problem =
        |connection: &ConnectionDoc| secrets.and_then(|(secrets, keys)| secret_problem(secrets, keys, connection));
    Ok(compile::connection::bind(plan, sandbox, (&known, problem), versions.current())?)
}

struct PublishedPlugin {
    plugin: Arc<PluginDoc>,
    version: semver::Version,
    digest: String,
}

type ResourcePlugins = BTreeMap<String, Arc<PublishedPlugin>>;

const PLUGIN_READS: usize = 16;

type PluginVersion<'a> = (&'a str, &'a semver::Version);

fn plugin_error(sandbox: &SandboxDoc, resource: &ResourceDoc, code: &'static str, text: String) -> Diagnostic {
    Diagnostic::error(code, &sandbox.source, Some(resource.plugin.at), text)
}

/// Finds the published plugin of each resource, or the withdrawn one that an active target has `pinned`. Parses each
/// version once per function instance.
///
/// A version that a resource names exactly is read. Other resources need the list of versions. Both show a withdrawal, so
/// a version in memory is not used after it.
async fn find_plugins(
    plugins: &Store,
    (cache, relay): (&InstanceCache, Option<&dyn RelayClient>),
    sandbox: &SandboxDoc,
    pinned: PinnedVersions<'_>,
) -> Result<(ResourcePlugins, Diagnostics), RequestError> {
    let mut exact = read_exact(plugins, sandbox).await?;
    let has_usable = |resource: &&ResourceDoc| {
        let Some(at) = exact_version(resource) else { return false };
        let is_pinned = || pinned.pinned_versions(&resource.name.value, at.0).contains(at.1);
        exact.get(&at).is_some_and(|item| item.withdrawn.is_none() || is_pinned())
    };
    let (named, others): (Vec<&ResourceDoc>, Vec<&ResourceDoc>) = sandbox.resources.iter().partition(has_usable);
    let versions = list_versions(plugins, &others).await?;
    let (mut wanted, mut errors) = choose_versions(plugins, sandbox, &others, &versions).await?;
    for resource in named {
        if let Some(at) = exact_version(resource) {
            wanted.entry(at).or_default().push(resource);
        }
    }
    let loads = wanted.into_iter().filter_map(|(at, resources)| {
        let stored = exact.remove(&at);
        let listed = versions.get(at.0).and_then(|versions| versions.digests.get(at.1));
        let user = (sandbox, *resources.first()?);
        Some(load_plugin((plugins, cache, relay), at, (stored, listed), user).map(|loaded| (resources, loaded)).boxed())
    });
    let loads: Vec<_> = loads.collect();
    let mut loads = futures::stream::iter(loads).buffered(PLUGIN_READS);
    let mut found = ResourcePlugins::new();
    while let Some((resources, loaded)) = loads.next().await {
        match loaded {
            Ok(plugin) => {
                let plugin = Arc::new(plugin);
                let names = resources.iter().map(|resource| resource.name.value.clone());
                found.extend(names.map(|name| (name, Arc::clone(&plugin))));
            }
            Err(RequestError::Rejected(Rejection::Document(broken))) => errors.extend(broken),
            Err(error) => return Err(error),
        }
    }
    Ok((found, errors))
}

/// Returns the versions of resources that name none exactly, or one that is not usable, and the errors of resources
/// without a usable version.
async fn choose_versions<'a>(
    plugins: &Store,
    sandbox: &SandboxDoc,
    resources: &[&'a ResourceDoc],
    versions: &'a BTreeMap<&'a str, PluginVersions>,
) -> StoreResult<(BTreeMap<PluginVersion<'a>, Vec<&'a ResourceDoc>>, Diagnostics)> {
    let mut errors = Diagnostics::default();
    let mut published: Option<Vec<PluginItem>> = None;
    let mut chosen: BTreeMap<PluginVersion<'_>, Vec<&ResourceDoc>> = BTreeMap::new();
    for &resource in resources {
        let name = resource.plugin.value.as_str();
        let Some(versions) = versions.get(name) else { continue };
        let PluginVersions { published: usable, withdrawn, .. } = versions;
        if let Some(version) = resolve_version(resource.version.as_ref(), usable) {
            chosen.entry((name, version)).or_default().push(resource);
            continue;
        }
        if usable.is_empty() && compile::is_built_in(resource) {
            continue;
        }
        if usable.is_empty() && withdrawn.is_empty() {
            if published.is_none() {
                published = Some(plugins.list_plugins().await?);
            }
            let names = published.iter().flatten().map(|item| item.name.as_str());
            let publish = "publish it: ebb apply -f FILE";
            let help = match ebb_documents::cel::nearest(name, names) {
                Some(near) => format!("did you mean `{near}`? If not, {publish}"),
                None => publish.to_owned(),
            };
            let text = format!("no plugin {name:?} is published");
            errors.push(plugin_error(sandbox, resource, "unknown-plugin", text).help(help));
        } else {
            let (code, text) = versions.none_for(resource);
            errors.push(plugin_error(sandbox, resource, code, text).help(versions.help()));
        }
    }
    Ok((chosen, errors))
}

fn parsed_key((name, version): PluginVersion<'_>, digest: &str) -> String {
    format!("{name}@{version} {digest}")
}

/// Returns a version of a plugin, from memory if it was parsed before. It can be `stored`, or only its digest is `listed`.
/// A `resource` of `sandbox` uses it. The units of a Signadot plugin run in the cluster of the target, which may open their
/// outputs.
///
/// # Errors
/// Returns a rejection with the errors of the document, or because there is none.
async fn load_plugin(
    (plugins, cache, relay): (&Store, &InstanceCache, Option<&dyn RelayClient>),
    at: PluginVersion<'_>,
    (stored, listed): (Option<PluginItem>, Option<&String>),
    (sandbox, resource): (&SandboxDoc, &ResourceDoc),
) -> Result<PublishedPlugin, RequestError> {
    let digest = stored.as_ref().map(|item| &item.digest).or(listed);
    let parsed = digest.and_then(|digest| Some((cache.plugins.get(&parsed_key(at, digest))?, digest.clone())));
    let (mut plugin, digest) = match parsed {
        Some(parsed) => parsed,
        None => {
            let stored = match stored {
                None => plugins.get_plugin(at.0, &at.1.to_string()).await?,
                stored => stored,
            };
            let named = format!("{}@{}", at.0, at.1);
            let broken = |code, text| Diagnostics::from(plugin_error(sandbox, resource, code, text));
            let Some(PluginItem { document, digest, .. }) = stored else {
                return Err(broken("unknown-version", format!("plugin {named} is not in the table")).into());
            };
            let (source, length) = (named.clone(), document.len());
            let mut list =
                offload(move || load::plugins(&source, &document, &NoFiles, &DocumentVars::none())).await??;
            if list.len() != 1 {
                return Err(broken("broken-plugin", format!("{named} is not one plugin")).into());
            }
            let plugin = Arc::new(list.remove(0));
            cache.plugins.put(&parsed_key(at, &digest), Arc::clone(&plugin), length.saturating_mul(PLUGIN_WEIGHT));
            (plugin, digest)
        }
    };
    if let Some(relay) = relay.filter(|_| plugin.dialect == Dialect::Signadot)
        && relay.opens_signadot_outputs(sandbox.cluster.as_deref()).await?
    {
        plugin = Arc::new(plugin.with_open_outputs());
    }
    Ok(PublishedPlugin { plugin, version: at.1.clone(), digest })
}

/// Returns the plugin and version of a resource that names one exactly.
fn exact_version(resource: &ResourceDoc) -> Option<PluginVersion<'_>> {
    let range = resource.version.as_ref().filter(|_| resource.collection.is_none())?;
    Some((resource.plugin.value.as_str(), range.exact()?))
}

/// Reads the versions that resources name exactly. Those that do not exist are left out.
async fn read_exact<'a>(
    plugins: &Store,
    sandbox: &'a SandboxDoc,
) -> StoreResult<BTreeMap<PluginVersion<'a>, PluginItem>> {
    let named: BTreeSet<PluginVersion<'_>> = sandbox.resources.iter().filter_map(exact_version).collect();
    let reads = named.into_iter().map(|at| {
        async move {
            let item = plugins.get_plugin(at.0, &at.1.to_string()).await?;
            Ok::<_, StoreError>(item.map(|item| (at, item)))
        }
        .boxed()
    });
    let reads: Vec<_> = reads.collect();
    let read: Vec<_> = futures::stream::iter(reads).buffer_unordered(PLUGIN_READS).try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}

struct PluginVersions {
    published: Vec<semver::Version>,
    withdrawn: Vec<semver::Version>,
    digests: BTreeMap<semver::Version, String>,
}

impl PluginVersions {
    /// Returns the code and the text of the error that a resource has no usable version.
    fn none_for(&self, resource: &ResourceDoc) -> (&'static str, String) {
        let name = &resource.plugin.value;
        match &resource.version {
            Some(version) if self.withdrawn.iter().any(|withdrawn| version.allows(withdrawn)) => {
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
            [] => "publish another version: ebb apply -f FILE".to_owned(),
            published => format!("published: {}", version_list(published)),
        }
    }
}

fn version_list(versions: &[semver::Version]) -> String {
    versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

async fn list_versions<'a>(
    plugins: &Store,
    resources: &[&'a ResourceDoc],
) -> StoreResult<BTreeMap<&'a str, PluginVersions>> {
    let published = resources.iter().copied().filter(|resource| resource.collection.is_none());
    let names: BTreeSet<&'a str> = published.map(|resource| resource.plugin.value.as_str()).collect();
    let lists = names.into_iter().map(|name| {
        async move {
            let listed = plugins.list_versions(name).await?;
            let digests = listed.iter().filter_map(|item| Some((item.version.parse().ok()?, item.digest.clone())));
            let digests = digests.collect();
            let (withdrawn, published): (Vec<_>, Vec<_>) = listed.iter().partition(|item| item.withdrawn.is_some());
            let parsed =
                |items: Vec<&PluginItem>| items.into_iter().filter_map(|item| item.version.parse().ok()).collect();
            Ok((name, PluginVersions { published: parsed(published), withdrawn: parsed(withdrawn), digests }))
        }
        .boxed()
    });
    let lists: Vec<_> = lists.collect();
    futures::stream::iter(lists).buffer_unordered(PLUGIN_READS).try_collect().await
}
