//! Derives ids of traces and spans from the names of runs and attempts.

use ebb_engine::AttemptRef;
use ebb_protocol::id::RunId;
use sha2::{Digest as _, Sha256};

use super::sinks::SpanId;

fn digest<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let all = <[u8; 32]>::from(digest.finalize());
    std::array::from_fn(|at| all[at])
}

/// Returns the id of a local span.
pub(super) fn own(trace: u128, span: u64) -> SpanId {
    SpanId { trace, span, is_remote: false }
}

pub(super) fn of_run(run: &RunId) -> SpanId {
    let name = run.as_str().as_bytes();
    let trace = u128::from_be_bytes(digest(&[b"trace", name]));
    own(trace, u64::from_be_bytes(digest(&[b"run", name])))
}

pub(super) fn of_attempt(run: &RunId, attempt: AttemptRef) -> SpanId {
    let (unit, number) = (attempt.unit.0.to_be_bytes(), attempt.number.0.to_be_bytes());
    let span = digest(&[b"try", run.as_str().as_bytes(), &unit, &number]);
    own(of_run(run).trace, u64::from_be_bytes(span))
}

pub(super) fn traceparent(run: &RunId, attempt: AttemptRef) -> String {
    let SpanId { trace, span, .. } = of_attempt(run, attempt);
    format!("00-{trace:032x}-{span:016x}-01")
}

/// Parses a W3C `traceparent`. Later versions than 00 may have more parts.
pub(super) fn read(text: &str) -> Option<SpanId> {
    let mut parts = text.trim().split('-');
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let mut next = |digits| parts.next().filter(|part| part.len() == digits && part.bytes().all(is_digit));
    let (version, trace, span, _flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
    if version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
    let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
    Some(SpanId { trace, span, is_remote: true })
}

#[cfg(test)]
mod tests {
    use ebb_engine::{Attempt, Epoch, Hook, Unit};

    use super::*;
    use crate::tests::rows;

    #[test]
    fn ids_are_derived_from_names() {
        let instance = ebb_protocol::id::instance_key("sandbox", "demo", "1");
        let run = |generation| RunId::new(&instance, generation, Hook::PreStart);
        let attempt = |unit, number| AttemptRef { unit: Unit(unit), number: Attempt(number), epoch: Epoch::FIRST };
        let text = traceparent(&run(1), attempt(3, 2));
        assert_eq!(text, traceparent(&run(1), attempt(3, 2)));
        let of = of_attempt(&run(1), attempt(3, 2));
        assert_eq!(read(&text), Some(SpanId { is_remote: true, ..of }));
        assert_eq!(of.trace, of_run(&run(1)).trace);
        let others = [traceparent(&run(2), attempt(3, 2)), traceparent(&run(1), attempt(2, 3))];
        assert!(!others.contains(&text) && others[0] != others[1], "{text} {others:?}");
        assert_eq!(others[1].split('-').nth(1), text.split('-').nth(1));
    }

    #[test]
    fn invalid_traceparents_are_ignored() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (trace, span) = (0x4bf92f3577b34da6a3ce929d0e0e4736, 0x00f067aa0ba902b7);
        let expected = Some(SpanId { trace, span, is_remote: true });
        // A later version may have further parts.
        let later = format!("01{}-more", &good[2..]);
        for text in [good, &format!(" {good} "), &later] {
            assert_eq!(read(text), expected, "{text}");
        }
        let long = format!("{good}{}", "-0".repeat(10_000));
        for text in rows::<String>("invalid_traceparents").into_iter().chain([long]) {
            assert_eq!(read(&text), None, "{text}");
        }
    }
}
