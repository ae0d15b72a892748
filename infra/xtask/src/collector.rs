//! `cargo xtask collector`.

use std::io::Write as _;
use std::path::PathBuf;

use crate::cluster::Set;

/// The collector, built if there is none of the same sources.
///
/// # Errors
/// When it cannot be built; says why.
pub(crate) fn built() -> anyhow::Result<PathBuf> {
    Ok(Set::Collector.built()?.join("collector"))
}

/// Says where it is.
///
/// # Errors
/// When it cannot be built, or nobody listens.
pub(crate) fn all() -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", built()?.display())?)
}
