//! `cargo xtask ci`.

use std::time::Instant;

use crate::run::{cargo, command, run};
use crate::{test, tools};

/// Runs every check in turn, says how long each took, and ends with the line that sums up the tests.
///
/// # Errors
/// The first check that fails.
pub(crate) fn all() -> anyhow::Result<()> {
    let began = Instant::now();
    step("format", || run(cargo().args(["fmt", "--all", "--check"])))?;
    step("lints", || run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])))?;
    let summary = step("tests", test::counted)?;
    step("documentation", || {
        run(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("cargo-deny", tools::cargo_deny)?;
    // The subcommand's own program: `cargo deny` would need the directory of installed programs in PATH as well.
    step("dependencies", || run(command("cargo-deny").args(["check", "bans", "licenses", "sources"])))?;
    println!("all checks passed in {:.0} s", began.elapsed().as_secs_f64());
    println!("{summary}");
    Ok(())
}

fn step<T>(name: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    println!("== {name}");
    let began = Instant::now();
    let done = work();
    let verdict = if done.is_ok() { "passed" } else { "FAILED" };
    println!("== {name} {verdict} in {:.1} s", began.elapsed().as_secs_f64());
    done
}
