//! Starts the four functions under the runtime interface emulator of AWS Lambda.

mod emulator;
mod measures;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

use crate::DeployedArgs;
use crate::cloud::{CloudEmulator, ENDPOINT, REGION};
use crate::steps::say;

const NAMES: [(&str, &str); 4] = [("receive", "Receive"), ("complete", "Complete"), ("sweep", "Sweep"), ("api", "Api")];

#[derive(Args, Debug)]
pub(crate) struct FunctionsCheckArgs {
    /// The runtime interface emulator
    #[arg(long)]
    rie: PathBuf,
    /// The folder with a folder for the bootstrap of each function
    #[arg(long)]
    built: PathBuf,
    /// The bootstrap of a function that does nothing
    #[arg(long)]
    empty: PathBuf,
}

pub(crate) async fn all(
    arguments: &FunctionsCheckArgs,
    place: &DeployedArgs,
    cloud: &CloudEmulator,
) -> anyhow::Result<()> {
    let folder = place.log.parent().unwrap_or(&place.log);
    let programs = NAMES.map(|(name, resource)| (name, arguments.built.join(resource).join("bootstrap")));
    let programs = [&[(measures::EMPTY, arguments.empty.clone())], &programs[..]].concat();
    say("init of each function, the minimum and the median of its starts:");
    let slow = measures::all(&arguments.rie, &programs, &variables(&cloud.secret)?, folder).await?;
    ensure!(slow.is_empty(), "the init of {} takes too long", slow.join(", "));
    Ok(())
}

/// Returns the variables of the functions, with the values of the emulator.
fn variables(secret: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut variables: BTreeMap<String, String> = serde_saphyr::from_str(include_str!("variables.yaml"))?;
    for value in variables.values_mut() {
        *value = value.replace("REGION", REGION).replace("ENDPOINT", ENDPOINT).replace("SECRET", secret);
    }
    Ok(variables)
}
