//! The options that select targets.

use std::collections::BTreeSet;

use ebb_protocol::api::{NamedTarget, TargetPhase, TargetSelector};

use crate::{CliError, Result, TargetRef};

#[derive(Clone, Debug)]
pub(crate) enum CommandTargets {
    One(TargetRef),
    /// At least two names, or an instance of one.
    Named(Vec<NamedTarget>),
    Selected(TargetSelector),
}

/// The options that select targets. A target is selected if it fits all of them.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SelectorArgs {
    /// Select targets in this phase; repeatable: in one of the phases
    #[arg(long = "phase", value_name = "PHASE", value_parser = phase)]
    phases: Vec<TargetPhase>,
    /// Select targets with this label; repeatable, or with commas between several: with all of the labels
    #[arg(short = 'l', long = "label", alias = "selector", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<String>,
    /// Select targets of this owner, such as `token ci`; `me` for your own
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Select targets with this text in name, UID, owner, labels, plugins or first cause
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
}

impl SelectorArgs {
    /// Returns the selection of a kind, or of all kinds, and of those that use a plugin, if one is given.
    pub(crate) fn selection(&self, kind: Option<&str>, plugin: Option<&str>) -> TargetSelector {
        let Self { phases, labels, owner, search: text } = self.clone();
        let [kind, plugin] = [kind, plugin].map(|name| name.map(str::to_owned));
        TargetSelector { kind, phases, labels, owner, plugin, text, ..TargetSelector::default() }
    }

    /// Returns the targets of a kind, or of all kinds, that names or the selector give.
    ///
    /// # Errors
    /// Returns an error without both, with both, and for a name without a kind.
    pub(crate) fn targets(&self, names: &[String], kind: Option<&str>, plugin: Option<&str>) -> Result<CommandTargets> {
        let (selection, mut seen) = (self.selection(kind, plugin), BTreeSet::new());
        let mut named: Vec<TargetRef> = names.iter().map(|name| TargetRef::parse(kind, name)).collect::<Result<_>>()?;
        // A repeated name is one target.
        named.retain(|target| seen.insert(target.to_string()));
        match (named.len(), selection.is_open()) {
            (0, true) => Err(CliError::broken("no target: expected a name, or a selector such as `--phase failed`")),
            (0, false) => Ok(CommandTargets::Selected(selection)),
            (1, true) => Ok(CommandTargets::One(named.remove(0))),
            (_, true) => Ok(CommandTargets::Named(named.into_iter().map(NamedTarget::from).collect())),
            (_, false) => Err(CliError::broken("a name and a selector exclude each other")),
        }
    }
}

pub(crate) fn phase(text: &str) -> Result<TargetPhase, String> {
    let expected =
        || format!("`{text}` is not a phase: expected starting, ready, updating, failed, stopping, stuck or gone");
    serde_json::from_value(text.into()).map_err(|_| expected())
}

/// Parses `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn label(text: &str) -> Result<String, &'static str> {
    TargetSelector::label_pairs(text).map(|_| text.to_owned())
}
