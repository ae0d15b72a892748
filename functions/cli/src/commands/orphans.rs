//! `ebb orphans`.

use std::time::Duration;

use ebb_protocol::api::{Orphan, OrphanList, OrphansDeleted, RelayProblem};

use crate::ask;
use crate::client::ApiClient;
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs};
use crate::timing;

#[derive(Debug, clap::Args)]
pub(crate) struct OrphansArgs {
    /// Delete those that are proven ours: their uids were recorded when they were applied
    #[arg(long)]
    delete: bool,
    /// Do not ask before
    #[arg(long, requires = "delete")]
    yes: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl OrphansArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let list = client.orphans().await?;
        let proven: Vec<String> =
            list.orphans.iter().filter(|orphan| orphan.owned).map(|orphan| orphan.uid.clone()).collect();
        if !self.delete {
            self.output.write(&list, text)?;
            list.errors.iter().for_each(|unseen| output::status_line(&not_seen(unseen)));
            return Ok(Exit::Done);
        }
        if proven.is_empty() {
            self.output.write(&OrphansDeleted::default(), |_| String::new())?;
            output::status_line("There is nothing that is proven ours");
            return Ok(Exit::Done);
        }
        if !self.yes {
            output::status_line(text(&list).trim_end());
            let question = format!("Delete the {} that are proven ours?", proven.len());
            ask::yes(&question, "nothing was deleted")?;
        }
        let done = client.delete_orphans(proven).await?;
        self.output.write(&done, |done| rows(&done.deleted))?;
        done.remaining
            .iter()
            .for_each(|left| output::status_line(&format!("Left in {}: {}", left.cluster, left.reason)));
        Ok(if done.remaining.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

fn not_seen(unseen: &RelayProblem) -> String {
    format!("Not looked at in {}: {}", unseen.cluster, unseen.reason)
}

fn text(list: &OrphanList) -> String {
    rows(&list.orphans)
}

fn rows(orphans: &[Orphan]) -> String {
    let rows = orphans.iter().map(|orphan| {
        let proven = if orphan.owned { "yes" } else { "no" };
        let place = orphan.namespace.iter().map(|namespace| format!("{namespace}/")).collect::<String>();
        [
            orphan.cluster.clone(),
            orphan.kind.clone(),
            format!("{place}{}", orphan.name),
            orphan.uid.clone(),
            timing::length(Duration::from_secs(orphan.age_seconds)),
            proven.to_owned(),
            orphan.reason.clone(),
        ]
    });
    output::table(&["CLUSTER", "KIND", "NAME", "UID", "AGE", "OURS", "WHY"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_for_each() {
        let job = Orphan {
            cluster: "eu".to_owned(),
            kind: "Job".to_owned(),
            namespace: Some("ebb-units".to_owned()),
            name: "ebb-a-1".to_owned(),
            uid: "8c1a".to_owned(),
            instance: "k3j2".to_owned(),
            age_seconds: 7200,
            reason: "sandbox/a, for which it was made, is gone".to_owned(),
            owned: true,
        };
        let forged = Orphan { namespace: None, kind: "Node".to_owned(), owned: false, ..job.clone() };
        let list = OrphanList { orphans: vec![job, forged], errors: vec![] };
        insta::assert_snapshot!(text(&list), @r"
        CLUSTER  KIND  NAME               UID   AGE    OURS  WHY
        eu       Job   ebb-units/ebb-a-1  8c1a  2h00m  yes   sandbox/a, for which it was made, is gone
        eu       Node  ebb-a-1            8c1a  2h00m  no    sandbox/a, for which it was made, is gone
        ");
    }
}
