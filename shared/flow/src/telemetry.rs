//! Gathers figures and spans of an invocation and hands them to [`MetricSink`] and [`SpanSink`] at its end.
//!
//! Everything is gathered in the task of the invocation and nowhere else: invocations beside each other do not see each
//! other's, and code that runs outside of one (tests of parts, the simulated world) gathers nothing.
//!
//! Nothing of a trace is stored. The trace of a run, the span of a run and that of a try have ids that follow from the
//! names of run and try (`ids`), so each of the invocations that move a run on can add to its trace by itself. Spans of
//! runs and tries are told by whoever wrote their end, which is one, because that write has a condition.

mod ids;
mod invocation;
mod metrics;
mod sinks;
mod trace;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ebb_engine::{Attempt, RunOutcome, Timestamp, Unit};
use ebb_protocol::id::RunId;

use crate::ports::Clock as _;
use crate::run::attempt::AttemptRef;
use crate::run::head::Run;
use crate::system::SystemClock;
use metrics::MetricCounters;
use trace::InvocationTrace;

pub use invocation::{InvocationOrigin, Telemetry};
pub use metrics::METRIC_NAMES;
pub use sinks::FunctionKind;
pub use sinks::{InvocationMetrics, MetricSink, Span, SpanAttribute, SpanId, SpanKind, SpanSink};

tokio::task_local! {
    static INVOCATION: Arc<InvocationTelemetry>;
}

/// What is gathered of one invocation.
struct InvocationTelemetry {
    function: FunctionKind,
    /// Its id, if it has one.
    request_id: String,
    /// `None`: nobody wants figures.
    sink: Option<Arc<dyn MetricSink>>,
    /// When what it is about has come in.
    started: Timestamp,
    counters: Mutex<MetricCounters>,
    /// The run that it moves on, and the unit that a callback is about.
    subject: Mutex<InvocationSubject>,
    /// When tries were begun, as far as it is known.
    begun: Mutex<HashMap<(RunId, Unit, Attempt), Timestamp>>,
    /// `None`: nobody collects spans.
    trace: Option<Mutex<InvocationTrace>>,
}

/// The subject of an invocation, for its metrics.
#[derive(Clone, Debug, Default)]
struct InvocationSubject {
    run: Option<String>,
    unit: Option<String>,
}

impl InvocationTelemetry {
    fn counters(&self) -> MutexGuard<'_, MetricCounters> {
        lock(&self.counters)
    }

    /// Tells the figures so far, and starts again at zero.
    fn export_metrics(&self) {
        let counters = std::mem::take(&mut *self.counters());
        let Some(sink) = &self.sink else { return };
        let at = time(SystemClock.now());
        if let Some(figures) = counters.into_metrics(self.function, &self.request_id, &lock(&self.subject), at) {
            sink.take(&figures);
        }
    }

    fn trace(&self) -> Option<MutexGuard<'_, InvocationTrace>> {
        self.trace.as_ref().map(lock)
    }
}

fn time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(at.0)
}

/// What is gathered is whole after every operation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count(count: impl FnOnce(&mut MetricCounters)) {
    // Outside of an invocation nobody counts.
    let _ = INVOCATION.try_with(|invocation| count(&mut invocation.counters()));
}

fn trace<T>(add: impl FnOnce(&mut InvocationTrace) -> T) -> Option<T> {
    INVOCATION.try_with(|invocation| invocation.trace().map(|mut trace| add(&mut trace))).ok().flatten()
}

/// How a try ended that moved its run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptDisposition {
    Completed,
    /// It failed, and another try follows.
    Retried,
    /// It failed, and with it the unit.
    Failed,
}

/// A lifecycle webhook has come that is authentic. `parents` are W3C trace contexts that came with it; the first one
/// that is well formed is continued.
pub fn webhook_received<'a>(kind: &str, name: &str, parents: impl IntoIterator<Item = &'a str>) {
    trace(|trace| trace.event(kind, name, parents));
}

