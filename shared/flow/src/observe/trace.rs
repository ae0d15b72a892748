//! The spans of an invocation.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use ebb_engine::{Outcome, Timestamp};
use ebb_wire::id::{RunId, event_name};
use opentelemetry::trace::{Link, SpanContext, SpanKind, Status};
use opentelemetry::{InstrumentationScope, KeyValue, SpanId, TraceId};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::telemetry::Function;
use super::{End, ids};
use crate::dispatch::Try;
use crate::run::Run;

/// What is known of an invocation's own span, and the spans that it has ended.
pub(super) struct Trace {
    own: SpanId,
    /// Which trace it is in, once that is known.
    of: Option<TraceId>,
    parent: Option<SpanContext>,
    links: Vec<Link>,
    attributes: Vec<KeyValue>,
    /// Set when what is asked for is authentic and about runs. Until then there is nothing to tell: whoever may send
    /// requests may not fill a collector.
    proven: bool,
    ended: Vec<SpanData>,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self {
            own: SpanId::from_bytes(rand::random()),
            of: None,
            parent: None,
            links: Vec::new(),
            attributes: Vec::new(),
            proven: false,
            ended: Vec::new(),
        }
    }

    pub(super) fn event<'a>(&mut self, kind: &str, name: &str, parents: impl IntoIterator<Item = &'a str>) {
        self.proven = true;
        self.attributes.push(KeyValue::new("ebb.target", format!("{kind}/{name}")));
        if let Some(parent) = parents.into_iter().find_map(ids::read) {
            self.below(parent);
        }
    }

    pub(super) fn callback(&mut self, run: &Run, this: Try) {
        self.proven = true;
        self.attributes.extend(of_try(run, this));
        self.below(ids::of_try(&run.id, this));
    }

    fn below(&mut self, parent: SpanContext) {
        self.of = Some(parent.trace_id());
        self.parent = Some(parent);
    }

    pub(super) fn proven(&mut self) {
        self.proven = true;
    }

    /// An invocation that is in no trace yet is in that of the first run which it moves on; the others it is linked to.
    pub(super) fn drives(&mut self, run: &RunId) {
        self.proven = true;
        let root = ids::of_run(run);
        match self.of {
            None => self.below(root),
            Some(trace) if trace == root.trace_id() => {}
            Some(_) if self.links.iter().any(|link| link.span_context == root) => {}
            Some(_) => self.links.push(Link::with_context(root)),
        }
    }

    pub(super) fn sent(
        &mut self,
        run: &Run,
        this: Try,
        begun: Timestamp,
        now: Timestamp,
        wrong: Option<&'static str>,
    ) {
        let of = ids::of_try(&run.id, this);
        let trace = *self.of.get_or_insert(of.trace_id());
        let own = ids::context(of.trace_id(), SpanId::from_bytes(rand::random()));
        let mut span = span(own, Some(&of), format!("dispatch {}", key(run, this)), (begun, now));
        span.span_kind = SpanKind::Client;
        span.attributes = of_try(run, this);
        span.status = status(wrong);
        if trace != of.trace_id() {
            span.links.links.push(Link::with_context(ids::context(trace, self.own)));
        }
        self.ended.push(span);
    }

    pub(super) fn ended(&mut self, run: &Run, this: Try, end: End, begun: Timestamp, now: Timestamp) {
        let (own, root) = (ids::of_try(&run.id, this), ids::of_run(&run.id));
        let mut span = span(own, Some(&root), format!("unit {}", key(run, this)), (begun, now));
        span.attributes = of_try(run, this);
        span.status = status((end != End::Completed).then_some("failed"));
        self.ended.push(span);
    }

    pub(super) fn over(&mut self, run: &Run, outcome: Option<Outcome>, now: Timestamp) {
        let name = format!("run {}", event_name(run.moment()));
        let mut span = span(ids::of_run(&run.id), None, name, (run.facts.started, now));
        span.attributes = of_run(run);
        span.status = match outcome {
            Some(Outcome::Succeeded) => status(None),
            Some(Outcome::Failed) => status(Some("failed")),
            None => status(Some("cancelled")),
        };
        self.ended.push(span);
    }

    /// All spans, that of the invocation among them; none if it has told nothing.
    pub(super) fn finish(
        self,
        function: Function,
        request: &str,
        times: (Timestamp, Timestamp),
    ) -> Vec<SpanData> {
        let mut all = self.ended;
        if !self.proven {
            return all;
        }
        let trace = self.of.unwrap_or_else(|| TraceId::from_bytes(rand::random()));
        let (name, kind) = match function {
            Function::Receive => ("event received", SpanKind::Server),
            Function::Complete => ("completion received", SpanKind::Server),
            Function::Sweep => ("sweep", SpanKind::Internal),
            Function::Api => ("asked", SpanKind::Server),
        };
        let mut span = span(ids::context(trace, self.own), self.parent.as_ref(), name, times);
        span.span_kind = kind;
        span.attributes = self.attributes;
        if !request.is_empty() {
            span.attributes.push(KeyValue::new("faas.invocation_id", request.to_owned()));
        }
        span.links.links = self.links;
        all.push(span);
        all
    }
}

fn key(run: &Run, this: Try) -> &str {
    run.unit(this.unit).map_or("", |unit| unit.key.as_str())
}

fn of_run(run: &Run) -> Vec<KeyValue> {
    vec![
        KeyValue::new("ebb.target", format!("{}/{}", run.facts.kind, run.facts.name)),
        KeyValue::new("ebb.run", run.id.to_string()),
    ]
}

fn of_try(run: &Run, this: Try) -> Vec<KeyValue> {
    let mut all = of_run(run);
    all.push(KeyValue::new("ebb.unit", key(run, this).to_owned()));
    all.push(KeyValue::new("ebb.attempt", i64::from(this.attempt.0)));
    all
}

/// A class and no words: a message may repeat what somebody has sent.
fn status(wrong: Option<&'static str>) -> Status {
    wrong.map_or(Status::Unset, Status::error)
}

fn time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(at.0)
}

fn span(
    own: SpanContext,
    parent: Option<&SpanContext>,
    name: impl Into<Cow<'static, str>>,
    (begun, now): (Timestamp, Timestamp),
) -> SpanData {
    SpanData {
        span_context: own,
        parent_span_id: parent.map_or(SpanId::INVALID, SpanContext::span_id),
        parent_span_is_remote: parent.is_some_and(SpanContext::is_remote),
        span_kind: SpanKind::Internal,
        name: name.into(),
        start_time: time(begun.min(now)),
        end_time: time(now),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("ebb").build(),
    }
}
