//! Checks subscriptions.

use serde_json::Value as Json;

use super::collector::{DiagnosticCollector, StepCount};
use super::webhook;
use crate::cel::Scope;
use crate::diagnostic::Diagnostics;
use crate::model::{At, NotificationPhase, ReceiverDoc, SubscriptionDoc};
use crate::notification::{NotificationReceiver, NotificationRule};

/// The phases that a commit status can express.
const STATUSES: [NotificationPhase; 5] = [
    NotificationPhase::Starting,
    NotificationPhase::Ready,
    NotificationPhase::Updating,
    NotificationPhase::Failed,
    NotificationPhase::Stuck,
];

/// Checks a subscription.
///
/// # Errors
/// Returns all semantic errors, sorted by position.
pub fn subscription(doc: &SubscriptionDoc) -> Result<NotificationRule, Diagnostics> {
    let mut report = DiagnosticCollector::new(&doc.source, &StepCount::default());
    let when = doc.when.as_ref().map(|when| {
        let text = report.expression("`when`", when, Scope::Subscription, &mut Vec::new());
        text.unwrap_or_default()
    });
    report.units = Scope::Notification;
    let mut text = |text: &At<String>| {
        report.text(&text.value, text.at, Scope::Notification, &mut Vec::new());
        text.value.clone()
    };
    let to = match &doc.to.receiver {
        ReceiverDoc::Standard(standard) => {
            NotificationReceiver::Standard { url: standard.url.value.clone(), secret: standard.secret.value.clone() }
        }
        ReceiverDoc::Slack(slack) => NotificationReceiver::Slack { secret: slack.secret.value.clone() },
        ReceiverDoc::Github(github) => {
            let own = At { value: format!("ebb/{}", doc.name.value), at: doc.name.at };
            let to = NotificationReceiver::CommitStatus {
                connection: github.connection.value.clone(),
                repository: text(&github.repository),
                sha: text(&github.sha),
                context: text(github.context.as_ref().unwrap_or(&own)),
            };
            for phase in doc.on.iter().filter(|phase| !STATUSES.contains(&phase.value)) {
                let message = format!("a commit status cannot express `{}`", phase.value.name());
                let names = STATUSES.map(NotificationPhase::name).join(", ");
                report.push(report.error("phase", phase.at, message).help(format!("expected one of {names}")));
            }
            to
        }
        ReceiverDoc::Comment(comment) => NotificationReceiver::Comment {
            connection: comment.connection.value.clone(),
            repository: text(&comment.repository),
            number: text(&comment.number),
            body: comment.body.as_ref().map(text),
        },
        ReceiverDoc::Webhook(post) => {
            webhook::path(&mut report, &post.path, &mut Vec::new());
            let body: Option<Json> =
                post.body.as_ref().map(|body| report.strings(body, Scope::Notification, &mut Vec::new()));
            NotificationReceiver::Webhook {
                connection: post.connection.value.clone(),
                method: post.method.as_str().to_owned(),
                path: post.path.value.clone(),
                body,
            }
        }
    };
    if let Some(errors) = report.errors(doc.name.at) {
        return Err(errors);
    }
    let on = doc.on.iter().map(|phase| phase.value).collect();
    Ok(NotificationRule { name: doc.name.value.clone(), on, when, to })
}
