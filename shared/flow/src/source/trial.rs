//! Evaluates an event on a stored source, without any effect.

use ebb_documents::event::{EventExplanation, EventInput, EventRequest, EventSource};
use ebb_protocol::{ErrorCode, limits};
use http::HeaderMap;

use super::{delivery, find};
use crate::{Env, RequestError, offload};

/// An event that a person tries.
#[derive(Clone, Copy, Debug)]
pub struct TrialEvent<'a> {
    pub headers: &'a HeaderMap,
    /// The body, as JSON text.
    pub body: &'a str,
    /// The body of the response that completes the event, as JSON text. Empty without one.
    pub fetched: &'a str,
}

/// The effect that an event would have.
#[derive(Clone, Debug)]
pub struct EventTrial {
    /// The delivery ID that the source selects.
    pub delivery_id: Option<String>,
    pub explanation: EventExplanation,
}

/// Evaluates an event on the source `name`. The sender is not verified, and nothing is stored, sent or requested.
///
/// # Errors
/// Returns a rejection if the source does not exist, a text is not JSON or too large, or the source completes the event and
/// the response is missing.
pub async fn try_event(env: &Env, name: &str, event: TrialEvent<'_>) -> Result<EventTrial, RequestError> {
    let source = find(env, name).await?;
    let mut values = 0;
    let mut parse = |what: &str, text: &str| {
        values += limits::check_json_values(text.as_bytes(), limits::JSON_VALUES - values)
            .map_err(|problem| RequestError::refused(ErrorCode::TooLarge, format!("{what} has {problem}")))?;
        serde_json::from_str::<serde_json::Value>(text)
            .map_err(|error| RequestError::refused(ErrorCode::InvalidJson, format!("{what} is not JSON: {error}")))
    };
    let body = parse("the body", event.body)?;
    let fetched = match event.fetched.trim() {
        "" => None,
        text => Some(serde_json::json!({"status": 200, "body": parse("the response", text)?})),
    };
    let input = EventInput { headers: delivery::visible(event.headers), body, fetched };
    let permit = env.cache.budgets.event_values.reserve(values).await;
    let evaluated = offload(move || {
        let evaluated = evaluate(&source, &input);
        drop((input, permit));
        evaluated
    });
    evaluated.await?.map_err(|why| RequestError::refused(ErrorCode::IncompleteEvent, why))
}

fn evaluate(source: &EventSource, input: &EventInput) -> Result<EventTrial, String> {
    if let Some(EventRequest { connection, path, .. }) = source.fetch(input).map_err(|error| error.to_string())?
        && input.fetched.is_none()
    {
        return Err(format!(
            "the source completes the event by GET {path} with {connection}: give the body of the response"
        ));
    }
    let delivery_id = source.delivery_id(input).map_err(|error| error.to_string())?;
    Ok(EventTrial { delivery_id, explanation: source.explain(input) })
}
