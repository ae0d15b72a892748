//! Subscriptions to start from. The labels that they read are those of the presets of sources.

/// A subscription to start from.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionStarter {
    /// The key of the receiver in `to`.
    pub receiver: &'static str,
    /// The phases of `on`.
    phases: &'static str,
    /// The labels without which a target is not reported.
    labels: &'static [&'static str],
    /// The content of `to`.
    to: &'static str,
}

/// A starter for each receiver.
pub static STARTERS: [SubscriptionStarter; 5] = [
    SubscriptionStarter {
        receiver: "standard",
        phases: "ready, failed, stuck, gone",
        labels: &[],
        to: "standard: {url: \"https://events.example.org/ebb\", secret: EVENTS_SECRET}",
    },
    SubscriptionStarter {
        receiver: "webhook",
        phases: "failed, stuck",
        labels: &[],
        to: "webhook:\n    connection: tickets\n    path: /api/tickets\n    body: {title: \"${target.kind}/${target.name} is \
             ${notification.phase}\"}",
    },
    SubscriptionStarter {
        receiver: "slack",
        phases: "failed, stuck",
        labels: &[],
        to: "slack: {secret: SLACK_WEBHOOK}",
    },
    SubscriptionStarter {
        receiver: "github",
        phases: "starting, ready, updating, failed, stuck",
        labels: &["repository", "sha"],
        to: "github:\n    connection: github\n    repository: ${target.labels.repository}\n    sha: ${target.labels.sha}",
    },
    SubscriptionStarter {
        receiver: "comment",
        phases: "ready, failed, gone",
        labels: &["repository", "pull-request"],
        to: "comment:\n    connection: github\n    repository: ${target.labels.repository}\n    number: \
             ${target.labels.pull-request}",
    },
];

/// Returns the starter for a receiver.
pub fn starter(receiver: &str) -> Option<&'static SubscriptionStarter> {
    STARTERS.iter().find(|starter| starter.receiver == receiver)
}

impl SubscriptionStarter {
    /// Returns a subscription with this name.
    pub fn document(&self, name: &str) -> String {
        let Self { phases, labels, to, .. } = self;
        let labels: Vec<String> = labels.iter().map(|label| format!("has(target.labels.{label})")).collect();
        let when = if labels.is_empty() { String::new() } else { format!("when: ${{{}}}\n", labels.join(" && ")) };
        format!("apiVersion: ebb.dev/v1\nkind: Subscription\nname: {name}\non: [{phases}]\n{when}to:\n  {to}\n")
    }
}
