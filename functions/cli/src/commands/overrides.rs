//! `ebb skip` and `ebb abandon`.

use ebb_protocol::api::{ForceCompleteUnit, ForceDeleteTarget, OverrideResponse};

use crate::client::ApiClient;
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs};
use crate::target::{TargetArgs, TargetRef};

#[derive(Debug, clap::Args)]
pub(crate) struct ForceCompleteArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The unit that has failed, as `ebb why` names it
    #[arg(value_name = "RESOURCE/UNIT")]
    unit: String,
    #[command(flatten)]
    reason_args: OverrideArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ForceDeleteArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    reason_args: OverrideArgs,
}

#[derive(Debug, clap::Args)]
struct OverrideArgs {
    /// Why; it is kept with the unit
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who says so
    #[arg(long, value_name = "NAME", env = "USER")]
    by: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

impl ForceCompleteArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let target = self.target.target();
        let asked =
            ForceCompleteUnit { unit: self.unit, reason: self.reason_args.reason, by: self.reason_args.by };
        print_override(client.force_complete(&target, &asked).await?, &target, &self.reason_args.output)
    }
}

impl ForceDeleteArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let target = self.target.target();
        let asked = ForceDeleteTarget { reason: self.reason_args.reason, by: self.reason_args.by };
        print_override(client.force_delete(&target, &asked).await?, &target, &self.reason_args.output)
    }
}

fn print_override(
    waived: Option<OverrideResponse>,
    target: &TargetRef,
    output: &OutputArgs,
) -> Result<Exit, CliError> {
    let waived = waived.ok_or_else(|| super::unknown(target))?;
    match output.format() {
        Some(_) => output.write(&waived, text)?,
        None => output::status_line(text(&waived).trim_end()),
    }
    Ok(Exit::Done)
}

fn text(waived: &OverrideResponse) -> String {
    match waived.units.as_slice() {
        [] => format!("{} goes on\n", waived.run),
        units => format!("Counts as over in {}: {}\n", waived.run, units.join(", ")),
    }
}
