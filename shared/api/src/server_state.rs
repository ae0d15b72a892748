//! The state that each handler gets.

use std::sync::Arc;

use ebb_flow::env::Env;
use ebb_relay_client::PollEndpoint;

use crate::ApiTokens;

#[derive(Clone)]
pub struct ServerState {
    pub env: Arc<Env>,
    pub tokens: Arc<ApiTokens>,
    pub poll_endpoint: Arc<PollEndpoint>,
}
