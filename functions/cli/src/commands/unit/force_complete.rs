//! `ebb unit force-complete`: marks a failed teardown unit as complete.

use ebb_protocol::api::{ForceCompleteUnit, OverrideResponse};

use crate::client::ApiClient;
use crate::commands::unknown;
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs};
use crate::target::TargetArgs;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Remove the unit's resources first: Ebb does not check that they are gone. `ebb why` shows the unit as \
                  overridden, with your reason."
)]
pub(crate) struct ForceCompleteArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Failed unit, as `ebb why` prints it
    #[arg(value_name = "RESOURCE/UNIT")]
    unit: String,
    /// Reason for the override; stored with the unit
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Person who decided it
    #[arg(long, value_name = "NAME", env = "USER")]
    by: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

impl ForceCompleteArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let target = self.target.target();
        let request = ForceCompleteUnit { unit: self.unit, reason: self.reason, by: self.by };
        let response = client.force_complete(&target, &request).await?.ok_or_else(|| unknown(&target))?;
        match self.output.format() {
            Some(_) => self.output.write(&response, text)?,
            None => output::status_line(text(&response).trim_end()),
        }
        Ok(Exit::Done)
    }
}

/// Returns the result of an override as one line of text.
pub(crate) fn text(response: &OverrideResponse) -> String {
    match response.units.as_slice() {
        [] => format!("{} continues\n", response.run),
        units => format!("Overridden in {}: {}\n", response.run, units.join(", ")),
    }
}
