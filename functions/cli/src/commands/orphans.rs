//! `ebb orphans`: lists and deletes objects that remain after the end of their targets.

use std::time::Duration;

use ebb_protocol::api::{ClusterError, DeleteOrphans, DeleteOrphansResponse, Orphan, OrphanList};

use crate::{ApiClient, Exit, OutputArgs, Result, confirm, output, timing};

#[derive(Debug, clap::Args)]
pub(crate) struct OrphansArgs {
    /// Delete the owned orphans: Ebb recorded their UIDs when it applied them
    #[arg(long)]
    delete: bool,
    /// Delete without asking for confirmation
    #[arg(long, requires = "delete")]
    yes: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl OrphansArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let list: OrphanList = client.fetch(&["orphans"]).await?;
        let owned: Vec<String> =
            list.orphans.iter().filter(|orphan| orphan.owned).map(|orphan| orphan.uid.clone()).collect();
        if !self.delete {
            self.output.write(&list, |list| rows(&list.orphans))?;
            for ClusterError { cluster, reason } in &list.errors {
                output::status_line(&output::printable(&format!("Not checked in {cluster}: {reason}")));
            }
            // What was not checked may have orphans.
            return Ok(if list.errors.is_empty() { Exit::Done } else { Exit::Failed });
        }
        if owned.is_empty() {
            self.output.write(&DeleteOrphansResponse::default(), |_| String::new())?;
            return output::message("No owned orphans");
        }
        if !self.yes {
            output::status_line(&rows(&list.orphans));
            confirm(&format!("Delete the {} owned orphans?", owned.len()), "--yes", "nothing was deleted")?;
        }
        let response: DeleteOrphansResponse =
            client.post(&["orphans", "delete"], &DeleteOrphans { uids: owned }).await?;
        self.output.write(&response, |response| rows(&response.deleted))?;
        response.remaining.iter().for_each(|error| {
            output::status_line(&output::printable(&format!("Remaining in {}: {}", error.cluster, error.reason)));
        });
        Ok(if response.remaining.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

fn rows(orphans: &[Orphan]) -> String {
    let rows = orphans.iter().map(|orphan| {
        let owned = if orphan.owned { "yes" } else { "no" };
        let place = orphan.namespace.iter().map(|namespace| format!("{namespace}/")).collect::<String>();
        [
            orphan.cluster.clone(),
            orphan.kind.clone(),
            format!("{place}{}", orphan.name),
            orphan.uid.clone(),
            timing::length(Duration::from_secs(orphan.age_seconds)),
            owned.to_owned(),
            orphan.reason.clone(),
        ]
    });
    output::table(&["CLUSTER", "KIND", "NAME", "UID", "AGE", "OWNED", "REASON"], rows)
}
