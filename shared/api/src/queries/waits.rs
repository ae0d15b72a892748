//! Derives the reasons why a target waits from its item.

use ebb_engine::TargetPhase;
use ebb_protocol::api::NotificationDelivery;
use ebb_protocol::time::rfc3339;
use ebb_store::TargetHead;

/// Returns the delivery of a notification after a failed attempt.
pub fn delivery(target: &TargetHead) -> Option<NotificationDelivery> {
    let pending = target.notification.as_ref().filter(|pending| pending.attempts > 0)?;
    Some(NotificationDelivery {
        notification: pending.notification.name().to_owned(),
        attempts: pending.attempts,
        reason: pending.reason.clone(),
        next: target.due.map(rfc3339),
    })
}

/// Returns the reason why a target, or the next instance of its name, waits. Returns `None` if it does not wait.
pub fn reason(target: &TargetHead) -> Option<String> {
    let delivery = delivery(target).map(|delivery| {
        let NotificationDelivery { notification, attempts, reason, .. } = delivery;
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("the platform to accept the notification `{notification}` (sent {attempts} times{reason})")
    });
    let own = match (target.phase, &target.hook) {
        (TargetPhase::Stopping, Some(hook)) if !hook.is_teardown() => {
            Some(format!("its cancelled {} units", hook.name()))
        }
        (TargetPhase::Ready, Some(hook)) if !target.events.waiting.is_empty() => {
            let events: Vec<&str> = target.events.waiting.iter().map(|event| event.name.as_str()).collect();
            Some(format!("its {} units, before {}", hook.name(), events.join(", ")))
        }
        (TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping, Some(hook)) => {
            Some(format!("its {} units", hook.name()))
        }
        (TargetPhase::Stuck, _) => Some("an operator".to_owned()),
        _ => None,
    };
    let update = target.pending_update.as_ref();
    let own = own.map(|own| match update {
        Some(update) => format!("{own}, before the update to generation {}", update.generation),
        None => own,
    });
    let reasons: Vec<String> = own.into_iter().chain(delivery).collect();
    let reasons = (!reasons.is_empty()).then(|| reasons.join(", and "));
    match &target.waiting {
        None => reasons,
        Some(waiting) => {
            let present = reasons.unwrap_or_else(|| "the deletion of this instance".to_owned());
            Some(format!("{present}; uid {} waits for the name", waiting.uid))
        }
    }
}
