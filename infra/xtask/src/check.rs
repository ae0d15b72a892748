//! `cargo xtask check`.

use std::time::Instant;

use crate::chart;
use crate::run::{cargo, command, run};
use crate::tools;

/// Runs every check beside the tests in turn, and says how long each took.
///
/// # Errors
/// The first check that fails.
pub(crate) fn all() -> anyhow::Result<()> {
    let began = Instant::now();
    step("format", || run(cargo().args(["fmt", "--all", "--check"])))?;
    step("lints", || run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])))?;
    step("documentation", || {
        run(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("chart", chart::at_hand)?;
    step("cargo-deny", tools::cargo_deny)?;
    // The subcommand's own program: `cargo deny` would need the directory of installed programs in PATH as well.
    step("dependencies", || run(command("cargo-deny").args(["check", "bans", "licenses", "sources"])))?;
    println!("all checks passed in {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("== {name}");
    let began = Instant::now();
    let done = work();
    let verdict = if done.is_ok() { "passed" } else { "FAILED" };
    println!("== {name} {verdict} in {:.1} s", began.elapsed().as_secs_f64());
    done
}
