//! `ebb completions`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Ebb;
use crate::exit::{Exit, Trouble};
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Trouble> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Ebb::command(), "ebb", &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Done)
    }
}
