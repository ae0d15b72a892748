//! Each of the four functions under Lambda's runtime interface emulator, in front of DynamoDB Local: a life, event by event,
//! and what it takes beside a function that does nothing.

mod emulator;
mod events;
mod life;
mod measures;
mod surroundings;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

use crate::Place;
use crate::receiver::Receiver;
use crate::steps::say;
use emulator::Function;
use life::Life;
use surroundings::Surroundings;

const NAMES: [(&str, &str); 4] =
    [("receive", "Receive"), ("complete", "Complete"), ("sweep", "Sweep"), ("api", "Api")];

/// Where everything is.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
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

/// Lets a life go through the functions, and measures them.
pub(crate) async fn all(arguments: &Arguments, place: &Place, receiver: &Receiver) -> anyhow::Result<()> {
    let surroundings = Surroundings::new(&format!("{}/platform", receiver.url())).await?;
    let folder = place.log.parent().unwrap_or(&place.log);
    let mut functions = BTreeMap::new();
    let mut programs = vec![("empty", arguments.empty.clone())];
    for (name, resource) in NAMES {
        let program = arguments.built.join(resource).join("bootstrap");
        let log = folder.join(format!("{name}.log"));
        let variables = &surroundings.variables;
        functions.insert(name, Function::start(name, &arguments.rie, &program, variables, log).await?);
        programs.push((name, program));
    }
    let messages = Cell::new(0);
    let (functions, surroundings, examples) = (&functions, &surroundings, &arguments.examples);
    Life { functions, surroundings, receiver, examples, messages }.all().await?;
    say("how functions start and answer, each by itself:");
    let slow =
        measures::all(&arguments.rie, &programs, &surroundings.variables, folder, arguments.rounds).await?;
    ensure!(slow.is_empty(), "the init of {} takes too long", slow.join(", "));
    Ok(())
}
