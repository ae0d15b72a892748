//! The figures of all rounds, and their table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ebb_tests::figures::median;

use super::EngineKind;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PeerRow {
    One,
    Chain,
    Fan10,
    Fan100,
    Throughput,
    Memory,
    MemoryWithWorker,
    Cpu,
    CpuWithWorker,
}

impl PeerRow {
    fn title(self) -> &'static str {
        match self {
            Self::One => "run of one unit, ms",
            Self::Chain => "chain of 10, ms per unit",
            Self::Fan10 => "1→10→1, ms per unit",
            Self::Fan100 => "1→100→1, ms per unit",
            Self::Throughput => "units/s, all callers, chains of 10",
            Self::Memory => "memory of the engine, MiB",
            Self::MemoryWithWorker => "memory with the worker, MiB",
            Self::Cpu => "CPU of the engine, µs per unit",
            Self::CpuWithWorker => "CPU with the worker, µs per unit",
        }
    }
}

/// One value for each round, row and engine.
#[derive(Default)]
pub(crate) struct Comparison(BTreeMap<PeerRow, BTreeMap<EngineKind, Vec<f64>>>);

impl Comparison {
    pub(crate) fn add(&mut self, row: PeerRow, engine: EngineKind, value: f64) {
        self.0.entry(row).or_default().entry(engine).or_default().push(value);
    }

    /// Returns the medians with the least and the greatest value, as a table in Markdown.
    pub(crate) fn drawn(&self, engines: &[EngineKind]) -> String {
        let with_ratio = engines.contains(&EngineKind::Ebb) && engines.contains(&EngineKind::Restate);
        let titles = engines.iter().map(|engine| engine.title().to_owned());
        let titles: Vec<String> = titles.chain(with_ratio.then(|| "Ebb / Restate".to_owned())).collect();
        let mut text = line("", &titles) + &line("---", &vec!["---".to_owned(); titles.len()]);
        for (row, values) in &self.0 {
            let cells = engines.iter().map(|engine| values.get(engine).map_or("–".to_owned(), |values| cell(values)));
            let ratio = with_ratio.then(|| match (values.get(&EngineKind::Ebb), values.get(&EngineKind::Restate)) {
                (Some(ebb), Some(restate)) => format!("{:.2}", median(ebb) / median(restate)),
                _ => "–".to_owned(),
            });
            text += &line(row.title(), &cells.chain(ratio).collect::<Vec<_>>());
        }
        text
    }
}

fn line(title: &str, cells: &[String]) -> String {
    let mut text = format!("| {title} |");
    for cell in cells {
        // Writing to a string does not fail.
        let _ = write!(text, " {cell} |");
    }
    text + "\n"
}

fn cell(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let digits = if median(values) < 100.0 { 2 } else { 0 };
    format!("{:.digits$} ({least:.digits$}–{most:.digits$})", median(values))
}
