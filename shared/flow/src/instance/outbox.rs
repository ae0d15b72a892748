//! Notifications of subscriptions. The write that moves a target appends them to the target. [`deliver`] sends them.
//!
//! The list of subscriptions is read once in [`MAX_AGE`]. A target without a notification has no attribute, no due time
//! and no message for it.

mod deliver;
mod github;
mod receiver;

use std::sync::Arc;
use std::time::Duration;

use ebb_documents::notification::NotificationRule;
use ebb_documents::plan::TargetSpec;
use ebb_documents::{DocumentVars, NoFiles, TargetFacts, compile, load};
use ebb_engine::{Millis, TargetChange, Timestamp};
use ebb_protocol::{RunId, TargetKey, TargetStopCause};
use ebb_store::{NamedDocument, NamedKind, PhaseNotice, TargetHead, TargetOutbox};
use serde_json::json;

use crate::{Counter, Env, FlowResult, MAX_MESSAGE_DELAY, QueueMessage, offload, target_facts, telemetry};

pub use deliver::{deliver, resend};
pub(super) use deliver::{record_failure, try_begin};
pub(super) use receiver::{NotificationDelivery, post_outcome};
pub use receiver::{ReceiverInfo, receiver_info};

/// The age at which the list of subscriptions is read again.
pub const MAX_AGE: Millis = Millis(60_000);

/// Forgets the subscriptions, after a change by this program.
pub async fn forget_rules(env: &Env) {
    *env.cache.subscriptions.lock().await = None;
}

/// Returns the subscriptions, as they were at most [`MAX_AGE`] ago.
pub async fn rules(env: &Env) -> FlowResult<Arc<Vec<NotificationRule>>> {
    let mut known = env.cache.subscriptions.lock().await;
    let now = env.steady();
    if let Some((at, rules)) = known.as_ref()
        && now.since(*at).0 < MAX_AGE.0
    {
        return Ok(Arc::clone(rules));
    }
    let items = env.store.list_documents(NamedKind::Subscription).await?;
    let parse = move || items.iter().filter_map(parsed).collect::<Vec<_>>();
    let rules = Arc::new(offload(parse).await?);
    *known = Some((now, Arc::clone(&rules)));
    Ok(rules)
}

fn parsed(item: &NamedDocument) -> Option<NotificationRule> {
    let loaded = load::subscription("document", &item.document, &NoFiles, &DocumentVars::none());
    let rule = loaded.and_then(|document| compile::subscription(&document));
    rule.inspect_err(|errors| tracing::error!(name = item.name, %errors, "a subscription has errors; apply it again"))
        .ok()
}

/// Appends the notification of a change of `target`, which has its new phase and version, for the subscriptions that
/// report it.
pub fn append(
    target: &mut TargetHead,
    rules: &[NotificationRule],
    plan: &TargetSpec,
    (change, at): (TargetChange, Timestamp),
) {
    if rules.is_empty() {
        return;
    }
    let instance = target.target_key().instance(&target.uid);
    let notified = target_facts(instance, target.generation, plan);
    let to: Vec<String> =
        rules.iter().filter(|rule| rule.reports(change, &notified)).map(|rule| rule.name.clone()).collect();
    if to.is_empty() {
        return;
    }
    let notified = TargetFacts { labels: TargetHead::stored_labels(&notified.labels), ..notified };
    let ended = match target.stop_cause {
        _ if target.phase.is_alive() => None,
        _ if target.is_overridden => Some("forced"),
        TargetStopCause::Expired => Some("expired"),
        TargetStopCause::Deleted => Some("deleted"),
    };
    target.outbox.notices.push(PhaseNotice {
        number: target.version,
        phase: change,
        at,
        run: target.hook.map(|hook| target.run(hook)),
        ended: ended.map(str::to_owned),
        owner: target.owner.clone(),
        target: json!(notified),
        to,
    });
    // A delivery gives up and lists what exceeds the limit. Many changes during one delivery must not exceed the item.
    while target.outbox.exceeds(2)
        && let Some(oldest) = target.outbox.notices.iter().position(|notice| !notice.is_for_platform())
    {
        let lost = target.outbox.notices.remove(oldest);
        tracing::error!(kind = target.kind, name = target.name, to = ?lost.to, phase = lost.phase.name(),
            "too many notifications wait; the oldest is dropped");
        telemetry::count_for_alarm(Counter::Undelivered, 1);
    }
}

