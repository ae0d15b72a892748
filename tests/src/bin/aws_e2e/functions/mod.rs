//! Each of the four functions under Lambda's runtime interface emulator, in front of DynamoDB Local: a life, event by event,
//! and what it takes beside a function that does nothing.

mod checks;
mod emulator;
mod events;
mod measures;
mod parts;
mod scenario;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

use crate::DeployedArgs;
use crate::cloud::CloudEmulator;
use crate::servers::OutsideServers;
use crate::steps::say;
use emulator::EmulatedFunction;
use parts::FunctionBackends;
use scenario::FunctionScenario;

const NAMES: [(&str, &str); 4] = [("receive", "Receive"), ("complete", "Complete"), ("sweep", "Sweep"), ("api", "Api")];

/// Where everything is.
#[derive(Args, Debug)]
pub(crate) struct FunctionsCheckArgs {
    /// The runtime interface emulator
    #[arg(long)]
    rie: PathBuf,
    /// The folder with the folder of each function's bootstrap
    #[arg(long)]
    built: PathBuf,
    /// The bootstrap of a function that does nothing
    #[arg(long)]
    empty: PathBuf,
    /// The folder of the examples
    #[arg(long)]
    pub(crate) examples: PathBuf,
    /// How often each is started to be measured
    #[arg(long, default_value_t = 20)]
    rounds: usize,
}

/// Lets a life go through the functions, takes parts away from one, and measures them all.
pub(crate) async fn all(
    arguments: &FunctionsCheckArgs,
    place: &DeployedArgs,
    cloud: &CloudEmulator,
    outside: &OutsideServers,
) -> anyhow::Result<()> {
    let parts = FunctionBackends::new(outside.platform(), cloud.secret()).await?;
    let folder = place.log.parent().unwrap_or(&place.log);
    let (rie, variables) = (&arguments.rie, &parts.variables);
    let mut functions = BTreeMap::new();
    let mut programs = vec![(measures::EMPTY, arguments.empty.clone())];
    for (name, resource) in NAMES {
        let program = arguments.built.join(resource).join("bootstrap");
        let log = folder.join(format!("{name}.log"));
        functions.insert(name, EmulatedFunction::start(name, rie, &program, variables, log).await?);
        programs.push((name, program));
    }
    let messages = Cell::new(0);
    let (functions, examples) = (&functions, &arguments.examples);
    FunctionScenario { functions, parts: &parts, servers: outside, examples, messages }.all().await?;
    let around = (&parts, &functions["sweep"]);
    checks::all(rie, &arguments.built.join("Api/bootstrap"), around, folder).await?;
    say("how functions start and answer, each by itself:");
    let slow = measures::all(rie, &programs, variables, folder, arguments.rounds).await?;
    ensure!(slow.is_empty(), "the init of {} takes too long", slow.join(", "));
    Ok(())
}
