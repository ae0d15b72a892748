//! `ebb completions`: prints a completion script.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::EbbCli;
use crate::exit::{CliError, Exit};
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to write the script for
    shell: Shell,
}

impl CompletionsArgs {
    pub(crate) fn run(self) -> Result<Exit, CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut EbbCli::command(), "ebb", &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Done)
    }
}
