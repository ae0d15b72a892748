//! `ebb`: the command line, and the local stack.

mod ask;
mod client;
mod cluster;
mod commands;
mod documents;
mod drawing;
mod exit;
mod interrupt;
mod lifecycle;
mod local_server;
mod offline;
mod output;
mod pods;
mod progress;
#[cfg(test)]
mod reference;
mod server;
mod target;
mod timing;
mod why;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::exit::Exit;

fn main() -> ExitCode {
    // The supervisor of a unit is this program once more: it forks, which only a single thread may.
    ebb_local::pods::supervise_if_asked();
    let arguments = commands::EbbCli::command().get_matches();
    let format = output::asked_format(&arguments);
    let ebb = commands::EbbCli::from_arg_matches(&arguments).unwrap_or_else(|error| error.exit());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return exit::CliError::broken("the program cannot start its threads").with_causes(&error).report().into();
        }
    };
    let exit: Exit = runtime.block_on(ebb.run()).unwrap_or_else(|trouble| trouble.report_as(format));
    // Whoever leaves at once does not wait for what still runs.
    runtime.shutdown_background();
    exit.into()
}
