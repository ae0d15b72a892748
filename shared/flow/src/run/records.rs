//! Converts ends of attempts into records, and records into values.

use std::collections::BTreeMap;

use ebb_documents::plan::Action;
use ebb_documents::render::{ProducerState, RenderValue as Rendered, SealedValue};
use ebb_engine::{Attempt, AttemptRef, Timestamp, Unit};
use ebb_protocol::{
    AttemptOutcome, AttemptRecord, AttemptResult, FailureReason, OutputStorage, OutputValue, Outputs, ReasonCode,
    RunId, UnitValue, id, limits,
};
use ebb_store::{LOGS, OUTPUTS, PutOutcome, UnitRecord};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};

use crate::{AttemptContext, AttemptEnd, Env, FlowError, FlowResult, Run, sealed_values};

/// The reason in the record of an undo that found nothing.
const FOUND_NOTHING: &str = "there was nothing to delete";

/// Maximum concurrent reads from the bucket per caller.
const MAX_READS: usize = 32;

/// The records of all attempts of units that may be in flight.
pub type OpenRecords = BTreeMap<(Unit, Attempt), AttemptRecord>;

/// Reads the records of the units of attempts that may be in flight, with the acceptances that were recorded together.
pub async fn read_open(env: &Env, run: &Run, attempts: &[(Unit, Attempt)]) -> FlowResult<OpenRecords> {
    let units: Vec<Unit> = attempts.iter().map(|(unit, _)| *unit).collect();
    with_accepted(env, run, &units, env.store.read_records(&run.id, &units).await?).await
}

/// Adds the acceptances of `units` that were recorded together to `records`.
pub async fn with_accepted(env: &Env, run: &Run, units: &[Unit], records: Vec<UnitRecord>) -> FlowResult<OpenRecords> {
    let mut records: BTreeMap<_, _> =
        records.into_iter().map(|(unit, attempt, record)| ((unit, attempt), record)).collect();
    let is_webhook = |unit: Unit| run.unit(unit).is_some_and(|unit| matches!(unit.action, Action::Webhook(_)));
    let webhooks: Vec<Unit> = units.iter().copied().filter(|&unit| is_webhook(unit)).collect();
    for (unit, attempt, at) in env.store.read_accepted(&run.id, &webhooks).await? {
        let record = records.entry((unit, attempt)).or_default();
        record.accepted = Some(record.accepted.map_or(at, |known| known.min(at)));
        // The rule for attempt records applies: an acceptance cancels an earlier postponement.
        record.next_dispatch = record.next_dispatch.filter(|&due| due > at);
    }
    Ok(records)
}

/// Returns the failure that an attempt follows, with the time at which the attempt may start. The success of an undo with
/// remaining results has a next attempt, too, but the invocation that recorded it dispatches that attempt.
pub(crate) fn awaited((unit, number): (Unit, Attempt), records: &OpenRecords) -> Option<(&AttemptResult, Timestamp)> {
    let before = Attempt(number.0.checked_sub(1)?);
    let failure = records.get(&(unit, before))?.result.as_ref()?;
    Some((failure, failure.next.filter(|_| failure.outcome == AttemptOutcome::Failed)?))
}

/// Writes the record of `ended`, unless the attempt has another result. `next` is the start of the next attempt, for a
/// failure that is retried. Large outputs are in the bucket before the record. The tail of the log is written at the
/// same time as the record. A reader that does not find it requests it from the relay, which keeps a result until it is
/// acknowledged.
///
/// # Errors
/// Returns an error if a write fails. The record may exist. The call can be repeated with the same result.
pub async fn put(
    context: AttemptContext<'_>,
    end: &AttemptEnd,
    next: Option<Timestamp>,
) -> FlowResult<(AttemptResult, PutOutcome)> {
    let AttemptContext { env, run, attempt: AttemptRef { unit, number, .. }, .. } = context;
    let (result, log) = build_result(context, end, next).await?;
    let record = env.store.put_result(&run.id, unit, number, &result);
    let tail = async {
        match log {
            Some(log) => env.store.bucket.put_object(&log_key(run, unit, number), log.as_bytes().to_vec()).await,
            None => Ok(()),
        }
    };
    let (put, tail) = futures::join!(record, tail);
    let put = put?;
    tail?;
    Ok((result, put))
}

