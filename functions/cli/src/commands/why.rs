//! `ebb why`.

use crate::client::Client;
use crate::exit::{Exit, Trouble};
use crate::output::Output;
use crate::target::TargetArgs;
use crate::why;

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
        let why = client.why(&target).await?.ok_or_else(|| super::unknown(&target))?;
        self.output.write(&why, why::text)?;
        Ok(Exit::Done)
    }
}
