//! The spans of an invocation.

use ebb_engine::{Outcome, Timestamp};
use ebb_wire::id::{RunId, event_name};

use super::sinks::Attribute::{self, Number, Text};
use super::sinks::{Span, SpanId, SpanKind};
use super::telemetry::Function;
use super::{End, ids, time};
use crate::dispatch::Try;
use crate::run::Run;

/// What is known of an invocation's own span, and the spans that it has ended.
pub(super) struct Trace {
    own: u64,
    /// Which trace it is in, once that is known.
    of: Option<u128>,
    parent: Option<SpanId>,
    links: Vec<SpanId>,
    attributes: Vec<(&'static str, Attribute)>,
    /// Set when what is asked for is authentic and about runs. Until then there is nothing to tell: whoever may send
    /// requests may not fill a collector.
    proven: bool,
    ended: Vec<Span>,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self {
            own: rand::random(),
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
        self.attributes.push(("ebb.target", Text(format!("{kind}/{name}"))));
        if let Some(parent) = parents.into_iter().find_map(ids::read) {
            self.below(parent);
        }
    }

    pub(super) fn callback(&mut self, run: &Run, this: Try) {
        self.proven = true;
        self.attributes.extend(of_try(run, this));
        self.below(ids::of_try(&run.id, this));
    }

    fn below(&mut self, parent: SpanId) {
        self.of = Some(parent.trace);
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
            Some(trace) if trace == root.trace => {}
            Some(_) if self.links.contains(&root) => {}
            Some(_) => self.links.push(root),
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
        let trace = *self.of.get_or_insert(of.trace);
        let own = ids::own(of.trace, rand::random());
        let mut span = span(own, Some(of), format!("dispatch {}", key(run, this)), (begun, now));
        span.kind = SpanKind::Client;
        span.attributes = of_try(run, this);
        span.failure = wrong;
        if trace != of.trace {
            span.links.push(ids::own(trace, self.own));
        }
        self.ended.push(span);
    }

    pub(super) fn ended(&mut self, run: &Run, this: Try, end: End, begun: Timestamp, now: Timestamp) {
        let (own, root) = (ids::of_try(&run.id, this), ids::of_run(&run.id));
        let mut span = span(own, Some(root), format!("unit {}", key(run, this)), (begun, now));
        span.attributes = of_try(run, this);
        span.failure = (end != End::Completed).then_some("failed");
        self.ended.push(span);
    }

    pub(super) fn over(&mut self, run: &Run, outcome: Option<Outcome>, now: Timestamp) {
        let name = format!("run {}", event_name(run.moment()));
        let mut span = span(ids::of_run(&run.id), None, name, (run.facts.started, now));
        span.attributes = of_run(run);
        span.failure = match outcome {
            Some(Outcome::Succeeded) => None,
            Some(Outcome::Failed) => Some("failed"),
            None => Some("cancelled"),
        };
        self.ended.push(span);
    }

    /// All spans, that of the invocation among them; none if it has told nothing.
    pub(super) fn finish(
        self,
        function: Function,
        request: &str,
        times: (Timestamp, Timestamp),
    ) -> Vec<Span> {
        let mut all = self.ended;
        if !self.proven {
            return all;
        }
        let trace = self.of.unwrap_or_else(rand::random);
        let (name, kind) = match function {
            Function::Receive => ("event received", SpanKind::Server),
            Function::Complete => ("completion received", SpanKind::Server),
            Function::Sweep => ("sweep", SpanKind::Internal),
            Function::Api => ("asked", SpanKind::Server),
        };
        let mut span = span(ids::own(trace, self.own), self.parent, name.to_owned(), times);
        span.kind = kind;
        span.attributes = self.attributes;
        if !request.is_empty() {
            span.attributes.push(("faas.invocation_id", Text(request.to_owned())));
        }
        span.links = self.links;
        all.push(span);
        all
    }
}

fn key(run: &Run, this: Try) -> &str {
    run.unit(this.unit).map_or("", |unit| unit.key.as_str())
}

fn of_run(run: &Run) -> Vec<(&'static str, Attribute)> {
    let target = format!("{}/{}", run.facts.kind, run.facts.name);
    vec![("ebb.target", Text(target)), ("ebb.run", Text(run.id.to_string()))]
}

fn of_try(run: &Run, this: Try) -> Vec<(&'static str, Attribute)> {
    let mut all = of_run(run);
    all.push(("ebb.unit", Text(key(run, this).to_owned())));
    all.push(("ebb.attempt", Number(i64::from(this.attempt.0))));
    all
}

/// A failure is a class without a message: a message may repeat a received value.
fn span(id: SpanId, parent: Option<SpanId>, name: String, (begun, now): (Timestamp, Timestamp)) -> Span {
    Span {
        id,
        parent,
        name,
        kind: SpanKind::Internal,
        begun: time(begun.min(now)),
        ended: time(now),
        attributes: Vec::new(),
        links: Vec::new(),
        failure: None,
    }
}
