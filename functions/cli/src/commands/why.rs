//! `ebb why`: explains the state of a target.

use crate::client::ApiClient;
use crate::exit::{CliError, Exit};
use crate::output::OutputArgs;
use crate::target::TargetArgs;
use crate::why;

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl ExplainArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let target = self.target.target();
        let why = client.why(&target).await?.ok_or_else(|| super::unknown(&target))?;
        self.output.write(&why, why::text)?;
        Ok(Exit::Done)
    }
}
