//! The secret of the deployment. Each use has a key of its own, so a wrong key is noticed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::sign::WebhookSecret;
use ebb_tests::preset_lives;
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "operator-token";

/// The kinds of messages. Each has its own key.
#[derive(Clone, Copy)]
pub(crate) enum SignedMessage {
    Lifecycle = 1,
    Outcome = 2,
    Unit = 3,
    Callback = 4,
}

impl SignedMessage {
    pub(crate) fn key(self) -> String {
        format!("whsec_{}", STANDARD.encode([self as u8; 32]))
    }

    pub(crate) fn secret(self) -> anyhow::Result<WebhookSecret> {
        Ok(WebhookSecret::parse(&self.key())?)
    }
}

pub(crate) fn secret() -> Value {
    json!({
        "EBB_WEBHOOK_SECRETS": SignedMessage::Lifecycle.key(),
        "EBB_PLATFORM_SECRETS": SignedMessage::Outcome.key(),
        "EBB_UNIT_SECRETS": SignedMessage::Unit.key(),
        "EBB_TOKEN_SECRETS": SignedMessage::Callback.key(),
        "EBB_API_TOKENS": format!("operator:{TOKEN}"),
        "EBB_SECRETS": preset_lives::secrets(),
    })
}
