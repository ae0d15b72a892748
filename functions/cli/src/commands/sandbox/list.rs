//! `ebb sandbox list`: prints one row per target.

use std::collections::BTreeSet;

use ebb_protocol::api::{TargetInfo, TargetState};

use crate::bulk;
use crate::client::ApiClient;
use crate::exit::{Exit, Result};
use crate::output::printable;
use crate::output::{self, OutputArgs};
use crate::progress::labels;
use crate::selector::{ShownTargetsArgs, TargetSelection};
use crate::target::TargetRef;
use crate::timing;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb sandbox list --phase failed --phase stuck\n  ebb sandbox list --label team=payments --plugin db@1.0.0 -o json"
)]
pub(crate) struct SandboxListArgs {
    #[command(flatten)]
    targets: ShownTargetsArgs,
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
        let (mut targets, mut warnings) = (Vec::new(), BTreeSet::new());
        let selected = self.targets.selection();
        let of = |gone| TargetSelection { gone, unconfirmed: self.unconfirmed, ..selected.clone() };
        // A target whose last notification is not accepted is gone, too, and is still in the other list.
        if !self.gone {
            (targets, warnings) = client.targets(&of(false)).await?;
        }
        if self.gone || self.all || self.unconfirmed {
            let (gone, further) = client.targets(&of(true)).await?;
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
        if let Some(next) = next_step(&targets).filter(|_| self.output.format().is_none()) {
            output::status_line(&next);
        }
        Ok(Exit::Done)
    }
}

/// Returns the command that explains the first failed or stuck target.
fn next_step(targets: &[TargetInfo]) -> Option<String> {
    let broken = targets.iter().filter(|it| matches!(it.phase, TargetState::Failed | TargetState::Stuck));
    bulk::next_step(broken.map(TargetRef::from))
}

fn text(targets: &[TargetInfo]) -> String {
    let rows = targets.iter().map(|target| {
        [
            target.kind.clone(),
            target.name.clone(),
            labels::target_state(target),
            timing::clock(&target.since),
            target.owner.clone().unwrap_or_default(),
            target.plugins.iter().map(|plugin| output::plugin_name(plugin)).collect::<Vec<_>>().join(", "),
            target.expires.as_deref().map(timing::clock).unwrap_or_default(),
            target.waits_for.as_deref().map(printable).unwrap_or_default(),
            target.first_cause.clone().unwrap_or_default(),
        ]
    });
    let header = ["KIND", "NAME", "PHASE", "SINCE", "OWNER", "PLUGINS", "EXPIRES", "WAITS FOR", "FIRST CAUSE"];
    output::table(&header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures;

    #[test]
    fn a_list_with_failures_names_the_command_that_explains_the_first() {
        let of = |kind: &str, phase: &str| TargetInfo {
            kind: kind.to_owned(),
            ..fixtures::target(phase, fixtures::NOW).info
        };
        let (ready, group, stuck) = (of("sandbox", "ready"), of("routegroup", "failed"), of("sandbox", "stuck"));
        assert_eq!(next_step(std::slice::from_ref(&ready)), None);
        let next = next_step(&[ready, group.clone()]).unwrap();
        assert_eq!(next, "next step: ebb why pr-1 --kind routegroup");
        let next = next_step(&[stuck, group.clone(), group]).unwrap();
        assert_eq!(next, "next step: ebb why pr-1 (and for 2 more targets)");
    }

    #[test]
    fn one_row_for_each_target() {
        let plugins = vec!["db@1.0.0".to_owned(), "queue@0.0.0".to_owned()];
        let target = TargetInfo { plugins, ..fixtures::target("ready", "2026-11-21T09:00:00.123Z").info };
        let (owner, first_cause) = (Some("token ci".to_owned()), Some("db/make:\nno space".to_owned()));
        let failed = TargetInfo { owner, first_cause, ..fixtures::target("failed", "2026-11-21T09:00:00Z").info };
        insta::assert_snapshot!(text(&[target, failed]), @r"
        KIND     NAME  PHASE   SINCE                 OWNER     PLUGINS          EXPIRES  WAITS FOR  FIRST CAUSE
        sandbox  pr-1  ready   2026-11-21 09:00:00Z            db@1.0.0, queue
        sandbox  pr-1  failed  2026-11-21 09:00:00Z  token ci                                       db/make: no space
        ");
    }
}
