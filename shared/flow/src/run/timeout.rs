//! The failure of an attempt that has no result at its deadline.

use ebb_documents::plan::UnitPlan;
use ebb_documents::render::{self, RenderedUnit, UnitContext};
use ebb_engine::Millis;
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::evidence::Evidence;
use ebb_protocol::record::AttemptRecord;
use ebb_protocol::time::rfc3339;

use crate::error::FlowResult;
use crate::run::sent_request::SentRequest;
use crate::run::{AttemptContext, AttemptFailure, inputs, records};

/// The status with which a receiver announces a callback.
const ACCEPTED: u16 = 202;

/// Returns the failure of an attempt whose end is not reported.
pub(crate) fn timed_out(unit: &UnitPlan, record: &AttemptRecord) -> AttemptFailure {
    let accepted =
        record.accepted.map(|at| format!("; the receiver accepted the request ({ACCEPTED}) at {}", rfc3339(at)));
    let progress = record.progress.as_ref().map(|progress| format!("; the last progress was: {progress}"));
    let [accepted, progress] = [accepted, progress].map(Option::unwrap_or_default);
    let why = format!("no result within {}{accepted}{progress}", Millis(unit.timeout_ms));
    AttemptFailure { is_made: record.wait.is_some(), ..AttemptFailure::new(ReasonCode::Timeout, &why) }
}

/// Returns the failure of an attempt without a relay, with the request of a webhook as its evidence.
///
/// # Errors
/// Returns an error if the record cannot be read.
pub(crate) async fn unreported(context: AttemptContext<'_>) -> FlowResult<AttemptFailure> {
    let AttemptContext { env, run, attempt, unit, .. } = context;
    let attempt = (attempt.unit, attempt.number);
    let record = records::read_open(env, run, &[attempt]).await?.remove(&attempt).unwrap_or_default();
    let evidence = match record.accepted {
        // The attempt ends also if its inputs cannot be read any more.
        Some(_) => Box::pin(evidence(context)).await.unwrap_or_default(),
        None => None,
    };
    Ok(AttemptFailure { evidence, ..timed_out(unit, &record) })
}

/// Returns the request of a webhook that its receiver accepted.
async fn evidence(context: AttemptContext<'_>) -> FlowResult<Option<Box<Evidence>>> {
    let AttemptContext { env, run, unit, cache, .. } = context;
    let known = inputs::read_inputs(env, run, unit, cache).await?;
    let (plan, at) = (&run.loaded.plan, context.unit_ref());
    let context = UnitContext { plan, at, facts: &run.target_facts(), known: &known };
    let Ok(RenderedUnit::Webhook(request)) = render::preview(context) else { return Ok(None) };
    let sent = SentRequest { method: &request.method, url: &request.url, headers: &[], opened: &[] };
    Ok(Some(Box::new(Evidence { status: Some(ACCEPTED), ..sent.evidence(unit, None) })))
}
