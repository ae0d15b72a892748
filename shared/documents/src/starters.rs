//! Subscriptions to start from. The labels that they read are those of the presets of sources.

/// The receivers that have a starter, by their keys in `to`.
pub const RECEIVERS: [&str; 7] = ["standard", "webhook", "slack", "github", "gitlab", "deployment", "comment"];

/// Returns a subscription with this name for a receiver, as YAML, or `None` for another receiver.
pub fn starter(receiver: &str, name: &str) -> Option<String> {
    let text = match receiver {
        "standard" => include_str!("../starters/standard.yaml"),
        "webhook" => include_str!("../starters/webhook.yaml"),
        "slack" => include_str!("../starters/slack.yaml"),
        "github" => include_str!("../starters/github.yaml"),
        "gitlab" => include_str!("../starters/gitlab.yaml"),
        "deployment" => include_str!("../starters/deployment.yaml"),
        "comment" => include_str!("../starters/comment.yaml"),
        _ => return None,
    };
    Some(text.replacen("NAME", name, 1))
}
