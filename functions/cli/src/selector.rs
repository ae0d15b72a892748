//! The options that select targets, and the parameters of a list for them.

use std::collections::BTreeSet;

use ebb_protocol::api::TargetState;

use crate::exit::{CliError, Result};
use crate::target::TargetRef;
use ebb_protocol::words;

/// The targets that are listed. The default selects all that are not gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetSelection {
    /// `None` means all kinds.
    pub(crate) kind: Option<String>,
    /// True for the targets that are gone, false for all others.
    pub(crate) gone: bool,
    /// True for targets with unconfirmed removals only.
    pub(crate) unconfirmed: bool,
    /// Empty means all phases.
    pub(crate) phases: Vec<TargetState>,
    /// Labels as `KEY=VALUE`, which a target must all have.
    pub(crate) labels: Vec<String>,
    pub(crate) owner: Option<String>,
    /// `NAME` or `NAME@VERSION`.
    pub(crate) plugin: Option<String>,
    /// A text in what the target shows.
    pub(crate) text: Option<String>,
}

impl TargetSelection {
    /// Returns true for all targets of the kind.
    pub(crate) fn selects_all(&self) -> bool {
        let Self { phases, labels, owner, plugin, text, .. } = self;
        phases.is_empty() && labels.is_empty() && owner.is_none() && plugin.is_none() && text.is_none()
    }

    /// Returns the query parameters with their values.
    pub(crate) fn parameters(&self) -> Vec<(&'static str, String)> {
        let flag = |name, is_set: bool| is_set.then(|| (name, true.to_string()));
        let text = |name, value: &Option<String>| Some((name, value.clone()?));
        let one = [
            text("kind", &self.kind),
            flag("gone", self.gone),
            flag("unconfirmed", self.unconfirmed),
            text("owner", &self.owner),
            text("plugin", &self.plugin),
            text("q", &self.text),
        ];
        let phases = self.phases.iter().map(|phase| ("phase", words::name(phase)));
        let labels = self.labels.iter().map(|label| ("label", label.clone()));
        one.into_iter().flatten().chain(phases).chain(labels).collect()
    }
}

/// The targets of a command.
#[derive(Clone, Debug)]
pub(crate) enum CommandTargets {
    One(TargetRef),
    /// At least two names.
    Named(Vec<TargetRef>),
    Selected(TargetSelection),
}

impl CommandTargets {
    pub(crate) fn are_selected(&self) -> bool {
        matches!(self, Self::Selected(_))
    }
}

/// The options that select targets. A target is selected if it fits all of them.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SelectorArgs {
    /// Select targets in this phase; repeatable: in one of the phases
    #[arg(long = "phase", value_name = "PHASE", value_parser = phase)]
    phases: Vec<TargetState>,
    /// Select targets with this label; repeatable: with all of the labels
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<String>,
    /// Select targets of this owner, such as `token ci`
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Select targets with this text in name, UID, owner, labels, plugins or first cause
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
}

impl SelectorArgs {
    /// Returns the selection of a kind, or of all kinds, and of those that use a plugin, if one is given.
    pub(crate) fn selection(&self, kind: Option<&str>, plugin: Option<&str>) -> TargetSelection {
        TargetSelection {
            kind: kind.map(str::to_owned),
            phases: self.phases.clone(),
            labels: self.labels.clone(),
            owner: self.owner.clone(),
            plugin: plugin.map(str::to_owned),
            text: self.search.clone(),
            ..TargetSelection::default()
        }
    }

    /// Returns the targets of a kind, or of all kinds, that names or the selector give.
    ///
    /// # Errors
    /// Returns an error without both, with both, and for a name without a kind.
    pub(crate) fn targets(&self, names: &[String], kind: Option<&str>, plugin: Option<&str>) -> Result<CommandTargets> {
        let selection = self.selection(kind, plugin);
        // A repeated name is one target.
        let mut seen = BTreeSet::new();
        let names = names.iter().filter(|name| seen.insert(name.as_str()));
        let of_kind = |name: &String| -> Result<TargetRef> {
            let kind = kind.ok_or_else(|| CliError::broken(format!("`{name}` needs the kind of the target")))?;
            Ok(TargetRef { kind: kind.to_owned(), name: name.clone() })
        };
        let mut named: Vec<TargetRef> = names.map(of_kind).collect::<Result<_>>()?;
        match (named.len(), selection.selects_all()) {
            (0, true) => Err(CliError::broken("no target: expected a name, or a selector such as `--phase failed`")),
            (0, false) => Ok(CommandTargets::Selected(selection)),
            (1, true) => Ok(CommandTargets::One(named.remove(0))),
            (_, true) => Ok(CommandTargets::Named(named)),
            (_, false) => Err(CliError::broken("a name and a selector exclude each other")),
        }
    }
}

fn phase(text: &str) -> Result<TargetState, String> {
    let expected =
        || format!("`{text}` is not a phase: expected starting, ready, updating, failed, stopping, stuck or gone");
    serde_json::from_value(text.into()).map_err(|_| expected())
}

fn label(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("`{text}` is not a label: expected KEY=VALUE")),
    }
}
