//! Notes the end of the sweep of an item, and makes an item due later: one that failed, that changes continuously, or
//! whose sweep was dropped.

use ebb_engine::{Millis, RunEvent, accept};
use ebb_protocol::id::{RunId, TargetKey};
use ebb_store::{DesiredKey, DesiredTarget, DueItem, SourceWatch};

use crate::run::wakeup;
use crate::{Env, FlowResult, ForwardedAttempts, QueueMessage, loaded_run};

/// Notes the end of the sweep of an item. After an error, the item is due again later.
pub(super) async fn record_end(env: &Env, due: &DueItem, end: FlowResult<()>) -> FlowResult<()> {
    match &end {
        Ok(()) => env.cache.failed_sweeps.clear(due),
        Err(error) => postpone(env, due, env.cache.failed_sweeps.next_wait(due, error.is_retryable())).await,
    }
    end
}

/// Makes an item due after `wait`. Changes the due time only. A target or a desired state that changes meanwhile keeps its own.
pub(super) async fn postpone(env: &Env, due: &DueItem, wait: Millis) {
    let postponed = match due {
        DueItem::Run(run) => postpone_run(env, run, wait).await,
        DueItem::Target(kind, name) => postpone_target(env, TargetKey::new(kind, name), wait).await,
        DueItem::Desired(key) => postpone_desired(env, key, wait).await,
        DueItem::Source(name) => postpone_source(env, name, wait).await,
    };
    if let Err(error) = postponed {
        tracing::warn!(?due, %error, "cannot postpone an item");
    }
}

/// Postpones an item whose sweep was dropped. A desired state stays due, and is applied again by the next sweep.
pub(super) async fn postpone_dropped(env: &Env, due: &DueItem) {
    let wait = env.cache.failed_sweeps.next_wait(due, true);
    if !matches!(due, DueItem::Desired(_) | DueItem::Source(_)) {
        postpone(env, due, wait).await;
    }
}

/// Postpones the run or target of a message whose handling was dropped. Otherwise only the lost message would refer to
/// it.
pub async fn postpone_message(env: &Env, message: &QueueMessage) {
    match message {
        QueueMessage::Run(run)
        | QueueMessage::Recover(run)
        | QueueMessage::Unit { run, .. }
        | QueueMessage::Poll { run, .. }
        | QueueMessage::Dispatch(ForwardedAttempts { run, .. }) => {
            postpone_dropped(env, &DueItem::Run(run.clone())).await
        }
        QueueMessage::Target(kind, name) | QueueMessage::Deliver(kind, name) => {
            postpone_dropped(env, &DueItem::Target(kind.clone(), name.clone())).await;
        }
        QueueMessage::Mark => {}
    }
}

async fn postpone_run(env: &Env, id: &RunId, wait: Millis) -> FlowResult<()> {
    let now = env.now();
    let next = now.plus(wait);
    let is_written = loaded_run::patch_head(env, id, |head| {
        let seen = head.due.filter(|&due| due <= now)?;
        Some(accept(RunEvent::Postponed { seen, next }))
    });
    if is_written.await? {
        wakeup::send_wakeup(env, id, next).await;
    }
    Ok(())
}

async fn postpone_target(env: &Env, key: TargetKey<'_>, wait: Millis) -> FlowResult<()> {
    let Some(seen) = env.store.read_target(key).await? else { return Ok(()) };
    let now = env.now();
    if seen.due.is_some_and(|due| due <= now) {
        env.store.move_target(&seen.update(|target| target.due = Some(now.plus(wait)))).await?;
    }
    Ok(())
}

async fn postpone_desired(env: &Env, key: &DesiredKey, wait: Millis) -> FlowResult<()> {
    let Some(seen) = env.store.read_desired(key).await? else { return Ok(()) };
    if seen.due.is_some_and(|due| due <= env.now()) {
        let due = Some(env.now().plus(wait));
        env.store.put_desired(&DesiredTarget { due, version: seen.version + 1, ..seen }).await?;
    }
    Ok(())
}

async fn postpone_source(env: &Env, name: &str, wait: Millis) -> FlowResult<()> {
    let Some((seen, findings)) = env.store.read_watch(name).await? else { return Ok(()) };
    if seen.due <= env.now() {
        let after = SourceWatch { due: env.now().plus(wait), version: seen.version + 1, ..seen };
        env.store.put_watch(&after, &findings).await?;
    }
    Ok(())
}
