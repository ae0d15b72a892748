//! Repairs the teardown of a stuck target with another version of a plugin or a corrected document, then retries it.
//!
//! 1. Compile the teardown units of the version, or the own ones of the document, into the plan of the target.
//! 2. Store the plan and its digest in the target in one transaction, as an update does (rule UpdateInOneTransaction).
//! 3. Store the digest in the head of the run. A function instance with the former plan finds it there.
//! 4. Retry the failed units.
//!
//! After a crash in between, the target is stuck with the repaired plan. A repetition of the request continues.

use ebb_documents::compile::{self, BoundPlugin, PlanRepair, RepairError, RepairedUnit};
use ebb_documents::{DocumentVars, NoFiles, SandboxDoc, UnitPlan, load};
use ebb_protocol::{ErrorCode, HistoryChange, RetryResponse, TargetKey, TargetPhase, UndoChange};
use ebb_store::TargetHead;

use crate::advance::retry;
use crate::instance::changes::{self, PinnedVersions};
use crate::instance::target_document::{bind_connections, compile_document, compiler_tools, load_plan};
use crate::{Decision, Env, FlowError, RequestError, missing_instance, offload};

/// The decision whether a repair is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairMode {
    Make,
    /// The changes are returned only.
    Preview,
}

/// What has the corrected undos.
#[derive(Clone, Copy, Debug)]
pub enum RepairSource<'a> {
    /// A published version `NAME@VERSION`, for the resources of the plugin.
    Plugin(&'a str),
    /// A document of the target, for its own units.
    Document(&'a str),
}

impl<'a> RepairSource<'a> {
    /// Returns the source that a request names.
    ///
    /// # Errors
    /// Returns a rejection if it names both.
    pub fn of(plugin: Option<&'a str>, document: Option<&'a str>) -> Result<Option<Self>, RequestError> {
        match (plugin, document) {
            (Some(_), Some(_)) => {
                let text = "`plugin` and `document` repair different units: name one of them";
                Err(RequestError::refused(ErrorCode::InvalidField, text))
            }
            (plugin, document) => Ok(plugin.map(Self::Plugin).or(document.map(Self::Document))),
        }
    }

    fn name(self) -> &'a str {
        match self {
            Self::Plugin(plugin) => plugin,
            Self::Document(_) => "the corrected document",
        }
    }
}

