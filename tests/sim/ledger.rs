//! What really happened outside, whatever the table says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use super::SimTaskId;

/// A request to start an attempt of a unit, as its receiver got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartEntry {
    pub unit: String,
    pub attempt: u32,
    /// When, in milliseconds of virtual time.
    pub at: u64,
    pub by: SimTaskId,
    /// What it read, by the name of the unit that made it.
    pub inputs: BTreeMap<String, String>,
    /// True if it started something, or found it there.
    pub fresh: bool,
}

/// How an attempt really ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishEntry {
    pub unit: String,
    pub attempt: u32,
    pub at: u64,
    pub well: bool,
}

/// All of it.
#[derive(Default)]
pub struct LedgerState {
    /// What exists: the name of the unit that made it, and its id.
    pub objects: BTreeSet<(String, String)>,
    pub sent: Vec<StartEntry>,
    pub finished: Vec<FinishEntry>,
    /// Work that runs and callbacks that are not taken yet.
    pub active: usize,
    /// Callbacks that were refused as wrong.
    pub refused: Vec<String>,
    /// What the platform was told, in order, with the time.
    pub notifications: Vec<(u64, String)>,
}

/// Keeps it.
#[derive(Default)]
pub struct Ledger(Mutex<LedgerState>);

impl Ledger {
    /// What happened so far.
    pub fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.0.lock().expect("no panic while it is held")
    }

    /// The requests that started the first attempt of each unit.
    pub fn starts(&self) -> BTreeMap<String, StartEntry> {
        let mut starts = BTreeMap::new();
        for sent in &self.state().sent {
            starts.entry(sent.unit.clone()).or_insert_with(|| sent.clone());
        }
        starts
    }

    /// When each unit first ended well.
    pub fn successes(&self) -> BTreeMap<String, u64> {
        let mut ends = BTreeMap::new();
        for end in self.state().finished.iter().filter(|end| end.well) {
            ends.entry(end.unit.clone()).or_insert(end.at);
        }
        ends
    }
}

/// Counts something as active for as long as it exists.
pub(super) struct ActiveGuard(std::sync::Arc<Ledger>);

impl ActiveGuard {
    pub(super) fn new(ledger: &std::sync::Arc<Ledger>) -> Self {
        ledger.state().active += 1;
        Self(std::sync::Arc::clone(ledger))
    }
}

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        self.0.state().active -= 1;
    }
}
