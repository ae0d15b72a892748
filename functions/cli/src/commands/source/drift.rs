//! `ebb source drift` and `ebb source reconcile`: targets whose things are missing at the sender.

use ebb_protocol::api::{ListingState, ReconcileSource, SourceDetail};

use crate::{ApiClient, CliError, Exit, OutputArgs, Result, confirm, output, timing};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb source drift previews")]
pub(crate) struct SourceDriftArgs {
    /// Name of the source
    name: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb source reconcile previews --dry-run")]
pub(crate) struct SourceReconcileArgs {
    /// Name of the source
    name: String,
    /// Print the targets, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl SourceDriftArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let listing = listing(client, &self.name).await?;
        self.output.write(&listing, text)?;
        Ok(if listing.problem.is_some() { Exit::Failed } else { Exit::Done })
    }
}

impl SourceReconcileArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let listing = listing(client, &self.name).await?;
        self.output.write(&listing, text)?;
        let (mut listed, mut left) = (listing.missing, listing.missing_count);
        if self.dry_run || listed.is_empty() {
            return Ok(Exit::Done);
        }
        if !self.yes {
            let question = format!("Delete these {left} targets if the next observation lacks them, too?");
            confirm(&question, "--yes", "nothing was changed")?;
        }
        // The server lists a part of them, and those first that are not asked for.
        while left > 0 && !listed.is_empty() {
            let uids: Vec<String> = listed.into_iter().map(|thing| thing.uid).collect();
            left = left.saturating_sub(uids.len() as u64);
            let path = ["sources", &self.name, "reconcile"];
            let detail: SourceDetail = client.post(&path, &ReconcileSource { uids }).await?;
            listed = detail.listing.unwrap_or_default().missing;
        }
        output::message(&format!("The next observation decides: ebb source drift {}", self.name))
    }
}

async fn listing(client: &ApiClient, name: &str) -> Result<ListingState> {
    let unknown = || CliError::failed(format!("no source {name} exists")).with_hint("ebb get sources");
    let detail: SourceDetail = client.find(&["sources", name]).await?.ok_or_else(unknown)?;
    detail.listing.ok_or_else(|| {
        CliError::failed(format!("source {name} does not list what exists at its sender"))
            .with_hint("add `exists:` to the source")
    })
}

fn text(listing: &ListingState) -> String {
    let mut text = match (&listing.complete, listing.things) {
        (Some(at), Some(things)) => format!("last complete observation: {}, {things} things\n", timing::clock(at)),
        _ => "no observation is complete yet\n".to_owned(),
    };
    if let (Some(why), Some(since)) = (&listing.problem, &listing.problem_since) {
        let why = output::joined_lines(why);
        text += &format!("problem since {}: {why}\n", timing::clock(since));
    }
    for thing in &listing.missing {
        let (since, after) = (timing::clock(&thing.since), timing::clock(&thing.ends_after));
        text += &format!("{}  missing since {since}, deleted after {after} if it stays missing\n", thing.target);
    }
    let others = listing.missing_count.saturating_sub(listing.missing.len() as u64);
    if others > 0 {
        text += &format!("and {others} more\n");
    } else if listing.missing.is_empty() {
        text += "no target is missing\n";
    }
    text
}
