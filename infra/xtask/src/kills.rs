//! `cargo xtask kills`.

use crate::run::{cargo, run};
use crate::{dynamodb_local, packages};

/// Kills `ebb dev` so many times over all examples, its table in DynamoDB Local; `seed` chooses the moments.
///
/// # Errors
/// When something cannot be installed, does not compile, or a life does not end as if nothing had happened.
pub(crate) fn all(kills: u32, seed: Option<u64>) -> anyhow::Result<()> {
    packages::install(&packages::OF_TESTS)?;
    dynamodb_local::fetch()?;
    let mut command = cargo();
    command.args(["test", "--package", "ebb-tests", "--test", "stories", "--", "--exact", "--nocapture"]);
    command.arg("kill::all_examples_with_amazons_table").env("EBB_KILLS", kills.to_string());
    if let Some(seed) = seed {
        command.env("EBB_KILL_SEED", seed.to_string());
    }
    run(&mut command)
}
