//! Builds the spans of an invocation.

use ebb_engine::{AttemptRef, RunOutcome, Timestamp};
use ebb_protocol::id::RunId;

use super::ids;
use super::metrics::Counter;
use super::sinks::SpanAttribute::{self, Number, Text};
use super::sinks::{FunctionKind, Span, SpanId, SpanKind, time};
use crate::loaded_run::Run;

pub(crate) type SpanTimes = (Timestamp, Timestamp);

/// The span of an invocation, and the spans that ended in it.
#[derive(Default)]
pub(super) struct InvocationTrace {
    span: u64,
    /// The trace, once it is known.
    trace: Option<u128>,
    parent: Option<SpanId>,
    links: Vec<SpanId>,
    attributes: Vec<(&'static str, SpanAttribute)>,
    /// True once the request is authentic and concerns runs. Otherwise no span is exported, so that unauthenticated
    /// senders cannot fill a collector.
    pub(super) is_authentic: bool,
    ended: Vec<Span>,
}

impl InvocationTrace {
    pub(super) fn new() -> Self {
        Self { span: rand::random(), ..Self::default() }
    }

    pub(super) fn event<'a>(&mut self, kind: &str, name: &str, parents: impl IntoIterator<Item = &'a str>) {
        self.is_authentic = true;
        self.attributes.push(("ebb.target", Text(format!("{kind}/{name}"))));
        if let Some(parent) = parents.into_iter().find_map(ids::read) {
            self.set_parent(parent);
        }
    }

    pub(super) fn callback(&mut self, run: &Run, attempt: AttemptRef) {
        self.is_authentic = true;
        self.attributes.extend(of_attempt(run, attempt));
        self.set_parent(ids::of_attempt(&run.id, attempt));
    }

    fn set_parent(&mut self, parent: SpanId) {
        self.trace = Some(parent.trace);
        self.parent = Some(parent);
    }

    /// Sets the trace to that of the first run which the invocation advances. Other runs become links.
    pub(super) fn drives(&mut self, run: &RunId) {
        self.is_authentic = true;
        let root = ids::of_run(run);
        match self.trace {
            None => self.set_parent(root),
            Some(trace) if trace == root.trace => {}
            Some(_) if self.links.contains(&root) => {}
            Some(_) => self.links.push(root),
        }
    }

    pub(super) fn dispatch_ended(
        &mut self,
        run: &Run,
        attempt: AttemptRef,
        times: SpanTimes,
        failure: Option<&'static str>,
    ) {
        let of = ids::of_attempt(&run.id, attempt);
        let trace = *self.trace.get_or_insert(of.trace);
        let own = ids::own(of.trace, rand::random());
        let mut span = span(own, Some(of), format!("dispatch {}", key(run, attempt)), times);
        span.kind = SpanKind::Client;
        span.attributes = of_attempt(run, attempt);
        span.failure = failure;
        if trace != of.trace {
            span.links.push(ids::own(trace, self.span));
        }
        self.ended.push(span);
    }

    pub(super) fn attempt_ended(&mut self, run: &Run, attempt: AttemptRef, end: Counter, times: SpanTimes) {
        let (own, root) = (ids::of_attempt(&run.id, attempt), ids::of_run(&run.id));
        let mut span = span(own, Some(root), format!("attempt {}", key(run, attempt)), times);
        span.attributes = of_attempt(run, attempt);
        span.failure = (end != Counter::Completed).then_some("failed");
        self.ended.push(span);
    }

    pub(super) fn run_ended(&mut self, run: &Run, outcome: Option<RunOutcome>, now: Timestamp) {
        let name = format!("run {}", run.hook().name());
        let mut span = span(ids::of_run(&run.id), None, name, (run.facts.started, now));
        span.attributes = of_run(run);
        span.failure = match outcome {
            Some(RunOutcome::Succeeded) => None,
            Some(RunOutcome::Failed) => Some("failed"),
            None => Some("cancelled"),
        };
        self.ended.push(span);
    }

    /// Returns all spans, including that of the invocation. Returns no spans if the request is not authentic.
    pub(super) fn finish(self, function: FunctionKind, request: &str, times: SpanTimes) -> Vec<Span> {
        let mut all = self.ended;
        if !self.is_authentic {
            return all;
        }
        let trace = self.trace.unwrap_or_else(rand::random);
        let mut span = span(ids::own(trace, self.span), self.parent, function.name().to_owned(), times);
        span.kind = match function {
            FunctionKind::Sweep => SpanKind::Internal,
            FunctionKind::Receive | FunctionKind::Complete | FunctionKind::Api => SpanKind::Server,
        };
        span.attributes = self.attributes;
        if !request.is_empty() {
            span.attributes.push(("faas.invocation_id", Text(request.to_owned())));
        }
        span.links = self.links;
        all.push(span);
        all
    }
}

fn key(run: &Run, attempt: AttemptRef) -> &str {
    run.unit(attempt.unit).map_or("", |unit| unit.key.as_str())
}

fn of_run(run: &Run) -> Vec<(&'static str, SpanAttribute)> {
    let target = run.facts.target_key().to_string();
    vec![("ebb.target", Text(target)), ("ebb.run", Text(run.id.to_string()))]
}

fn of_attempt(run: &Run, attempt: AttemptRef) -> Vec<(&'static str, SpanAttribute)> {
    let mut all = of_run(run);
    all.push(("ebb.unit", Text(key(run, attempt).to_owned())));
    all.push(("ebb.attempt", Number(i64::from(attempt.number.0))));
    all
}

/// Returns a span. A failure has a class without a message, because a message may repeat a received value.
fn span(id: SpanId, parent: Option<SpanId>, name: String, (begun, now): SpanTimes) -> Span {
    let (kind, begun, ended) = (SpanKind::Internal, time(begun.min(now)), time(now));
    let (attributes, links) = (Vec::new(), Vec::new());
    Span { id, parent, name, kind, begun, ended, attributes, links, failure: None }
}
