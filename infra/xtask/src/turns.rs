//! `cargo xtask turns`.

use crate::run::{cargo, run};

/// Asks a relay for so many works at once that may run `at_once` at one time, and has a script write `log` MiB of log.
///
/// # Errors
/// When something does not compile, or a promise is broken.
pub(crate) fn all(works: u32, at_once: u32, log: u32) -> anyhow::Result<()> {
    for (test, variables) in [
        ("turns::many_at_once", &[("EBB_WORKS", works), ("EBB_AT_ONCE", at_once)][..]),
        ("heavy::an_output_and_a_log_that_are_too_large", &[("EBB_LOG_MIB", log)]),
    ] {
        let mut command = cargo();
        command.args([
            "test",
            "--package",
            "ebb-relay",
            "--test",
            "it",
            "--",
            "--exact",
            "--nocapture",
            test,
        ]);
        run(command.envs(variables.iter().map(|(name, value)| (name, value.to_string()))))?;
    }
    Ok(())
}
