//! `ebb retry`.

use ebb_wire::api::Retried;

use crate::client::Client;
use crate::exit::{Exit, Trouble};
use crate::output::{self, Output};
use crate::target::TargetArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: Output,
}

impl Args {
    pub(crate) async fn run(self, client: &Client) -> Result<Exit, Trouble> {
        let target = self.target.target();
        let retried = client.retry(&target).await?.ok_or_else(|| super::unknown(&target))?;
        match self.output.format() {
            Some(_) => self.output.write(&retried, text)?,
            None => output::tell(text(&retried).trim_end()),
        }
        Ok(Exit::Done)
    }
}

fn text(retried: &Retried) -> String {
    match retried.units.as_slice() {
        [] => format!("Nothing of {} is to be tried again\n", retried.run),
        units => format!("Tried again in {}: {}\n", retried.run, units.join(", ")),
    }
}
