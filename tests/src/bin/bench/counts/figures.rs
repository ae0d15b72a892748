//! The cost of a run, its documented limits, and the table of both.

use ebb_store::suite::TableUsage;
use serde::Serialize;

use super::{CountCase, ResultDelivery};
use crate::shapes::{RunGraph, RunShape, UnitOutputs};

/// Writes of a completion: one, or two with outputs.
const WRITES: [(UnitOutputs, u64); 2] = [(UnitOutputs::Nothing, 1), (UnitOutputs::Kept, 2)];
/// Writes of an acceptance (202) at most. Acceptances of one invocation share a write.
const ACCEPTED: u64 = 1;
/// Write units of the first run of an instance without its units: its entry in the history 1, start of target, run and plan
/// 8 (target 2, its list entry 1, run 2, its wake-up 1, plan 2), change to ready 1, close of the run 2.
const RUN_UNITS: u64 = 12;
/// Write requests of the first run without its units: entry, start, ready, close.
const RUN_WRITES: u64 = 4;
/// Units whose plan may be an object, which has a removal time. That is one more write.
const MIN_OBJECT_UNITS: u64 = 50;
/// Reads of the first run without its units: target, tombstone and plugin, the target at the end, target, run and target
/// again for the notification, the target after it, and the feed of changes at the start and at the end.
const RUN_READS: u64 = 10;
/// Reads of a run whose units one invocation dispatches and completes: target, tombstone and plugin, the target for the
/// notification, and the feed of changes, once in 5 s. No other invocation reads.
const OWN_READS: u64 = 6;
/// Reads of wake-ups that find a run not due or closed.
const IDLE_READS: u64 = 6;
/// Reads of an invocation that continues the dispatch of another one: head, records of the units, acceptances, and
/// inputs.
const SLICE_READS: u64 = 4;
/// Units that one invocation dispatches. Another invocation dispatches the rest, and the run becomes due.
const SLICE: u64 = 50;
/// Writes of an invocation that completes a join and cannot dispatch more: it makes the run due and passes on the unit
/// after the join, whose invocation takes the lease.
const JOIN_WRITES: u64 = 2;
/// Writes of an invocation of a chain that cannot dispatch more, like [`JOIN_WRITES`].
const CHAIN_WRITES: u64 = 2;
/// Maximum bytes of the head of a run without the progress of its units.
const FACTS_BYTES: u64 = 320;
/// Maximum bytes of a completed unit in the head.
const UNIT_BYTES: u64 = 2;
/// The bytes of the head for which a write unit is counted.
const KIB: u64 = 1024;
/// Records per page of a query. A record with a result has less than 1 KB.
const PAGE: u64 = 1000;

pub(crate) struct CountRow {
    pub(super) case: CountCase,
    pub(super) figures: TableUsage,
    pub(super) messages: usize,
    pub(super) webhooks: usize,
}

const READS: [&str; 3] = ["GetItem", "Query", "BatchGetItem"];

impl CountRow {
    fn requests(&self) -> u64 {
        self.figures.requests.values().sum()
    }

    fn reads(&self) -> u64 {
        READS.iter().filter_map(|operation| self.figures.requests.get(operation)).sum()
    }

    fn writes(&self) -> u64 {
        self.requests() - self.reads()
    }

    /// Returns the limits that do not hold.
    pub(crate) fn broken(&self) -> Vec<String> {
        let CountCase { graph: RunGraph { shape, units, outputs }, answers } = self.case;
        let units = units as u64;
        let writes = WRITES.iter().find(|row| row.0 == outputs).map_or(0, |row| row.1);
        let accepted = if answers == ResultDelivery::Later { ACCEPTED } else { 0 };
        let of_units = units * (writes + accepted);
        let invocations = units.div_ceil(SLICE);
        let pages = units.div_ceil(PAGE);
        let late = u64::from(shape.joins() && invocations > 1);
        let several_reads = RUN_READS + SLICE_READS * (invocations - 1 + late) + IDLE_READS;
        let per_pass = if shape == RunShape::Chain { CHAIN_WRITES } else { 1 };
        let passes = per_pass * invocations + JOIN_WRITES * late;
        let head_bytes = |done: u64| FACTS_BYTES + UNIT_BYTES * done;
        // The write units of a head above the first one.
        let more = |done: u64| (head_bytes(done) - 1) / KIB;
        let object = u64::from(units >= MIN_OBJECT_UNITS);
        let of_heads = (1..=units).map(more).sum::<u64>() + more(units) * passes;
        // A join reads its dependencies, and the notification reads the outputs.
        let queries = if shape.joins() { 2 * pages } else { pages };
        let most_reads = match answers {
            ResultDelivery::AtOnce if invocations == 1 => OWN_READS,
            _ => several_reads + queries,
        };
        let figures = &self.figures;
        let bounds = [
            ("write units", figures.write_units.ceil() as u64, of_units + of_heads + RUN_UNITS + object + passes),
            ("writes", self.writes(), of_units + RUN_WRITES + object + passes),
            ("reads", self.reads(), most_reads),
            ("bytes of the largest head", figures.largest_head as u64, head_bytes(units)),
            ("webhooks", self.webhooks as u64, units),
        ];
        let named = self.name();
        let broken = bounds.iter().filter(|(_, is, most)| is > most);
        broken.map(|(what, is, most)| format!("{named}: {is} {what}, the limit is {most}")).collect()
    }

    pub(crate) fn name(&self) -> String {
        let CountCase { graph: RunGraph { shape, units, outputs }, answers } = self.case;
        format!("{} of {units}, outputs {}, answered {}", word(shape), word(outputs), word(answers))
    }

    fn columns(&self) -> [(&'static str, String); 11] {
        let CountCase { graph: RunGraph { shape, units, outputs }, answers } = self.case;
        let figures = &self.figures;
        [
            ("shape", word(shape)),
            ("units", units.to_string()),
            ("outputs", word(outputs)),
            ("answered", word(answers)),
            ("requests", self.requests().to_string()),
            ("writes", self.writes().to_string()),
            ("reads", self.reads().to_string()),
            ("write units", figures.write_units.to_string()),
            ("per unit", format!("{:.3}", figures.write_units / units as f64)),
            ("head bytes", figures.largest_head.to_string()),
            ("messages", self.messages.to_string()),
        ]
    }
}

pub(crate) fn drawn(rows: &[CountRow]) -> String {
    let head = rows.iter().take(1).map(|row| row.columns().map(|(name, _)| name.to_owned()));
    let cells = rows.iter().map(|row| row.columns().map(|(_, cell)| cell));
    let line = |cells: [String; 11]| cells.map(|cell| format!("{cell:>12}")).concat();
    head.chain(cells).map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the name of a variant, as in JSON.
fn word(variant: impl Serialize) -> String {
    serde_json::json!(variant).as_str().unwrap_or_default().to_owned()
}