/// Appends the `gone` of the instance that waits for the name of `target`, which has its new version, for the platform.
/// The instance never begins, so it has no phase of its own.
pub(crate) fn append_gone_of_waiting(env: &Env, target: &mut TargetHead) {
    let Some(waiting) = target.waiting.take() else { return };
    append_for_platform(env, target, (waiting.uid.as_str(), waiting.generation), None, (TargetChange::Gone, env.now()));
}

/// Appends the notification of the end of the last run of `target`, which has its new version, for the platform.
pub(crate) fn append_end_for_platform(env: &Env, target: &mut TargetHead, change: (TargetChange, Timestamp)) {
    target.outbox.limit_platform_ends();
    let (uid, generation, run) = (target.uid.clone(), target.generation, target.hook.map(|hook| target.run(hook)));
    append_for_platform(env, target, (&uid, generation), run, change);
}

fn append_for_platform(
    env: &Env,
    target: &mut TargetHead,
    (uid, generation): (&str, u64),
    run: Option<RunId>,
    (phase, at): (TargetChange, Timestamp),
) {
    if env.settings.platform_url.is_none() {
        return;
    }
    let notified = target_facts(target.target_key().instance(uid), generation, &TargetSpec::default());
    target.outbox.notices.push(PhaseNotice {
        number: target.version,
        phase,
        at,
        run,
        ended: None,
        owner: None,
        target: json!(notified),
        to: vec![TargetOutbox::PLATFORM.to_owned()],
    });
}

/// Sends a message that delivers the notifications of a target, if it has any.
pub(crate) async fn announce_any(env: &Env, target: &TargetHead) {
    if !target.outbox.notices.is_empty() {
        announce(env, target.target_key(), Duration::ZERO).await;
    }
}

/// Sends a message that delivers the notifications of a target after `wait`. The schedule delivers those that are due later
/// than the maximum delay.
pub(crate) async fn announce(env: &Env, target: TargetKey<'_>, wait: Duration) {
    if wait < MAX_MESSAGE_DELAY {
        env.queue.send(QueueMessage::Deliver(target.kind.to_owned(), target.name.to_owned()), wait).await;
    }
}

#[cfg(test)]
mod tests {
    use ebb_engine::TargetPhase;

    use super::*;

    /// A hundred subscriptions whose receivers accept nothing, and labels of any size, do not fill the item of a target.
    #[test]
    fn the_waiting_notifications_are_bounded() {
        let rule = |number| {
            let (name, head) = (format!("s{number:062}"), "apiVersion: ebb.dev/v1\nkind: Subscription\non: [ready]");
            let when = if number == 0 { "when: ${size(target.labels.b) > 0}\n" } else { "" };
            let document = format!("{head}\nname: {name}\n{when}to: {{slack: {{secret: S}}}}\n");
            let changed = Timestamp(1);
            parsed(&NamedDocument { name, document, changed }).unwrap()
        };
        let rules: Vec<_> = (0..100).map(rule).collect();
        let long = "x".repeat(2 * TargetHead::MAX_LABELS);
        for (labels, count, kept) in [
            ([("a", "1"), ("b", "2")], 1, 2 * TargetOutbox::MAX_NOTICES),
            ([("a", "1"), ("b", &long)], 100, 30),
            ([("a", "\u{1}\u{1}"), ("b", &long[..TargetHead::MAX_LABELS - 4])], 100, 12),
        ] {
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let plan = TargetSpec { labels, ..TargetSpec::default() };
            let mut target = TargetHead::new("sandbox", "a", "u", Timestamp(1));
            target.phase = TargetPhase::Ready;
            for version in 1..=250 {
                target.version = version;
                append(&mut target, &rules[..count], &plan, (TargetChange::Ready, Timestamp(1)));
            }
            let (notices, bytes) = (&target.outbox.notices, json!(target.outbox).to_string().len());
            assert!(bytes <= 2 * TargetOutbox::MAX_BYTES + 1_000, "{bytes}");
            assert!((kept..kept + 10).contains(&notices.len()), "{} of {kept}", notices.len());
            assert_eq!(notices.last().map(|notice| notice.number), Some(250));
            assert_eq!(notices[0].target["labels"]["a"], plan.labels["a"]);
            assert_eq!(notices[0].target["labels"]["b"].is_string(), plan.labels["b"].len() < TargetHead::MAX_LABELS);
        }
    }
}
