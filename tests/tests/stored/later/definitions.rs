//! Plugins, and what is known of clusters.

use anyhow::{Context as _, ensure};
use ebb_engine::TargetPhase;
use ebb_flow::api::plugins;
use ebb_store::{ReadPlugins as _, Rounds as _, Silences as _};
use ebb_wire::cloudevents::Asked;
use ebb_wire::id;

use super::{Later, same};
use crate::documents;
use crate::world::FAR;

/// That all of it is there, and used.
pub(super) async fn known(later: &Later<'_>) -> anyhow::Result<()> {
    let (world, store) = (&later.world, later.world.store.as_ref());
    let listed = store.list_plugins().await?;
    let names = listed.iter().map(|plugin| format!("{}@{}", plugin.name, plugin.version));
    same("plugins", names, &["scripts@1.0.0", "stored@1.0.0", "wide@1.0.0"].map(str::to_owned))?;
    for plugin in listed {
        let found = store.get_plugin(&plugin.name, &plugin.version).await?.context(plugin.name.clone())?;
        ensure!(id::digest(found.document.as_bytes()) == plugin.digest, "{}: another document", plugin.name);
    }
    // Bound by what was stored, and not made anew.
    let created = world.lifecycle(Asked::Created, "new", "new-1", &documents::sandbox("new")).await?;
    ensure!(created.is_ok(), "{created:?}");
    world.until("new", TargetPhase::Ready).await?;
    ensure!(plugins::withdraw(store, "wide", "1.0.0", world.env.now()).await?, "wide@1.0.0 is not published");
    ensure!(store.read_rounds().await?.contains_key(FAR), "rounds: that of {FAR} is forgotten");
    let silence = store.read_silences().await?;
    ensure!(silence.get(FAR).is_some_and(|noted| noted.why == "it polls"), "rounds: {silence:?}");
    Ok(())
}
