//! Stamps of pages of targets: what the heads of a target and its last run say. A page with the same stamp shows the same,
//! apart from starts, progress and heartbeats of running units. The browser asks for these without its stamp.
//!
//! A stamp has the form `TARGET-RUN`. Its part for a closed run is [`CLOSED`], and a closed run changes only with its target,
//! so a poll of a target at rest reads its head only.

use std::sync::Arc;

use ebb_console::assets;
use ebb_engine::{HeadState, RunPhase, TargetPhase};
use ebb_protocol::id::{RunId, TargetKey, short_digest};
use ebb_store::{RunHead, TargetHead};

use super::sessions::ConsoleSession;
use crate::{HttpResult, ReadTargets};

/// The characters of each part.
const PART: usize = 24;
const CLOSED: &str = "closed";

pub(super) struct TargetStamp {
    /// The stamp for one session.
    pub(super) text: String,
    /// The same for all sessions that see the same.
    pub(super) state: String,
}

/// Returns the stamp of the page of a target for a session, from heads that were read up to a second ago. `known` is the
/// stamp that the browser has. Returns `None` without a target that the caller may read.
pub(super) async fn of_target(
    session: &ConsoleSession,
    key: TargetKey<'_>,
    known: Option<&str>,
) -> HttpResult<Option<TargetStamp>> {
    let (server, memory, now) = (&session.server, &session.memory, session.server.env.steady());
    let access = session.permitted::<ReadTargets>()?.access();
    let head = async { HttpResult::Ok(server.env.store.peek_target(key).await?.map(Arc::new)) };
    let head = memory.heads.get(now, key.to_string(), head).await?;
    let Some(head) = head.filter(|head| access.covers(head.owner.as_deref(), &head.labels)) else { return Ok(None) };
    let target = target_part(session, &head);
    // Of those who may read the target, some may not know the instance that waits for its name.
    let covers_waiting = head.waiting.as_ref().is_some_and(|one| access.covers(one.owner.as_deref(), &one.labels));
    let stamp = |run: &str| {
        let state = format!("{key} {} {} {covers_waiting} {run}", head.uid, head.version);
        Some(TargetStamp { text: format!("{target}-{run}"), state })
    };
    let is_known = known == Some(format!("{target}-{CLOSED}").as_str());
    let Some(run) = head.hook.map(|hook| head.run(hook)).filter(|_| !is_known) else { return Ok(stamp(CLOSED)) };
    let present = async { HttpResult::Ok(server.env.store.peek_run(&run).await?.map(Arc::new)) };
    let present = memory.runs.get(now, run.to_string(), present).await?;
    Ok(stamp(&run_part(&head, &run, present.as_deref())))
}

/// The page also has forms of the session, and the names of the files of this version.
fn target_part(session: &ConsoleSession, head: &TargetHead) -> String {
    let version = head.version.to_string();
    let id = session.id.digest();
    let parts = ["console target", &head.kind, &head.name, &head.uid, &version, session.viewer().name, &id];
    let files = assets::all().iter().map(|asset| asset.path.as_str());
    short_digest(&parts.into_iter().chain(files).collect::<Vec<&str>>(), PART)
}

fn run_part(target: &TargetHead, run: &RunId, present: Option<&RunHead>) -> String {
    // The head may have been read before the start of the run.
    let moves = matches!(target.phase, TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping);
    let is_closed = present.is_none_or(|present| present.head.phase == RunPhase::Closed);
    if is_closed && !moves {
        return CLOSED.to_owned();
    }
    // Sweeps change the due time and the version, which no page shows.
    let shown = present.map(|present| HeadState { due: None, version: 0, ..present.head.clone() });
    let shown = format!("{shown:?}");
    short_digest(&["console run", run.as_str(), &shown], PART)
}
