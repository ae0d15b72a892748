//! `ebb retry`: starts new attempts of the failed units of a target.

use ebb_protocol::api::RetryResponse;

use crate::client::ApiClient;
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs};
use crate::target::TargetArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl RetryArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let target = self.target.target();
        let retried = client.retry(&target).await?.ok_or_else(|| super::unknown(&target))?;
        match self.output.format() {
            Some(_) => self.output.write(&retried, text)?,
            None => output::status_line(text(&retried).trim_end()),
        }
        Ok(Exit::Done)
    }
}

fn text(retried: &RetryResponse) -> String {
    match retried.units.as_slice() {
        [] => format!("Nothing to retry in {}\n", retried.run),
        units => format!("Retrying in {}: {}\n", retried.run, units.join(", ")),
    }
}
