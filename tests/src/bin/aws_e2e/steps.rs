//! Runs the steps of a check and prints a line with the duration of each.

use std::time::Instant;

use anyhow::{Context as _, bail};
use tokio::process::Command;

/// Prints a line. A closed output is no error: the exit code has the result.
pub(crate) fn say(text: &str) {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "{text}").ok();
}

pub(crate) async fn step<T>(name: &str, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let began = Instant::now();
    let value = work.await.with_context(|| name.to_owned())?;
    say(&format!("{name}: {:.1} s", began.elapsed().as_secs_f64()));
    Ok(value)
}

/// Runs a program and returns its standard output. The error contains its output.
pub(crate) async fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.kill_on_drop(true).output().await.context("cannot start the program")?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{:?} ended with {}:\n{printed}{errors}", command.as_std().get_program(), output.status);
    }
    Ok(printed)
}
