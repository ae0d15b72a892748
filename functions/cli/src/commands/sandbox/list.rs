//! `ebb sandbox list`: prints one row per target.

use std::collections::BTreeSet;

use ebb_protocol::api::TargetInfo;

use crate::client::{ApiClient, TargetSelection};
use crate::exit::{Exit, Result};
use crate::output::printable;
use crate::output::{self, OutputArgs};
use crate::progress::labels;
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct SandboxListArgs {
    /// Kind of the targets, such as `routegroup`; `all` lists all kinds
    #[arg(long, value_name = "KIND", default_value = "sandbox")]
    kind: String,
    /// Include the targets that are gone
    #[arg(short = 'A', long)]
    all: bool,
    /// List only the targets that are gone
    #[arg(long, conflicts_with = "all")]
    gone: bool,
    /// List only the targets that are gone and whose resources may remain
    #[arg(long, conflicts_with = "all")]
    unconfirmed: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl SandboxListArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let kind = (self.kind != "all").then_some(self.kind.as_str());
        let (mut targets, mut warnings) = (Vec::new(), BTreeSet::new());
        let of = |gone| TargetSelection { gone, unconfirmed: self.unconfirmed };
        // A target whose last notification is not accepted is gone, too, and is still in the other list.
        if !self.gone {
            (targets, warnings) = client.targets(kind, of(false)).await?;
        }
        if self.gone || self.all || self.unconfirmed {
            let (gone, further) = client.targets(kind, of(true)).await?;
            targets.extend(gone);
            warnings.extend(further);
            targets.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
            // A target that ended between the two requests is in both lists.
            targets.dedup_by(|b, a| (&a.kind, &a.name) == (&b.kind, &b.name));
        }
        self.output.write(&targets, |targets| text(targets))?;
        for warning in warnings {
            output::status_line(&format!("warning: {}", printable(&warning)));
        }
        Ok(Exit::Done)
    }
}

fn text(targets: &[TargetInfo]) -> String {
    let rows = targets.iter().map(|target| {
        [
            target.kind.clone(),
            target.name.clone(),
            labels::target_state(target),
            timing::clock(&target.since),
            target.plugins.iter().map(|plugin| output::plugin_name(plugin)).collect::<Vec<_>>().join(", "),
            target.expires.as_deref().map(timing::clock).unwrap_or_default(),
            target.waits_for.as_deref().map(printable).unwrap_or_default(),
        ]
    });
    output::table(&["KIND", "NAME", "PHASE", "SINCE", "PLUGINS", "EXPIRES", "WAITS FOR"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures;

    #[test]
    fn one_row_for_each_target() {
        let plugins = vec!["db@1.0.0".to_owned(), "queue@0.0.0".to_owned()];
        let target = TargetInfo { plugins, ..fixtures::target("ready", "2026-11-21T09:00:00.123Z").info };
        insta::assert_snapshot!(text(&[target]), @r"
        KIND     NAME  PHASE  SINCE                 PLUGINS          EXPIRES  WAITS FOR
        sandbox  pr-1  ready  2026-11-21 09:00:00Z  db@1.0.0, queue
        ");
    }
}