/// A callback has come whose token is authentic, for a try that was sent at `sent`.
pub(crate) fn callback_received(run: &Run, this: AttemptRef, sent: Timestamp) {
    attempt_started(&run.id, this, sent);
    let unit = run.unit(this.unit).map(|unit| unit.key.clone());
    let subject = InvocationSubject { run: Some(run.id.to_string()), unit };
    let _ = INVOCATION.try_with(|invocation| *lock(&invocation.subject) = subject);
    trace(|trace| trace.callback(run, this));
}

/// This invocation moves a run on.
pub(crate) fn run_driven(run: &RunId) {
    // The first one: runs that follow it begin with its end.
    let _ = INVOCATION.try_with(|invocation| {
        lock(&invocation.subject).run.get_or_insert_with(|| run.to_string());
    });
    trace(|trace| trace.drives(run));
}

/// When a try was begun, by an earlier invocation.
pub(crate) fn attempt_started(run: &RunId, this: AttemptRef, at: Timestamp) {
    let _ = INVOCATION.try_with(|invocation| {
        lock(&invocation.begun).insert((run.clone(), this.unit, this.attempt), at);
    });
}

/// What whoever gets a try is told of its trace: a W3C `traceparent`. `None`: nobody collects spans.
pub(crate) fn traceparent(run: &RunId, this: AttemptRef) -> Option<String> {
    trace(|_| ids::traceparent(run, this))
}

/// The request for a try goes out now.
pub(crate) fn dispatch_started(run: &Run, this: AttemptRef, now: Timestamp) {
    // Of one invocation the first request alone: the others wait for their turn or for its answer.
    let _ = INVOCATION.try_with(|invocation| {
        invocation.counters().count_dispatch(invocation.function, now.since(invocation.started).0);
    });
    attempt_started(&run.id, this, now);
}

/// The request for a try, which went out at `begun`, is answered, or nobody waits any longer. `wrong` is the class of a
/// failure.
pub(crate) fn dispatch_ended(
    run: &Run,
    this: AttemptRef,
    begun: Timestamp,
    now: Timestamp,
    wrong: Option<&'static str>,
) {
    trace(|trace| trace.sent(run, this, begun, now, wrong));
}

/// A try has ended, and whoever calls this has written that.
pub(crate) fn attempt_ended(run: &Run, this: AttemptRef, end: AttemptDisposition, now: Timestamp) {
    let key = (run.id.clone(), this.unit, this.attempt);
    let begun = INVOCATION.try_with(|invocation| lock(&invocation.begun).get(&key).copied()).ok().flatten();
    count(|counters| counters.count_attempt(end, begun.map(|begun| now.since(begun).0)));
    trace(|trace| trace.ended(run, this, end, begun.unwrap_or(now), now));
}

/// A result came too late to count.
pub(crate) fn result_late() {
    count(|counters| counters.late_results += 1);
}

/// Counts a success beyond those that are kept of its attempt.
pub(crate) fn result_in_excess() {
    count(|counters| counters.excess_results += 1);
}

/// A run has ended, and whoever calls this has moved its target on.
pub(crate) fn run_ended(run: &Run, outcome: Option<RunOutcome>, now: Timestamp) {
    count(|counters| counters.run_time(now.since(run.facts.started).0));
    trace(|trace| trace.over(run, outcome, now));
}

/// The teardown of a target has given up. Told at once: an alarm waits for it, and whoever moves the target sees it once.
pub(crate) fn target_stuck() {
    let _ = INVOCATION.try_with(|invocation| {
        invocation.counters().stuck += 1;
        invocation.export_metrics();
    });
}

/// A sweep has looked at what is due, of which the most urgent was due for `late_ms`.
pub(crate) fn sweep_ended(looked: usize, late_ms: u64) {
    count(|counters| {
        counters.items_swept += looked as u64;
        counters.sweep_lag = Some(counters.sweep_lag.map_or(late_ms, |late| late.max(late_ms)));
    });
    if looked > 0 {
        trace(InvocationTrace::mark_authentic);
    }
}

/// Objects were found in a cluster that are left of lives that are over.
pub(crate) fn orphans_found(objects: usize) {
    count(|counters| counters.orphaned += objects as u64);
}
