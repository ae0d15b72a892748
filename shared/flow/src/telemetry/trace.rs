//! The spans of an invocation.

use ebb_engine::{RunOutcome, Timestamp};
use ebb_protocol::id::{RunId, hook_name};

use super::sinks::SpanAttribute::{self, Number, Text};
use super::sinks::{FunctionKind, Span, SpanId, SpanKind};
use super::{AttemptDisposition, ids, time};
use crate::run::attempt::AttemptRef;
use crate::run::head::Run;

/// What is known of an invocation's own span, and the spans that it has ended.
pub(super) struct InvocationTrace {
    span: u64,
    /// Which trace it is in, once that is known.
    trace: Option<u128>,
    parent: Option<SpanId>,
    links: Vec<SpanId>,
    attributes: Vec<(&'static str, SpanAttribute)>,
    /// Set when what is asked for is authentic and about runs. Until then there is nothing to tell: whoever may send
    /// requests may not fill a collector.
    is_authentic: bool,
    ended: Vec<Span>,
}

impl InvocationTrace {
    pub(super) fn new() -> Self {
        Self {
            span: rand::random(),
            trace: None,
            parent: None,
            links: Vec::new(),
            attributes: Vec::new(),
            is_authentic: false,
            ended: Vec::new(),
        }
    }

    pub(super) fn event<'a>(&mut self, kind: &str, name: &str, parents: impl IntoIterator<Item = &'a str>) {
        self.is_authentic = true;
        self.attributes.push(("ebb.target", Text(format!("{kind}/{name}"))));
        if let Some(parent) = parents.into_iter().find_map(ids::read) {
            self.set_parent(parent);
        }
    }

    pub(super) fn callback(&mut self, run: &Run, this: AttemptRef) {
        self.is_authentic = true;
        self.attributes.extend(of_try(run, this));
        self.set_parent(ids::of_try(&run.id, this));
    }

    fn set_parent(&mut self, parent: SpanId) {
        self.trace = Some(parent.trace);
        self.parent = Some(parent);
    }

    pub(super) fn mark_authentic(&mut self) {
        self.is_authentic = true;
    }

    /// An invocation that is in no trace yet is in that of the first run which it moves on; the others it is linked to.
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

    pub(super) fn sent(
        &mut self,
        run: &Run,
        this: AttemptRef,
        begun: Timestamp,
        now: Timestamp,
        wrong: Option<&'static str>,
    ) {
        let of = ids::of_try(&run.id, this);
        let trace = *self.trace.get_or_insert(of.trace);
        let own = ids::own(of.trace, rand::random());
        let mut span = span(own, Some(of), format!("dispatch {}", key(run, this)), (begun, now));
        span.kind = SpanKind::Client;
        span.attributes = of_try(run, this);
        span.failure = wrong;
        if trace != of.trace {
            span.links.push(ids::own(trace, self.span));
        }
        self.ended.push(span);
    }

    pub(super) fn ended(
        &mut self,
        run: &Run,
        this: AttemptRef,
        end: AttemptDisposition,
        begun: Timestamp,
        now: Timestamp,
    ) {
        let (own, root) = (ids::of_try(&run.id, this), ids::of_run(&run.id));
        let mut span = span(own, Some(root), format!("attempt {}", key(run, this)), (begun, now));
        span.attributes = of_try(run, this);
        span.failure = (end != AttemptDisposition::Completed).then_some("failed");
        self.ended.push(span);
    }

    pub(super) fn over(&mut self, run: &Run, outcome: Option<RunOutcome>, now: Timestamp) {
        let name = format!("run {}", hook_name(run.hook()));
        let mut span = span(ids::of_run(&run.id), None, name, (run.facts.started, now));
        span.attributes = of_run(run);
        span.failure = match outcome {
            Some(RunOutcome::Succeeded) => None,
            Some(RunOutcome::Failed) => Some("failed"),
            None => Some("cancelled"),
        };
        self.ended.push(span);
    }

    /// All spans, that of the invocation among them; none if it has told nothing.
    pub(super) fn finish(self, function: FunctionKind, request: &str, times: (Timestamp, Timestamp)) -> Vec<Span> {
        let mut all = self.ended;
        if !self.is_authentic {
            return all;
        }
        let trace = self.trace.unwrap_or_else(rand::random);
        let (name, kind) = match function {
            FunctionKind::Receive => ("receive", SpanKind::Server),
            FunctionKind::Complete => ("complete", SpanKind::Server),
            FunctionKind::Sweep => ("sweep", SpanKind::Internal),
            FunctionKind::Api => ("api", SpanKind::Server),
        };
        let mut span = span(ids::own(trace, self.span), self.parent, name.to_owned(), times);
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

fn key(run: &Run, this: AttemptRef) -> &str {
    run.unit(this.unit).map_or("", |unit| unit.key.as_str())
}

fn of_run(run: &Run) -> Vec<(&'static str, SpanAttribute)> {
    let target = format!("{}/{}", run.facts.kind, run.facts.name);
    vec![("ebb.target", Text(target)), ("ebb.run", Text(run.id.to_string()))]
}

fn of_try(run: &Run, this: AttemptRef) -> Vec<(&'static str, SpanAttribute)> {
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
