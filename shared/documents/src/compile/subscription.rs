//! Checks subscriptions.

use ebb_engine::TargetChange;

use super::{DiagnosticCollector, StepCount, webhook};
use crate::notification::NotificationRule;
use crate::{Diagnostics, ReceiverDoc, Scope, SubscriptionDoc};

/// The phases that a commit status can express.
const STATUSES: [TargetChange; 5] =
    [TargetChange::Starting, TargetChange::Ready, TargetChange::Updating, TargetChange::Failed, TargetChange::Stuck];

/// Checks a subscription.
///
/// # Errors
/// Returns all semantic errors, sorted by position.
pub fn subscription(doc: &SubscriptionDoc) -> Result<NotificationRule, Diagnostics> {
    let mut report = DiagnosticCollector::new(&doc.source, &StepCount::default());
    let when = doc.when.as_ref().and_then(|when| report.condition(when, Scope::Subscription));
    report.units = Scope::Notification;
    for text in doc.to.texts() {
        report.text(&text.value, text.at, Scope::Notification);
    }
    match &doc.to {
        ReceiverDoc::Standard(_) | ReceiverDoc::Slack(_) => {}
        ReceiverDoc::Deployment(_) | ReceiverDoc::Comment(_) => {}
        ReceiverDoc::Github(_) | ReceiverDoc::Gitlab(_) => {
            for phase in doc.on.iter().filter(|phase| !STATUSES.contains(&phase.value)) {
                let message = format!("a commit status cannot express `{}`", phase.value.name());
                let names = STATUSES.map(TargetChange::name).join(", ");
                report.push(report.error("phase", phase.at, message).help(format!("expected one of {names}")));
            }
        }
        ReceiverDoc::Webhook(post) => {
            webhook::path(&mut report, &post.path);
            if let Some(body) = &post.body {
                report.tree(&body.value, body.at, Scope::Notification);
            }
        }
    }
    report.check(doc.name.at)?;
    let on = doc.on.iter().map(|phase| phase.value).collect();
    Ok(NotificationRule { name: doc.name.value.clone(), on, when, to: doc.to.clone() })
}
