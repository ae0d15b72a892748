//! Builds the headers of requests to the receiver of a webhook unit.

use ebb_documents::plan::UnitPlan;
use ebb_protocol::sign::{self, MessageId};
use ebb_protocol::unit as headers;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::attempt::{AttemptRef, undone_name, unit_name};
use crate::run::head::Run;
use crate::telemetry;

/// Returns the signature of a request and the headers that identify the attempt. `purpose` ends the message id, because
/// receivers discard a second message with the same id.
///
/// # Errors
/// Returns [`FlowError::Broken`] if the name of the run cannot be part of an id.
pub(crate) fn signed_headers(
    env: &Env,
    run: &Run,
    attempt: AttemptRef,
    unit: &UnitPlan,
    (purpose, body): (&str, &[u8]),
) -> Result<Vec<(String, String)>, FlowError> {
    let id = MessageId::parse(&format!("{}-{}-{}{purpose}", run.id, attempt.unit.0, attempt.number.0))
        .map_err(|error| FlowError::Broken(error.to_string()))?;
    let plugin = run.plugin(unit).unwrap_or(sign::OWN_HOOKS);
    let signature = sign::sign_with(&env.settings.unit_keys.for_plugin(plugin), &id, env.now(), body);
    let mut list: Vec<(String, String)> = signature.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    list.extend([
        (headers::IDEMPOTENCY_KEY.to_owned(), run.idempotency_key(unit_name(run, unit))),
        (headers::ATTEMPT.to_owned(), attempt.number.0.to_string()),
    ]);
    list.extend(
        undone_name(run, unit).map(|undone| (headers::UNDOES_IDEMPOTENCY_KEY.to_owned(), run.idempotency_key(undone))),
    );
    list.extend(telemetry::traceparent(&run.id, attempt).map(|of| (headers::TRACEPARENT.to_owned(), of)));
    Ok(list)
}
