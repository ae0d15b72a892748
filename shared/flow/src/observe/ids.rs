//! Ids of traces and spans that follow from what they are of.

use std::collections::HashMap;

use ebb_wire::id::RunId;
use ebb_wire::unit::TRACEPARENT;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceState};
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use sha2::{Digest as _, Sha256};

use crate::dispatch::Try;

fn digest<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let all = <[u8; 32]>::from(digest.finalize());
    std::array::from_fn(|at| all[at])
}

/// A span that is sampled: whether anything is told at all is decided before.
pub(super) fn context(trace: TraceId, span: SpanId) -> SpanContext {
    SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE)
}

/// The span of a run, in the trace of that run.
pub(super) fn of_run(run: &RunId) -> SpanContext {
    let name = run.as_str().as_bytes();
    let trace = TraceId::from_bytes(digest(&[b"trace", name]));
    context(trace, SpanId::from_bytes(digest(&[b"run", name])))
}

/// The span of a try, in the trace of its run.
pub(super) fn of_try(run: &RunId, this: Try) -> SpanContext {
    let (unit, attempt) = (this.unit.0.to_be_bytes(), this.attempt.0.to_be_bytes());
    let span = digest(&[b"try", run.as_str().as_bytes(), &unit, &attempt]);
    context(of_run(run).trace_id(), SpanId::from_bytes(span))
}

/// A try as a W3C `traceparent`.
pub(super) fn traceparent(run: &RunId, this: Try) -> String {
    let of = of_try(run, this);
    format!("00-{}-{}-01", of.trace_id(), of.span_id())
}

/// Reads a `traceparent`; `None` for what is none.
pub(super) fn read(text: &str) -> Option<SpanContext> {
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), text.to_owned())]);
    let found = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    Some(found.span().span_context().clone()).filter(SpanContext::is_valid)
}

#[cfg(test)]
mod tests {
    use ebb_engine::{Attempt, Epoch, Moment, Unit};

    use super::*;

    #[test]
    fn ids_are_those_of_what_they_are_of() {
        let life = ebb_wire::id::life("sandbox", "demo", "1");
        let run = |generation| RunId::new(&life, generation, Moment::BeforeReady);
        let this = |unit, attempt| Try { unit: Unit(unit), attempt: Attempt(attempt), epoch: Epoch::FIRST };
        let text = traceparent(&run(1), this(3, 2));
        assert_eq!(text, traceparent(&run(1), this(3, 2)));
        let read = read(&text).unwrap();
        assert_eq!((read.trace_id(), read.is_sampled()), (of_run(&run(1)).trace_id(), true));
        let others = [traceparent(&run(2), this(3, 2)), traceparent(&run(1), this(2, 3))];
        assert!(!others.contains(&text) && others[0] != others[1], "{text} {others:?}");
        assert_eq!(others[1].split('-').nth(1), text.split('-').nth(1));
    }

    #[test]
    fn what_is_no_traceparent_is_left_alone() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(read(good).is_some());
        let long = format!("{good}{}", "-0".repeat(10_000));
        for text in ["", "00", &good.to_uppercase(), &good.replace("4bf9", "zzzz"), &good[3..], &long] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read("00-00000000000000000000000000000000-00f067aa0ba902b7-01"), None);
        assert_eq!(read("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"), None);
    }
}