/// Returns the record of `ended` and the tail of its log. Writes large outputs to the bucket.
pub async fn build_result<'a>(
    context: AttemptContext<'_>,
    end: &'a AttemptEnd,
    next: Option<Timestamp>,
) -> FlowResult<(AttemptResult, Option<&'a str>)> {
    let ended = |outcome, reason| AttemptResult { outcome, reason, ..AttemptResult::default() };
    let stopped = |outcome, code, why: &String| (ended(outcome, Some(clean_reason(code, why))), None, None);
    let (result, outputs, log) = match end {
        AttemptEnd::Succeeded(success) => {
            let reason = success.found_nothing.then(|| clean_reason(ReasonCode::Skipped, FOUND_NOTHING));
            let result = AttemptResult {
                duration_ms: success.duration_ms,
                removal: success.removal.clone().map(Box::new),
                sent_by: success.sent_by.as_deref().map(str::to_owned),
                made: success.made.clone(),
                ..ended(AttemptOutcome::Succeeded, reason)
            };
            (result, Some(&success.outputs), success.log.as_deref())
        }
        AttemptEnd::Failed(failure) => {
            let result = AttemptResult {
                duration_ms: failure.duration_ms,
                evidence: failure.evidence.clone(),
                sent_by: failure.sent_by.as_deref().map(str::to_owned),
                objects: failure.task.as_ref().map(|task| task.objects.clone()).unwrap_or_default(),
                unanswered: failure.leaves_unknown(context.unit),
                has_outputs: !failure.outputs.is_empty(),
                unsent: failure.is_unsent,
                ..ended(AttemptOutcome::Failed, Some(failure.reason.clone()))
            };
            (result, Some(&*failure.outputs), failure.task.as_ref().and_then(|task| task.log.as_deref()))
        }
        AttemptEnd::Skipped(why) => stopped(AttemptOutcome::Skipped, ReasonCode::Skipped, why),
        AttemptEnd::Cancelled(why) => stopped(AttemptOutcome::Cancelled, ReasonCode::Cancelled, why),
    };
    let log = log.filter(|log| !log.is_empty()).map(|log| tail(log, limits::LOG_TAIL));
    let (outputs, json) = match outputs {
        Some(outputs) if !outputs.is_empty() => store_outputs(context, outputs).await?,
        _ => (OutputStorage::Nothing, String::new()),
    };
    let outcome = format!("{:?}", result.outcome);
    // Two instances with the same outputs are two results.
    let parts: Vec<&str> = [&outcome, &json].into_iter().chain(&result.made).map(String::as_str).collect();
    let digest = id::short_digest(&parts, 26);
    let result = AttemptResult { at: context.env.now(), outputs, next, log: log.is_some(), digest, ..result };
    Ok((result, log))
}

/// Returns true if the last result of these records in the order of attempts is that of an undo that found nothing,
/// although a request of its undone unit had no response.
pub(crate) fn found_nothing(records: &[AttemptRecord]) -> bool {
    let last = records.last().and_then(|record| record.result.as_ref());
    last.is_some_and(|result| result.outcome == AttemptOutcome::Succeeded && result.reason.is_some())
}

fn clean_reason(code: ReasonCode, why: &str) -> FailureReason {
    FailureReason { code, message: limits::message(why) }
}

pub(super) async fn store_outputs(
    AttemptContext { env, run, attempt, .. }: AttemptContext<'_>,
    outputs: &Outputs,
) -> FlowResult<(OutputStorage, String)> {
    let json = serde_json::to_string(outputs)
        .map_err(|error| FlowError::Broken(format!("outputs cannot be written as JSON: {error}")))?;
    if json.len() <= limits::OUTPUTS_INLINE {
        return Ok((OutputStorage::Inline(outputs.clone()), json));
    }
    // The key contains the digest, so two results of one attempt do not overwrite each other.
    let digest = id::short_digest(&[&json], 26);
    let key = format!("{OUTPUTS}/{}/{}/{}/{digest}.json", run.id, attempt.unit.0, attempt.number.0);
    env.store.mark_outputs(&run.id).await?;
    env.store.bucket.put_object(&key, json.clone().into_bytes()).await?;
    Ok((OutputStorage::Bucket(key), json))
}

pub fn log_key(run: &Run, unit: Unit, attempt: Attempt) -> String {
    format!("{LOGS}/{}/{}/{}.log", run.id, unit.0, attempt.0)
}

