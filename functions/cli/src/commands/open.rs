//! `ebb open`: shows the console in a browser.

use std::io::{IsTerminal as _, stdout};

use crate::exit::{Exit, Result};
use crate::output;
use crate::server::ServerArgs;
use crate::target::KindArgs;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb open\n  ebb open pr-1\n  ebb open pr-1 --print")]
pub(crate) struct OpenArgs {
    /// Name of the target to show; by default all targets
    #[arg(value_name = "SANDBOX")]
    name: Option<String>,
    #[command(flatten)]
    kind: KindArgs,
    /// Print the URL and open no browser
    #[arg(long)]
    print: bool,
}

impl OpenArgs {
    /// Prints the URL of a page. In a terminal, a browser opens it too.
    pub(crate) fn run(self, server: &ServerArgs) -> Result<Exit> {
        let mut url = server.find()?.url;
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("console");
            if let Some(name) = &self.name {
                path.extend(["targets", self.kind.kind(), name]);
            }
        }
        if !self.print
            && stdout().is_terminal()
            && let Err(error) = open::that_detached(url.as_str())
        {
            output::status_line(&format!("cannot open a browser: {error}"));
        }
        output::print(url.as_str())
    }
}
