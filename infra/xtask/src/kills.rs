//! `cargo xtask kills`.

use crate::{cluster, dynamodb_local, packages, runner, test};

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// `ebb dev`, over all examples that need no cluster, its table in DynamoDB Local.
    Server,
    /// Any part of Ebb and of a cluster, over the example with all kinds of units.
    Cluster,
}

/// Kills so many times, or as often as is thorough; `seed` chooses the moments.
///
/// # Errors
/// When something cannot be installed, does not compile, or a life does not end as if nothing had happened.
pub(crate) fn all(what: What, kills: Option<u32>, seed: Option<u64>) -> anyhow::Result<()> {
    packages::install(&packages::OF_TESTS)?;
    let (name, usual, _cluster) = match what {
        What::Server => {
            dynamodb_local::fetch()?;
            ("kill::all_examples_with_amazons_table", 200, None)
        }
        What::Cluster => {
            runner::all()?;
            ("kill_cluster::any_part_at_any_moment", 100, Some(cluster::Borrowed::up()?))
        }
    };
    let mut variables = vec![("EBB_KILLS", kills.unwrap_or(usual).to_string())];
    variables.extend(seed.map(|seed| ("EBB_KILL_SEED", seed.to_string())));
    // `commands` and `it` have `ebb` and the relay built.
    test::one(&["stories", "commands", "it"], name, &variables)
}
