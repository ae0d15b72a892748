//! Subscriptions to start from. The labels that they read are those of the presets of sources.

/// A subscription to start from.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionStarter {
    /// The key of the receiver in `to`.
    pub receiver: &'static str,
    /// The document as YAML with the name `NAME`.
    text: &'static str,
}

macro_rules! starters {
    ($($receiver:literal)+) => {
        [$(SubscriptionStarter {
            receiver: $receiver,
            text: include_str!(concat!("../starters/", $receiver, ".yaml")),
        }),+]
    };
}

/// A starter for each receiver.
pub static STARTERS: [SubscriptionStarter; 5] = starters!["standard" "webhook" "slack" "github" "comment"];

/// Returns the starter for a receiver.
pub fn starter(receiver: &str) -> Option<&'static SubscriptionStarter> {
    STARTERS.iter().find(|starter| starter.receiver == receiver)
}

impl SubscriptionStarter {
    /// Returns a subscription with this name.
    pub fn document(&self, name: &str) -> String {
        self.text.replacen("NAME", name, 1)
    }
}
