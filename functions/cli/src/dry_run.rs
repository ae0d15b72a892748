//! The option `--dry-run` of commands that write, and the changes that they report.

use serde::Serialize;

use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs};
use crate::progress::labels;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct DryRunArgs {
    /// Check everything and show the changes, and make none
    #[arg(long)]
    dry_run: bool,
}

impl DryRunArgs {
    pub(crate) fn is_set(self) -> bool {
        self.dry_run
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ChangeKind {
    Create,
    Replace,
    Delete,
    /// The same document is published already.
    None,
}

/// A change of a published document, as `-o json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DocumentChange {
    /// `plugin`, `source`, `connection` or `subscription`.
    pub(crate) kind: &'static str,
    /// The name. That of a plugin is `NAME@VERSION`.
    pub(crate) name: String,
    pub(crate) change: ChangeKind,
    /// True if the change was not made.
    pub(crate) dry_run: bool,
}

impl DocumentChange {
    /// Returns a change that was not made.
    pub(crate) fn planned(kind: &'static str, name: String, change: ChangeKind) -> Self {
        Self { kind, name, change, dry_run: true }
    }
}

/// Prints the changes of a dry run.
pub(crate) fn print(changes: &[DocumentChange], output: OutputArgs) -> Result<Exit> {
    for DocumentChange { kind, name, change, .. } in changes {
        let verb = match change {
            ChangeKind::None => "not change".to_owned(),
            change => labels::name(change),
        };
        output::status_line(&format!("Would {verb} {kind} {name}"));
    }
    output.write_data(&changes)
}
