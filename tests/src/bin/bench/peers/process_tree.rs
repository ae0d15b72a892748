//! CPU time and memory of processes and of all that they have started.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context as _;
use ebb_tests::figures::memory_mib;

/// Linux reports CPU time in this unit on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TreeUsage {
    /// User and system time, with that of processes that have ended.
    pub(crate) cpu_seconds: f64,
    /// Resident memory. A page that several processes share counts once (PSS).
    pub(crate) memory_mib: f64,
}

/// Returns the usage of the processes `roots` and their descendants. Fails if one of `roots` has ended.
pub(crate) fn usage(roots: &[u32]) -> anyhow::Result<TreeUsage> {
    let entries = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let processes: BTreeMap<u32, (u32, f64)> = entries.filter_map(|pid| Some((pid, times(pid)?))).collect();
    let mut tree = roots.to_vec();
    let mut next = 0;
    while let Some(&above) = tree.get(next) {
        tree.extend(processes.iter().filter(|(_, (parent, _))| *parent == above).map(|(pid, _)| *pid));
        next += 1;
    }
    let mut sum = TreeUsage::default();
    for pid in tree {
        let (_, ticks) = processes.get(&pid).with_context(|| format!("the process {pid} has ended"))?;
        sum.cpu_seconds += ticks / TICKS_PER_SECOND;
        sum.memory_mib += memory_mib(&format!("{pid}/smaps_rollup"), "Pss").unwrap_or_default();
    }
    Ok(sum)
}

/// Reads the parent of a process, and its time in ticks. The times of ended children are those of their parent.
fn times(pid: u32) -> Option<(u32, f64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may have spaces.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<f64>().ok()).sum::<Option<f64>>()?;
    Some((fields.get(1)?.parse().ok()?, ticks))
}
