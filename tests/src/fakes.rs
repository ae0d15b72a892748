//! An environment for functions in tests: no cluster, and settings.

use std::sync::Arc;
use std::time::Duration;

use ebb_egress::HttpCall;
use ebb_engine::{Attempt, Epoch, Millis, Timestamp, Unit};
use ebb_flow::ports::MessageQueue;
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_flow::{DeploymentSettings, Env, InstanceCache};
use ebb_protocol::named_secrets::NamedSecrets;
use ebb_protocol::{RunId, TokenClaims, TokenKind, WebhookKeys, WebhookSecret};
use ebb_relay_client::ClusterRelay;
use ebb_store::Store;

/// The URL of the platform of a deployment.
pub const PLATFORM: &str = "https://platform.test/events";
/// The name of the secret of a deployment.
pub const SECRET: &str = "EVENTS";

/// Returns the environment of one function, with the clock and random numbers of the system. `server` receives the
/// requests of units and to the platform.
pub fn env(
    store: Arc<Store>,
    server: Arc<dyn HttpCall>,
    queue: Arc<dyn MessageQueue>,
    settings: DeploymentSettings,
) -> Env {
    let (clock, random, grace) = (Arc::new(SystemClock), Arc::new(SystemRandom), Duration::from_secs(1));
    let (requests, queued) = (server.clone(), store.clone());
    // No cluster is connected.
    let relay = ClusterRelay::new(Arc::default(), requests, queued, clock.clone(), random.clone(), grace);
    Env {
        store,
        clock,
        random,
        relay: Arc::new(relay),
        egress: Arc::clone(&server),
        platform: server,
        queue,
        settings,
        cache: InstanceCache::default(),
    }
}

/// Returns the settings of a deployment with this in-flight limit in milliseconds. No request of it reaches a server.
///
/// # Panics
/// Never: the keys have the right length.
pub fn deployment(max_in_flight_ms: u64) -> DeploymentSettings {
    let secret = |byte: u8| WebhookSecret::from_bytes(&[byte; 32]).expect("32 bytes are a secret");
    let secrets = serde_json::json!({ SECRET: secret(5).reveal().as_str() }).to_string();
    DeploymentSettings {
        callback_url: "https://ebb.test/v1/callbacks".to_owned(),
        installation: "sim".to_owned(),
        source: "https://ebb.test".to_owned(),
        platform_url: Some(PLATFORM.to_owned()),
        platform_keys: secret(1).into(),
        webhook_keys: WebhookKeys::new(secret(2), vec![]).expect("one key"),
        unit_keys: secret(3).into(),
        token_keys: secret(4).into(),
        secrets: Arc::new(NamedSecrets::parse(secrets.as_bytes()).expect("the names are valid")),
        max_in_flight: Millis(max_in_flight_ms),
        grace: Duration::from_secs(10),
        response_timeout: Duration::from_secs(20),
        callback_wait: Duration::ZERO,
        first_sweep_delay: Millis(60_000),
        max_sweep_interval: Millis(3_600_000),
        retention: None,
        living_per_owner: None,
        max_dispatches: 50,
        dispatch_budget: Duration::from_secs(3),
    }
}

/// Returns the settings of a deployment, except two times: a slow machine must not change the counts. A deployment
/// sweeps a run for the first time after 60 s, and an invocation dispatches for 3 s. Longer runs would get repeated
/// requests and more invocations.
pub fn settings(url: &str, outcomes: Option<String>, first_sweep_delay: Millis) -> DeploymentSettings {
    DeploymentSettings {
        callback_url: format!("{url}/v1/callbacks"),
        installation: "tests".to_owned(),
        source: url.to_owned(),
        platform_url: outcomes,
        first_sweep_delay,
        dispatch_budget: Duration::from_secs(900),
        ..deployment(500)
    }
}

/// Returns the claims of a token for an attempt of the first unit of a run.
pub fn claims(run: RunId, attempt: u32, kind: TokenKind, expiry: Timestamp) -> TokenClaims {
    let (unit, attempt, epoch) = (Unit(0), Attempt(attempt), Epoch::FIRST);
    TokenClaims { run, unit, attempt, epoch, expiry, remaining_results: 0, kind }
}
