//! Figures of measurements.

use anyhow::Context as _;

/// Returns the median. There is at least one value.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.len() / 2;
    let lower = (sorted.len() - 1) / 2;
    f64::midpoint(sorted[lower], sorted[upper])
}

/// Returns a field such as `VmHWM` of a file of `/proc`, such as `self/status`, in MiB.
///
/// # Errors
/// If the file or the field does not exist.
pub fn memory_mib(file: &str, field: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{file}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("no {field}: {status}"))? / 1024.0)
}
