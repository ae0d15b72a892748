//! Which living targets hold a plugin version.
//!
//! Plans are frozen, so a living target does not need the published version any more. The answer protects people from
//! withdrawing what they still use; no rule of the state protocol depends on it.

use ebb_engine::{Millis, TargetPhase, Timestamp};
use ebb_spec::plan::Plan;
use ebb_store::{PluginHolder, TargetHead};
use ebb_wire::id;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};

use crate::env::Env;
use crate::error::FlowError;

/// Resources that an entry names; with more it would be larger than one write unit.
const RESOURCES: usize = 8;
/// Holders that are listed.
pub const LISTED: usize = 100;
/// Entries that are compared with their targets at once.
const AT_ONCE: usize = 16;
/// An entry this young may belong to a target that is about to be written.
const YOUNG: Millis = Millis(3_600_000);

/// Notes that a life, which is about to begin or to wait for its name, holds the plugins of its plan.
///
/// # Errors
/// The store's.
pub async fn hold(
    env: &Env,
    (kind, name, uid): (&str, &str, &str),
    plan: &Plan,
    since: Timestamp,
) -> Result<(), FlowError> {
    let mut held: std::collections::BTreeMap<&str, Vec<String>> = std::collections::BTreeMap::new();
    for (resource, bound) in &plan.resources {
        let resources = held.entry(&bound.plugin).or_default();
        if resources.len() < RESOURCES {
            resources.push(resource.clone());
        }
    }
    let holders: Vec<(String, PluginHolder)> = held
        .into_iter()
        .map(|(plugin, resources)| {
            let holder = PluginHolder {
                kind: kind.to_owned(),
                name: name.to_owned(),
                uid: uid.to_owned(),
                resources,
                cluster: plan.target.cluster.clone(),
                since,
            };
            (plugin.to_owned(), holder)
        })
        .collect();
    Ok(env.store.hold_plugins(&holders).await?)
}

/// Removes the entries of a target that is gone. Entries that stay after a failure are removed by [`of`].
pub async fn release(env: &Env, target: &TargetHead) {
    release_life(env, &target.kind, &target.name, &target.uid, &target.plugins).await;
}

/// Removes the entries of one life.
pub async fn release_life(env: &Env, kind: &str, name: &str, uid: &str, plugins: &[String]) {
    let life = id::life(kind, name, uid);
    if let Err(error) = env.store.release_plugins(&life, plugins).await {
        tracing::warn!(%error, life, "the plugins of a gone target are released when they are asked about");
    }
}

/// The living holders of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// At most [`LISTED`].
    pub list: Vec<PluginHolder>,
    /// True if there are more entries; those that were not read may be of lives that are over.
    pub more: bool,
}

/// Returns the living holders of a version, `NAME@VERSION`. Removes the entries of lives that are over.
///
/// # Errors
/// The store's.
pub async fn of(env: &Env, plugin: &str) -> Result<Holders, FlowError> {
    let mut found = Holders::default();
    let mut after: Option<String> = None;
    loop {
        let page = env.store.list_holders(plugin, after.as_deref(), LISTED).await?;
        let is_last = page.len() < LISTED;
        after = page.last().map(life);
        let looks: Vec<_> = page.into_iter().map(|holder| look(env, holder).boxed()).collect();
        let looked: Vec<(PluginHolder, bool)> =
            futures::stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
        for (holder, lives) in looked {
            if lives {
                found.list.push(holder);
            } else if holder.since.plus(YOUNG) < env.now() {
                let PluginHolder { kind, name, uid, .. } = &holder;
                release_life(env, kind, name, uid, &[plugin.to_owned()]).await;
            }
        }
        if found.list.len() >= LISTED || is_last {
            found.more = found.list.len() > LISTED || !is_last;
            found.list.truncate(LISTED);
            return Ok(found);
        }
    }
}

/// Returns a holder and whether it lives.
async fn look(env: &Env, holder: PluginHolder) -> Result<(PluginHolder, bool), FlowError> {
    let target = env.store.read_target(&holder.kind, &holder.name).await?;
    let lives = target.is_some_and(|target| holds(&target, &holder.uid));
    Ok((holder, lives))
}

fn life(holder: &PluginHolder) -> String {
    id::life(&holder.kind, &holder.name, &holder.uid)
}

/// Returns whether the life of `uid` lasts, or waits for the name.
fn holds(target: &TargetHead, uid: &str) -> bool {
    let lives = target.uid == uid && target.phase != TargetPhase::Gone;
    lives || target.waiting.as_ref().is_some_and(|waiting| waiting.uid == uid)
}
