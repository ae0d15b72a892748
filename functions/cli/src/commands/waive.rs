//! `ebb skip` and `ebb abandon`.

use ebb_wire::api::{Abandon, Skip, Waived};

use crate::client::Client;
use crate::exit::{Exit, Trouble};
use crate::output::{self, Output};
use crate::target::{Target, TargetArgs};

#[derive(Debug, clap::Args)]
pub(crate) struct SkipArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The unit that has failed, as `ebb why` names it
    #[arg(value_name = "RESOURCE/UNIT")]
    unit: String,
    #[command(flatten)]
    why: WhyArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AbandonArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    why: WhyArgs,
}

#[derive(Debug, clap::Args)]
struct WhyArgs {
    /// Why; it is kept with the unit
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who says so
    #[arg(long, value_name = "NAME", env = "USER")]
    by: Option<String>,
    #[command(flatten)]
    output: Output,
}

impl SkipArgs {
    pub(crate) async fn run(self, client: &Client) -> Result<Exit, Trouble> {
        let target = self.target.target();
        let asked = Skip { unit: self.unit, reason: self.why.reason, by: self.why.by };
        said(client.skip(&target, &asked).await?, &target, &self.why.output)
    }
}

impl AbandonArgs {
    pub(crate) async fn run(self, client: &Client) -> Result<Exit, Trouble> {
        let target = self.target.target();
        let asked = Abandon { reason: self.why.reason, by: self.why.by };
        said(client.abandon(&target, &asked).await?, &target, &self.why.output)
    }
}

fn said(waived: Option<Waived>, target: &Target, output: &Output) -> Result<Exit, Trouble> {
    let waived = waived.ok_or_else(|| super::unknown(target))?;
    match output.format() {
        Some(_) => output.write(&waived, text)?,
        None => output::tell(text(&waived).trim_end()),
    }
    Ok(Exit::Done)
}

fn text(waived: &Waived) -> String {
    match waived.units.as_slice() {
        [] => format!("{} goes on\n", waived.run),
        units => format!("Counts as over in {}: {}\n", waived.run, units.join(", ")),
    }
}
