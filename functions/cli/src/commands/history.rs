//! `ebb history`: prints who changed a target, when and why, or the document of an entry.

use std::collections::BTreeSet;

use ebb_documents::pinned_version::with_versions;
use ebb_protocol::history::{HistoryChange, HistoryDetail, HistoryEntry, OpenNotification};

use crate::{ApiClient, CliError, Exit, Result, TargetCommandArgs, labels, named, output, printable, timing};

#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    target: TargetCommandArgs,
    /// Print the document of this entry, which can be applied again
    #[arg(long, value_name = "ENTRY")]
    document: Option<String>,
    /// Write the versions of the plugins at that entry into the document
    #[arg(long, requires = "document")]
    pinned: bool,
    /// Maximum number of entries, the newest first
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    limit: usize,
}

impl HistoryArgs {
    pub(super) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let TargetCommandArgs { target, output } = self.target;
        let target = target.target()?;
        let Some(id) = self.document else {
            let mut page = client.history(&target, self.limit.saturating_add(1)).await?;
            let has_more = page.entries.len() > self.limit;
            page.entries.truncate(self.limit);
            page.notifications.iter().for_each(|open| output::status_line(&notification(open)));
            let written = output.write(&page.entries, |entries| text(entries))?;
            if has_more {
                let further = self.limit.saturating_mul(2).max(1);
                output::status_line(&format!("more entries: ebb history {} --limit {further}", named(&target)));
            }
            return Ok(written);
        };
        let list = || format!("ebb history {}", named(&target));
        let detail = client.fetch(&["targets", &target.kind, &target.name, "history", &id]).await;
        let mut detail: HistoryDetail = detail.map_err(|error| match error.has_status(404) {
            true => error.with_hint(list()),
            false => error,
        })?;
        if let (true, Some(text)) = (self.pinned, &detail.text) {
            let pinned = with_versions(text, &detail.entry.plugins);
            detail.text = Some(pinned.map_err(|error| CliError::failed(error.to_string()))?);
        }
        if output.format.is_some() {
            return output.write_data(&detail);
        }
        let missing = || CliError::failed(format!("the entry {id} has no stored document")).with_hint(list());
        output::print_data(&detail.text.ok_or_else(missing)?)
    }
}

/// Returns a row for each entry. The id of an entry is shown if it has a document.
fn text(entries: &[HistoryEntry]) -> String {
    let rows = entries.iter().enumerate().map(|(at, entry)| {
        let run = entry.run.as_ref();
        let notified = run.and_then(|run| run.notified.as_ref());
        let notified = notified.map(|at| format!("platform notified at {}", timing::clock(at)));
        let plugins: BTreeSet<&String> = entry.plugins.values().collect();
        let known = entry.units.iter().chain(&entry.reason).chain(plugins);
        let detail: Vec<String> = known.cloned().chain(notified).collect();
        [
            timing::clock(&entry.time),
            change(entry, &entries[..at]),
            entry.by_name.as_ref().or(entry.by.as_ref()).map(|by| printable(by)).unwrap_or_default(),
            entry.uid.clone(),
            entry.generation.to_string(),
            run.map(|run| format!("{} {}", run.hook, labels::name(&run.state))).unwrap_or_default(),
            entry.document.as_ref().map(|_| entry.id.clone()).unwrap_or_default(),
            printable(&detail.join(", ")),
        ]
    });
    output::table(&["TIME", "CHANGE", "BY", "UID", "GENERATION", "RUN", "DOCUMENT", "DETAIL"], rows)
}

/// Returns what an entry tells. `newer` has the entries after it, the newest first.
fn change(entry: &HistoryEntry, newer: &[HistoryEntry]) -> String {
    // Entries with other changes have no document.
    let changes = [HistoryChange::Accepted, HistoryChange::Created, HistoryChange::Updated];
    let newer = newer.iter().rev().filter(|it| it.uid == entry.uid && changes.contains(&it.change));
    match newer.map(|it| it.generation).find(|generation| *generation >= entry.generation) {
        Some(later) if entry.change == HistoryChange::Accepted && later > entry.generation => {
            format!("superseded by generation {later}")
        }
        _ => entry.change.words().to_owned(),
    }
}

fn notification(open: &OpenNotification) -> String {
    let OpenNotification { time, phase, to, given_up, reason, next } = open;
    let reason = reason.as_deref().map(|reason| format!(": {}", printable(reason))).unwrap_or_default();
    let next = next.as_ref().map(|at| format!("; next attempt {}", timing::clock(at))).unwrap_or_default();
    let (phase, to, at) = (printable(phase), printable(to), timing::clock(time));
    match given_up {
        true => format!("the notification `{phase}` for {to} was given up at {at}{reason}"),
        false => format!("the notification `{phase}` of {at} waits for {to}{reason}{next}"),
    }
}
