//! Builds the headers of requests to the receiver of a webhook unit.

use ebb_documents::plan::UnitPlan;
use ebb_protocol::sign::{self, MessageId};
use ebb_protocol::unit as headers;

use crate::env::Env;
use crate::error::FlowError;
use crate::run::attempt::{AttemptRef, undone_name, unit_name};
use crate::run::credential::RequestCredential;
use crate::run::head::Run;
use crate::telemetry;

/// Returns the signature or credential of a request and the headers that identify the attempt. `purpose` ends the message id, because
/// receivers discard a second message with the same id.
///
/// # Errors
/// Returns [`FlowError::Broken`] if the name of the run cannot be part of an id.
pub(crate) fn signed_headers(
    env: &Env,
    run: &Run,
    attempt: AttemptRef,
    unit: &UnitPlan,
    credential: &RequestCredential,
    (purpose, body): (&str, &[u8]),
) -> Result<Vec<(String, String)>, FlowError> {
    let id = MessageId::parse(&format!("{}-{}-{}{purpose}", run.id, attempt.unit.0, attempt.number.0))
        .map_err(|error| FlowError::Broken(error.to_string()))?;
    let signature = credential.keys.as_ref().map(|keys| sign::sign_with(keys, &id, env.now(), body));
    let signature = signature.into_iter().flatten().map(|(name, value)| (name.to_owned(), value));
    let header = credential.header.iter().map(|(name, value)| (name.clone(), value.to_string()));
    let mut list: Vec<(String, String)> = signature.chain(header).collect();
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
