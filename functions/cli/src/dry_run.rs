//! The option `--dry-run` of commands that write, and the changes that they report.

use serde::Serialize;

use crate::labels;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct DryRunArgs {
    /// Check everything and show the changes, and make none
    #[arg(long)]
    pub(crate) dry_run: bool,
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

/// A change of a document that a deployment stores, as `-o json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DocumentChange {
    /// `plugin`, `source`, `connection`, `subscription` or a kind of targets.
    pub(crate) kind: String,
    /// The name. That of a plugin is `NAME@VERSION`.
    pub(crate) name: String,
    pub(crate) change: ChangeKind,
    /// True if the change was not made.
    pub(crate) dry_run: bool,
}

impl DocumentChange {
    /// Returns a change that was not made.
    pub(crate) fn planned(kind: &str, name: String, change: ChangeKind) -> Self {
        Self { kind: kind.to_owned(), name, change, dry_run: true }
    }

    /// Returns the line about a change of a dry run.
    pub(crate) fn text(&self) -> String {
        let verb = match self.change {
            ChangeKind::None => "not change".to_owned(),
            change => labels::name(&change),
        };
        format!("Would {verb} {} {}", self.kind, self.name)
    }
}
