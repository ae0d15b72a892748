//! The settings of every simulation.

use std::time::Duration;

use ebb_engine::Millis;
use ebb_flow::DeploymentSettings;
use ebb_protocol::sign::{WebhookKeys, WebhookSecret};
use ebb_protocol::token::TokenKeys;

/// As a deployment has them, but for `landing_ms`, `L` of the protocol.
pub fn settings(landing_ms: u64) -> DeploymentSettings {
    let secret = |byte: u8| WebhookSecret::from_bytes(&[byte; 32]).expect("32 bytes are a secret");
    DeploymentSettings {
        callback_url: "https://ebb.test/v1/callbacks".to_owned(),
        installation: "sim".to_owned(),
        source: "https://ebb.test".to_owned(),
        platform_url: Some("https://platform.test/events".to_owned()),
        platform_keys: secret(1).into(),
        webhook_keys: WebhookKeys::new(secret(2), vec![]).expect("one key"),
        unit_keys: secret(3).into(),
        token_keys: TokenKeys::from_bytes("k1", &[4; 32]).expect("32 bytes are a key"),
        max_in_flight: Millis(landing_ms),
        grace: Duration::from_secs(10),
        response_timeout: Duration::from_secs(20),
        first_sweep_delay: Millis(60_000),
        max_sweep_interval: Millis(3_600_000),
        retention: None,
        max_dispatches: 50,
        dispatch_budget: Duration::from_secs(3),
    }
}
