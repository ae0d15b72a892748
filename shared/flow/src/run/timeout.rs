//! The failure of an attempt that has no result at its deadline.

use ebb_documents::plan::{Action, UnitPlan};
use ebb_documents::render::{self, RenderValue, RenderedUnit, SealedValue, UnitContext};
use ebb_protocol::{AttemptRecord, Evidence, Millis, ReasonCode, rfc3339};

use crate::run::masking::MASK;
use crate::run::request::describe::{answered_status, unknown_before};
use crate::run::{dispatch, records};
use crate::{AttemptContext, AttemptFailure, FlowResult, SentRequest};

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
    // A started request that is sent again was answered 202, by a receiver that knows Ebb. For one that is sent once, `describe`
    // is asked again.
    let is_once_more =
        matches!(&unit.action, Action::Webhook(webhook) if webhook.connection.is_none() && webhook.repeat.is_none());
    let is_sent_again =
        is_once_more && record.started.is_some() && record.next_dispatch > record.started && record.posted.is_none();
    // A question about an earlier attempt is no request.
    let is_sent_again = is_sent_again && unknown_before(context).await?.is_none();
    let status = (record.accepted.is_some() || is_sent_again).then_some(ACCEPTED);
    let status = status.or_else(|| record.posted.and(answered_status(&record)));
    let is_sent = status.is_some() || record.started.is_some() || record.posted.is_some();
    let is_repeated =
        record.repeats > 0 && matches!(&unit.action, Action::Webhook(webhook) if webhook.repeat.is_some());
    // The status before a wait for a state is not recorded, nor is that of a request that is repeated.
    let evidence = match record.wait {
        // The attempt ends also if its inputs cannot be read any more.
        None if is_sent && !is_repeated => Box::pin(evidence(context, status)).await.unwrap_or_default(),
        _ => None,
    };
    Ok(AttemptFailure { evidence, ..timed_out(unit, &record) })
}

/// Returns the request of a webhook as it was sent. Its URL has no sensitive value, so none is decrypted.
async fn evidence(context: AttemptContext<'_>, status: Option<u16>) -> FlowResult<Option<Box<Evidence>>> {
    let AttemptContext { run, unit, .. } = context;
    let Ok((known, _)) = dispatch::unit_inputs(context).await? else { return Ok(None) };
    let (plan, at) = (&run.loaded.plan, context.unit_ref());
    let context = UnitContext { plan, at, facts: &run.target_facts(), known: &known };
    let masked = |_: &SealedValue| Some(RenderValue::Json(MASK.into()));
    let Ok(RenderedUnit::Webhook(request)) = render::unit(context, Some(&masked)) else { return Ok(None) };
    let sent = SentRequest { method: &request.method, url: &request.url, headers: &[], opened: &[] };
    Ok(Some(Box::new(Evidence { status, ..sent.evidence(unit, None) })))
}
