//! Invocations of the functions with their whole follow-up, by senders that need no HTTP.

use ebb_engine::RequestSender;
use ebb_flow::advance::callback::{self, CallbackOutcome};
use ebb_flow::lifecycle::{self, DecidedFor};
use ebb_flow::{Env, FlowResult, RequestError};
use ebb_protocol::{LifecycleData, LifecycleResponse, LifecycleType};
use ebb_store::Store;

/// Applies a lifecycle webhook of the platform with the id of its CloudEvent.
pub async fn receive(
    env: &Env,
    plugins: &Store,
    event_type: (LifecycleType, &str),
    event: &LifecycleData,
) -> Result<LifecycleResponse, RequestError> {
    let (requester, decided) = (RequestSender::Platform.into(), DecidedFor::Any);
    let (response, follow_up) = lifecycle::begin(env, plugins, event_type, event, requester, decided).await?;
    follow_up.finish(env).await?;
    Ok(response)
}

pub async fn complete(env: &Env, token: &str, body: &[u8]) -> FlowResult<CallbackOutcome> {
    let Some(token) = callback::verify_token(env, token) else { return Ok(CallbackOutcome::Forbidden) };
    let (outcome, follow_up) = callback::begin(env, token, body).await?;
    follow_up.finish(env).await?;
    Ok(outcome)
}
