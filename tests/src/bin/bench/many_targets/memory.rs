//! What a program takes of the machine's memory.

use anyhow::Context as _;

/// In bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessMemory {
    pub(crate) resident: u64,
    /// The most that it had since its start.
    pub(crate) peak: u64,
}

impl ProcessMemory {
    /// That of a program that runs.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/status");
        let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            kib.map(|kib| kib << 10).with_context(|| format!("no {name} in {path}"))
        };
        Ok(Self { resident: field("VmRSS")?, peak: field("VmHWM")? })
    }
}

/// Bytes in whole MiB.
pub(crate) fn mib(bytes: u64) -> u64 {
    bytes >> 20
}
