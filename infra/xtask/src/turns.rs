//! `cargo xtask turns`.

use anyhow::anyhow;

use crate::{images, test};

/// How much.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many at once; the relay is killed when half of them are over
    #[arg(long, default_value_t = 500)]
    works: u32,
    /// How many may run at one time
    #[arg(long, default_value_t = 20)]
    at_once: u32,
    /// Rounds that follow with the same relay, whose memory has to stay as it is from the second round on
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How many in each of these
    #[arg(long, default_value_t = 200)]
    again: u32,
    /// MiB of log
    #[arg(long, default_value_t = 1024)]
    log: u32,
}

/// Asks a relay, built as it is shipped, for many works at once, and has a script write much log.
///
/// # Errors
/// When something does not compile, or a promise is broken.
pub(crate) fn all(arguments: &Arguments) -> anyhow::Result<()> {
    let relay = images::relay()?;
    let &Arguments { works, at_once, rounds, again, log } = arguments;
    let relay =
        relay.into_os_string().into_string().map_err(|_| anyhow!("the path of the relay is no text"))?;
    let variables = [
        ("EBB_RELAY", relay),
        ("EBB_WORKS", works.to_string()),
        ("EBB_AT_ONCE", at_once.to_string()),
        ("EBB_ROUNDS", rounds.to_string()),
        ("EBB_WORKS_AGAIN", again.to_string()),
        ("EBB_LOG_MIB", log.to_string()),
    ];
    for name in ["turns::many_at_once", "heavy::an_output_and_a_log_that_are_too_large"] {
        test::one(&["it"], name, &variables)?;
    }
    Ok(())
}
