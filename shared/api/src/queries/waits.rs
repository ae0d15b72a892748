//! Derives the reasons why a target waits from its item.

use ebb_engine::TargetPhase;
use ebb_flow::error::FlowError;
use ebb_protocol::words::commands;
use ebb_protocol::{AwaitedParty, NotificationDelivery, TargetWait, WaitingParty, rfc3339};
use ebb_store::{DatedEvent, NotificationState, TargetHead, TargetOutbox};

/// Returns the delivery of a notification to the platform after a failed attempt. It may be the `gone` of an instance that
/// was deleted while it waited for the name, or the end of a run.
pub fn delivery(target: &TargetHead) -> Option<NotificationDelivery> {
    let (name, state) = match &target.notification {
        Some(NotificationState::Due(state)) if state.attempts > 0 => (target.phase.name(), state),
        _ => {
            let first = target.outbox.notices.iter().find(|notice| notice.is_for_platform());
            let name = first.map_or(TargetPhase::Gone.name(), |notice| notice.phase.name());
            (name, target.outbox.failed.get(TargetOutbox::PLATFORM)?)
        }
    };
    Some(NotificationDelivery {
        notification: name.to_owned(),
        attempts: state.attempts,
        reason: Some(state.reason.clone()),
        next: Some(rfc3339(state.next)),
    })
}

/// Returns the waits of a target, of its waiting update and events, and of the next instance of its name.
pub fn rows(target: &TargetHead) -> Vec<TargetWait> {
    let name = commands::target_arguments(&target.kind, &target.name);
    let hook = target.hook.as_ref().map(|hook| hook.name().to_owned());
    let since = Some(rfc3339(target.since));
    let dated = |at| Some(rfc3339(at));
    let mut rows = Vec::new();
    match (target.phase, &target.hook) {
        (TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping, Some(last)) => {
            let release = match target.phase == TargetPhase::Stopping && !last.is_teardown() {
                true => "the cancelled units end, at their deadlines at the latest; the teardown then begins",
                false => "each unit has ended, at its deadline at the latest",
            };
            let row = wait(WaitingParty::Target, AwaitedParty::Units, hook.clone(), release.to_owned());
            rows.push(TargetWait { since: since.clone(), ..row });
        }
        (TargetPhase::Stuck, _) => {
            let (retry, why) = (commands::retry(&name), commands::why(&name));
            let release = format!("remove the cause, then: {retry}; `{why}` shows it");
            let row = wait(WaitingParty::Target, AwaitedParty::Operator, None, release);
            rows.push(TargetWait { since: since.clone(), ..row });
        }
        _ => {}
    }
    if let Some(NotificationDelivery { notification, reason, next, .. }) = delivery(target) {
        let next = next.map(|next| format!("; the next delivery is at {next}")).unwrap_or_default();
        let release = format!("the platform accepts the notification{next}");
        // The `gone` of another instance waits for longer than the present phase.
        let is_present = notification == target.phase.name();
        let row = wait(WaitingParty::Target, AwaitedParty::Platform, Some(notification), release);
        rows.push(TargetWait { reason, since: since.filter(|_| is_present), ..row });
    }
    if let Some(update) = &target.pending_update {
        let row = wait(WaitingParty::Update, AwaitedParty::Units, hook.clone(), "the present run ends".to_owned());
        rows.push(TargetWait { waiter_name: Some(update.generation.to_string()), since: dated(update.since), ..row });
    }
    if let Some(at) = target.refused_deletion.filter(|_| target.phase.is_alive()) {
        let delete = commands::delete_protected(&target.kind, &target.name);
        let release = format!("its document has `protect: false`, or: {delete}");
        let by = target.source.as_ref().map_or("the platform".to_owned(), |name| format!("source {name}"));
        let reason = Some(format!("a protected resource prevents the deletion by {by}"));
        let row = wait(WaitingParty::Deletion, AwaitedParty::Operator, None, release);
        rows.push(TargetWait { reason, since: dated(at), ..row });
    }
    for DatedEvent { event, at } in &target.events.waiting {
        let release = "the present run and the events before it end".to_owned();
        let row = wait(WaitingParty::Event, AwaitedParty::Units, hook.clone(), release);
        rows.push(TargetWait { waiter_name: Some(event.name.as_str().to_owned()), since: dated(*at), ..row });
    }
    if let Some(next) = &target.waiting {
        let release = "the present instance is gone, and the platform has accepted its last notification".to_owned();
        let row = wait(WaitingParty::Instance, AwaitedParty::Instance, Some(target.uid.clone()), release);
        rows.push(TargetWait { waiter_name: Some(next.uid.clone()), since: dated(next.since), ..row });
    }
    rows
}

/// Returns the wait of a target whose plan is lost.
pub fn repair(error: &FlowError) -> TargetWait {
    let release = match error {
        FlowError::Damaged { fix, .. } => (*fix).to_owned(),
        other => other.to_string(),
    };
    let row = wait(WaitingParty::Target, AwaitedParty::Operator, None, release);
    TargetWait { reason: Some(error.to_string()), ..row }
}

fn wait(waiter: WaitingParty, awaits: AwaitedParty, awaited_name: Option<String>, release: String) -> TargetWait {
    TargetWait { waiter, waiter_name: None, awaits, awaited_name, since: None, reason: None, release }
}

#[cfg(test)]
mod tests {
    use ebb_engine::Timestamp;
    use serde_json::{Map, Value, json};

    use super::*;

    #[test]
    fn who_waits_for_whom_since_when_and_until_what() {
        type Case = (Map<String, Value>, Vec<TargetWait>);
        let cases: Vec<Case> = serde_saphyr::from_str(include_str!("../../tests/target_waits.yaml")).unwrap();
        for (fields, expected) in cases {
            let mut head = json!(TargetHead::new("sandbox", "a", "a-uid", Timestamp(9_000)));
            head.as_object_mut().unwrap().extend(fields);
            assert_eq!(rows(&serde_json::from_value(head).unwrap()), expected);
        }
    }
}
