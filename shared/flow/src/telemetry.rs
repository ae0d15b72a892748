//! Collects metrics and spans of an invocation and exports them to [`MetricSink`] and [`SpanSink`] at its end.
//!
//! They are collected in the task of the invocation, so concurrent invocations are separate, and code outside of an
//! invocation collects nothing.
//!
//! No trace is stored. The ids of the traces and spans of runs and attempts are derived from their names (`ids`), so
//! each invocation can add spans to the trace of a run. The writer of the end of a run or attempt reports its span. The
//! write is conditional, so there is one writer.

mod ids;
mod invocation;
mod metrics;
mod sinks;
mod trace;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use ebb_engine::{Attempt, AttemptRef, RunOutcome, Timestamp, Unit};
use ebb_protocol::id::RunId;

use crate::ports::Clock as _;
use crate::system::SystemClock;
use crate::{Run, lock};
use metrics::{InvocationSubject, MetricCounters};
use sinks::time;
use trace::{InvocationTrace, SpanTimes};

pub use invocation::{InvocationOrigin, Telemetry};
pub(crate) use metrics::Counter;
pub use metrics::{METRIC_COUNTS, METRIC_TIMES, metric_names};
pub use sinks::{FunctionKind, InvocationMetrics, MetricSink, Span, SpanAttribute, SpanId, SpanKind, SpanSink};

tokio::task_local! {
    static INVOCATION: Arc<InvocationTelemetry>;
}

struct InvocationTelemetry {
    function: FunctionKind,
    /// The request id, or an empty text.
    request_id: String,
    /// `None` means that metrics are disabled.
    sink: Option<Arc<dyn MetricSink>>,
    /// The time at which the request was received.
    started: Timestamp,
    counters: Mutex<MetricCounters>,
    subject: Mutex<InvocationSubject>,
    begun: Mutex<HashMap<(RunId, Unit, Attempt), Timestamp>>,
    /// `None` means that tracing is disabled.
    trace: Option<Mutex<InvocationTrace>>,
}

impl InvocationTelemetry {
    fn counters(&self) -> MutexGuard<'_, MetricCounters> {
        lock(&self.counters)
    }

    fn export_metrics(&self) {
        let counters = std::mem::take(&mut *self.counters());
        let Some(sink) = &self.sink else { return };
        let at = time(SystemClock.now());
        if let Some(metrics) = counters.into_metrics(self.function, &self.request_id, &lock(&self.subject), at) {
            sink.take(&metrics);
        }
    }

    fn trace(&self) -> Option<MutexGuard<'_, InvocationTrace>> {
        self.trace.as_ref().map(lock)
    }
}

fn record(record: impl FnOnce(&mut MetricCounters)) {
    // This fails outside of an invocation, where nothing is counted.
    let _ = INVOCATION.try_with(|invocation| record(&mut invocation.counters()));
}

pub(crate) fn count(counter: Counter, number: u64) {
    record(|counters| counters.add(counter, number));
}

/// Counts and exports the count at once, because an alarm depends on it.
pub(crate) fn count_for_alarm(counter: Counter, number: u64) {
    let _ = INVOCATION.try_with(|invocation| {
        invocation.counters().add(counter, number);
        invocation.export_metrics();
    });
}

fn trace<T>(add: impl FnOnce(&mut InvocationTrace) -> T) -> Option<T> {
    INVOCATION.try_with(|invocation| invocation.trace().map(|mut trace| add(&mut trace))).ok().flatten()
}

/// Records an authentic lifecycle webhook. The first valid W3C trace context of `parents` is continued.
pub fn webhook_received<'a>(kind: &str, name: &str, parents: impl IntoIterator<Item = &'a str>) {
    trace(|trace| trace.event(kind, name, parents));
}

/// Records an authentic callback for an attempt that was dispatched at `sent`.
pub(crate) fn callback_received(run: &Run, attempt: AttemptRef, sent: Timestamp) {
    attempt_started(&run.id, attempt, sent);
    let unit = run.unit(attempt.unit).map(|unit| unit.key.clone());
    let subject = InvocationSubject { run: Some(run.id.to_string()), unit };
    let _ = INVOCATION.try_with(|invocation| *lock(&invocation.subject) = subject);
    trace(|trace| trace.callback(run, attempt));
}

pub(crate) fn run_driven(run: &RunId) {
    // Only the first run counts. Later runs begin with its end.
    let _ = INVOCATION.try_with(|invocation| {
        lock(&invocation.subject).run.get_or_insert_with(|| run.to_string());
    });
    trace(|trace| trace.drives(run));
}

/// Records the start of an attempt by an earlier invocation.
pub(crate) fn attempt_started(run: &RunId, attempt: AttemptRef, at: Timestamp) {
    let _ = INVOCATION.try_with(|invocation| {
        lock(&invocation.begun).insert((run.clone(), attempt.unit, attempt.number), at);
    });
}

/// Returns the W3C `traceparent` for an attempt, or `None` if tracing is disabled.
pub(crate) fn traceparent(run: &RunId, attempt: AttemptRef) -> Option<String> {
    trace(|_| ids::traceparent(run, attempt))
}

pub(crate) fn dispatch_started(run: &Run, attempt: AttemptRef, now: Timestamp) {
    // Only the first request of an invocation counts. Others wait for a slot or for its response.
    let _ = INVOCATION.try_with(|invocation| {
        invocation.counters().count_dispatch(invocation.function, now.since(invocation.started).0);
    });
    attempt_started(&run.id, attempt, now);
}

/// Records the end of a dispatch with the times of its start and end. `failure` is the class of an error.
pub(crate) fn dispatch_ended(run: &Run, attempt: AttemptRef, times: SpanTimes, failure: Option<&'static str>) {
    trace(|trace| trace.dispatch_ended(run, attempt, times, failure));
}

/// Records the end of an attempt that advanced its run, by its count. The writer of that end calls this.
pub(crate) fn attempt_ended(run: &Run, attempt: AttemptRef, end: Counter, now: Timestamp) {
    let key = (run.id.clone(), attempt.unit, attempt.number);
    let begun = INVOCATION.try_with(|invocation| lock(&invocation.begun).get(&key).copied()).ok().flatten();
    record(|counters| counters.count_attempt(end, begun.map(|begun| now.since(begun).0)));
    let failed = run.unit(attempt.unit).filter(|_| end == Counter::Failed);
    if let Some(plugin) = failed.and_then(|unit| run.plugin(unit)) {
        record(|counters| *counters.failed_of_plugins.entry(plugin.to_owned()).or_default() += 1);
    }
    trace(|trace| trace.attempt_ended(run, attempt, end, (begun.unwrap_or(now), now)));
}

/// Records the end of a run. The invocation that moved its target calls this.
pub(crate) fn run_ended(run: &Run, outcome: Option<RunOutcome>, now: Timestamp) {
    record(|counters| counters.run_times.push(now.since(run.facts.started).0));
    trace(|trace| trace.run_ended(run, outcome, now));
}

/// Records a sweep. The most urgent item was overdue by `late_ms`.
pub(crate) fn sweep_ended(items: usize, late_ms: u64) {
    record(|counters| {
        counters.add(Counter::ItemsSwept, items as u64);
        counters.sweep_lag = Some(counters.sweep_lag.map_or(late_ms, |late| late.max(late_ms)));
    });
    if items > 0 {
        trace(|trace| trace.is_authentic = true);
    }
}
