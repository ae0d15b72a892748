//! Which living targets hold a plugin version.
//!
//! Plans are frozen, so a living target does not need the published version any more. The answer protects people from
//! withdrawing what they still use; no rule of the state protocol depends on it.

use ebb_engine::{Millis, TargetPhase, Timestamp};
use ebb_spec::plan::Plan;
use ebb_store::{HolderEntry, PluginHolder, StoreError, TargetHead};
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
    /// Reasons why entries or their targets cannot be read. Each may hold the version.
    pub damaged: Vec<String>,
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
        after = page.last().map(|entry| entry.life.clone());
        let looks: Vec<_> = page.into_iter().map(|entry| look(env, entry).boxed()).collect();
        let looked: Vec<Looked> = futures::stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
        for one in looked {
            match one {
                Looked::Living(holder) => found.list.push(holder),
                Looked::Over(holder) if holder.since.plus(YOUNG) < env.now() => {
                    let PluginHolder { kind, name, uid, .. } = &holder;
                    release_life(env, kind, name, uid, &[plugin.to_owned()]).await;
                }
                Looked::Over(_) => {}
                Looked::Damaged(reason) => {
                    tracing::error!(plugin, reason, "a holder cannot be read");
                    found.damaged.push(reason);
                }
            }
        }
        if found.list.len() >= LISTED || is_last {
            found.more = found.list.len() > LISTED || !is_last;
            found.list.truncate(LISTED);
            return Ok(found);
        }
    }
}

/// An entry, compared with its target.
enum Looked {
    /// The life lasts, or waits for its name.
    Living(PluginHolder),
    /// The life is over.
    Over(PluginHolder),
    /// The entry or its target cannot be read, for this reason.
    Damaged(String),
}

async fn look(env: &Env, entry: HolderEntry) -> Result<Looked, FlowError> {
    let HolderEntry { life, holder } = entry;
    let holder = match holder {
        Ok(holder) => holder,
        Err(reason) => return Ok(Looked::Damaged(format!("the entry of life {life}: {reason}"))),
    };
    let target = match env.store.read_target(&holder.kind, &holder.name).await {
        Err(StoreError::Broken { reason, .. }) => {
            return Ok(Looked::Damaged(format!("{}/{}: {reason}", holder.kind, holder.name)));
        }
        target => target?,
    };
    let lives = target.is_some_and(|target| holds(&target, &holder.uid));
    Ok(if lives { Looked::Living(holder) } else { Looked::Over(holder) })
}

/// Returns whether the life of `uid` lasts, or waits for the name.
fn holds(target: &TargetHead, uid: &str) -> bool {
    let lives = target.uid == uid && target.phase != TargetPhase::Gone;
    lives || target.waiting.as_ref().is_some_and(|waiting| waiting.uid == uid)
}