/// Returns the last bytes of `text`, from a character boundary.
pub fn tail(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Reads the outputs of many results, 32 at the same time. Returns `keep` of each, in no order.
///
/// # Errors
/// Returns [`FlowError::Broken`] if an object is missing or invalid.
pub(crate) async fn read_all_outputs<K: Send + Sync, T: Send>(
    env: &Env,
    results: impl IntoIterator<Item = (K, OutputStorage)>,
    keep: impl Fn(&K, Outputs) -> T + Send + Sync,
) -> FlowResult<Vec<(K, T)>> {
    let keep = &keep;
    let read = |(of, stored): (K, OutputStorage)| {
        async move {
            let made = read_outputs(env, &stored, |outputs| keep(&of, outputs)).await?;
            Ok((of, made))
        }
        .boxed()
    };
    let reads: Vec<_> = results.into_iter().map(read).collect();
    futures::stream::iter(reads).buffer_unordered(MAX_READS).try_collect().await
}

/// Reads outputs and returns `keep` of them. For outputs in the bucket, waits for permits for their bytes, and holds
/// them until `keep` returns.
///
/// # Errors
/// Returns [`FlowError::Broken`] if the object is missing or invalid.
pub(crate) async fn read_outputs<T>(
    env: &Env,
    stored: &OutputStorage,
    keep: impl FnOnce(Outputs) -> T,
) -> FlowResult<T> {
    let key = match stored {
        OutputStorage::Nothing => return Ok(keep(Outputs::new())),
        OutputStorage::Inline(outputs) => return Ok(keep(outputs.clone())),
        OutputStorage::Bucket(key) => key,
    };
    let broken = |reason: String| FlowError::Broken(format!("{key}: {reason}"));
    let object = env.store.bucket.open_object(key).await?;
    let object = object.ok_or_else(|| broken("it is not in the bucket".to_owned()))?;
    let _permit = env.cache.budgets.bytes.reserve(object.bytes.unwrap_or(limits::OUTPUTS)).await;
    let bytes = object.read().await?;
    let outputs = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
    drop(bytes);
    Ok(keep(outputs))
}

/// Returns the outputs that an attempt reported. Sensitive ones stay hidden.
pub async fn shown_outputs(env: &Env, run: &RunId, attempt: AttemptRef) -> FlowResult<BTreeMap<String, OutputValue>> {
    let mut records = env.store.read_records(run, &[attempt.unit]).await?.into_iter();
    let record = records.find(|(_, number, _)| *number == attempt.number);
    let stored = record.and_then(|(_, _, record)| record.result).map(|result| result.outputs).unwrap_or_default();
    let shown = |outputs: Outputs| outputs.into_iter().map(|(name, value)| (name, OutputValue::from(value))).collect();
    read_outputs(env, &stored, shown).await
}

/// Returns the outputs of a unit of `run` for its readers.
pub(crate) fn produced(run: &RunId, unit: Unit, outputs: Outputs) -> ProducerState {
    let rendered = |(name, value): (String, UnitValue)| {
        let value = match value {
            UnitValue::Json(json) => Rendered::Json(json),
            UnitValue::Bytes(bytes) => Rendered::Bytes(bytes),
            UnitValue::Secret(secret) => Rendered::Secret(secret),
            UnitValue::Sealed(text) => {
                let place = sealed_values::output_place(run, unit, &name);
                Rendered::Sealed(SealedValue { place, text })
            }
        };
        (name, value)
    };
    ProducerState::Outputs(outputs.into_iter().map(rendered).collect())
}

pub(crate) fn from_rendered(value: Rendered) -> UnitValue {
    match value {
        Rendered::Json(json) => UnitValue::Json(json),
        Rendered::Bytes(bytes) => UnitValue::Bytes(bytes),
        Rendered::Secret(secret) => UnitValue::Secret(secret),
        Rendered::Sealed(sealed) => UnitValue::Sealed(sealed.text),
    }
}

pub(crate) fn has_code(record: &AttemptRecord, code: ReasonCode) -> bool {
    let reason = record.result.as_ref().and_then(|result| result.reason.as_ref());
    reason.is_some_and(|reason| reason.code == code)
}

pub fn started_at(record: &AttemptRecord) -> Option<Timestamp> {
    record.started.into_iter().chain(record.accepted).min()
}