/// Replaces the teardown units that `source` corrects. Then retries the failed units. It repairs any instance, or only that
/// with the identity `uid`. `by` is the verified name of the caller.
///
/// # Errors
/// Returns a rejection if the target is not stuck, or if the source cannot repair it.
pub async fn repair(
    env: &Env,
    (key, uid): (TargetKey<'_>, Option<&str>),
    (source, by): (RepairSource<'_>, Option<&str>),
    mode: RepairMode,
) -> Result<RetryResponse, RequestError> {
    for _ in 0..crate::ATTEMPTS {
        let target = env.instance((key, uid)).await?.ok_or_else(|| missing_instance(key, uid))?;
        let Some(hook) = target.hook.filter(|_| target.phase == TargetPhase::Stuck) else {
            let text = format!("{key} is not stuck; only the teardown of a stuck target can be repaired");
            return Err(RequestError::refused(ErrorCode::NotStuck, text));
        };
        let PlanRepair { plan, changes, ignored } = match source {
            RepairSource::Plugin(plugin) => repaired(env, &target, plugin).await?,
            RepairSource::Document(text) => corrected(env, &target, text).await?,
        };
        let changes: Vec<UndoChange> = changes.iter().map(|change| shown(change, source.name())).collect();
        if mode == RepairMode::Preview {
            let (run, uid) = (target.run(hook).to_string(), Some(target.uid));
            return Ok(RetryResponse { uid, run, units: Vec::new(), changes, ignored, kept: Vec::new() });
        }
        let repaired = load_plan(plan, None).await?;
        if repaired.loaded.digest != target.plan {
            let transition = target.update(|after| {
                after.plan = repaired.loaded.digest.clone();
                after.plugins = repaired.plugins;
            });
            let instance = target.instance_key();
            if !env.store.begin_instance(&transition, &instance, repaired.json.as_bytes(), env.now()).await? {
                continue;
            }
        }
        let run = target.run(hook);
        env.store.set_run_plan(&run, &repaired.loaded.digest).await?;
        env.forget_run(&run);
        let decision = Decision { change: HistoryChange::Repaired, by, reason: Some(source.name()) };
        let retried = retry::retry(env, (key, Some(&target.uid)), Some(decision)).await??;
        return Ok(RetryResponse { changes, ignored, ..retried });
    }
    Err(FlowError::Contended(key.to_string()).into())
}

/// Returns the plan of a target with the teardown of `plugin`.
async fn repaired(env: &Env, target: &TargetHead, plugin: &str) -> Result<PlanRepair, RequestError> {
    let unknown = |text: String| RequestError::refused(ErrorCode::UnknownVersion, text);
    let refused = |text: String| RequestError::refused(ErrorCode::NotRepairable, text);
    let exact = plugin.split_once('@').and_then(|(name, text)| Some((name, text.parse::<semver::Version>().ok()?)));
    let Some((name, version)) = exact else {
        return Err(unknown(format!(
            "expected `NAME@VERSION` with an exact version such as `db@1.0.1`, got {plugin:?}"
        )));
    };
    let item = env.store.get_plugin(name, &version.to_string()).await?;
    let Some(item) = item.filter(|item| item.withdrawn.is_none()) else {
        return Err(unknown(format!(
            "plugin {plugin} is not published, or it was withdrawn; publish it: ebb apply -f FILE"
        )));
    };
    let current = env.plan_of(target).await?;
    let (stored, frozen) = (plugin.to_owned(), current.clone());
    let made = offload(move || {
        let documents = load::plugins(&stored, &item.document, &NoFiles, &DocumentVars::none());
        let documents = documents.map_err(|errors| RepairError::Invalid { plugin: stored, errors })?;
        let Some(plugin) = documents.first() else { return Err(RepairError::Unused(item.name)) };
        compile::repair(&frozen.plan, &BoundPlugin { plugin, version: &version, digest: &item.digest })
    });
    let mut made = match made.await? {
        Ok(made) => made,
        Err(error @ RepairError::Unused(_)) => {
            return Err(RequestError::refused(ErrorCode::PluginUnused, error.to_string()));
        }
        Err(error) => return Err(refused(error.to_string())),
    };
    // The document of the target is not stored, so errors have the positions of the plugin.
    let versions = PinnedVersions::OfPlan(&current.plan);
    match bind_connections((&env.store, None), &SandboxDoc::default(), versions, &mut made.plan).await {
        Ok(()) => {
            // The changes have the origins of the connections, too.
            let bound: Vec<_> = made.plan.hooks.iter().flat_map(|hook| &hook.units).collect();
            for change in &mut made.changes {
                let is_same = |unit: &&&UnitPlan| unit.key == change.after.key && unit.undoes == change.after.undoes;
                if let Some(unit) = bound.iter().find(is_same) {
                    change.after.action.clone_from(&unit.action);
                }
            }
            Ok(made)
        }
        Err(RequestError::Rejected(errors)) => Err(refused(errors.to_string())),
        Err(error) => Err(error),
    }
}

/// Returns the plan of a target with the own undos of a document.
async fn corrected(env: &Env, target: &TargetHead, text: &str) -> Result<PlanRepair, RequestError> {
    let current = env.plan_of(target).await?;
    let (instance, versions) = (target.target_key().instance(&target.uid), PinnedVersions::OfPlan(&current.plan));
    let (wanted, _) = compile_document(&env.store, compiler_tools(env), instance, text, versions).await?;
    let made = offload(move || compile::repair_own(&current.plan, &wanted)).await?;
    made.map_err(|error| RequestError::refused(ErrorCode::NotRepairable, error.to_string()))
}

fn shown(change: &RepairedUnit, plugin: &str) -> UndoChange {
    let (unit, from, to) = (change.after.key.clone(), change.from.clone(), plugin.to_owned());
    UndoChange { unit, from, to, changes: changes::of_unit(&change.before, &change.after) }
}
