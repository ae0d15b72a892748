//! Targets on the command line.

use std::fmt;

use ebb_protocol::api::{NamedTarget, TargetInfo, TargetOutcome};
use ebb_protocol::lifecycle::{USUAL_KINDS, kind_and_name, singular_kind};

use crate::output::OutputArgs;
use crate::{CliError, Result};

/// Kinds that are not kinds of targets. `KIND NAME` would never mean such a target.
const OTHER_KINDS: &str = "connection connections conn plugin plugins rp resourceplugin resourceplugins source sources src \
    subscription subscriptions sub all cluster clusters token tokens";

/// Parses the kind of a target by its name or another one.
pub(crate) fn target_kind(text: &str) -> Result<String, String> {
    match OTHER_KINDS.split_whitespace().any(|other| other == text) || text.contains('/') {
        true => Err("expected a kind of targets, such as `sandbox`".to_owned()),
        false => Ok(singular_kind(text).to_owned()),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetRef {
    /// `sandbox`, `routegroup` or a kind of the platform.
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl TargetRef {
    /// Returns the target of an argument: `KIND/NAME`, as Ebb prints it, or the name of one of `kind`.
    ///
    /// # Errors
    /// Returns an error for a name without a kind, and for one with a kind of documents.
    pub(crate) fn parse(kind: Option<&str>, argument: &str) -> Result<Self> {
        match kind_and_name(kind.unwrap_or_default(), argument) {
            ("", name) => Err(CliError::broken(format!("`{name}` needs the kind of the target"))),
            (kind, name) => {
                let kind = target_kind(kind).map_err(|e| CliError::broken(format!("`{argument}`: {e}")))?;
                Ok(Self { kind, name: name.to_owned() })
            }
        }
    }
}

impl fmt::Display for TargetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl From<&TargetInfo> for TargetRef {
    fn from(target: &TargetInfo) -> Self {
        Self { kind: target.kind.clone(), name: target.name.clone() }
    }
}

impl From<&TargetOutcome> for TargetRef {
    fn from(outcome: &TargetOutcome) -> Self {
        Self { kind: outcome.kind.clone(), name: outcome.name.clone() }
    }
}

impl From<TargetRef> for NamedTarget {
    fn from(TargetRef { kind, name }: TargetRef) -> Self {
        Self { kind, name, ..Self::default() }
    }
}

/// Returns a random uid of 128 bits.
pub(crate) fn fresh_uid() -> String {
    format!("{:032x}", rand::random::<u128>())
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// Name of the target, or KIND/NAME
    #[arg(value_name = "SANDBOX")]
    name: String,
    #[command(flatten)]
    kind: KindArgs,
}

/// The option `--kind` of commands.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct KindArgs {
    /// Kind of the target, such as `routegroup`
    #[arg(long, value_name = "KIND", default_value = "sandbox", value_parser = target_kind)]
    pub(crate) kind: String,
}

impl KindArgs {
    /// Returns the kind of names without one, and an error for a name with another. The default contradicts no name.
    pub(crate) fn of(&self, names: &[String]) -> Result<Option<&str>> {
        if let [kind, _, ..] = names
            && USUAL_KINDS.contains(&singular_kind(kind))
        {
            return Err(CliError::broken(format!("`{kind}` is a kind: write {kind}/NAME, or --kind {kind}")));
        }
        if self.kind != "sandbox" {
            check_names(&self.kind, names)?;
        }
        Ok(Some(&self.kind))
    }
}

/// Checks that no name `KIND/NAME` has another kind.
pub(crate) fn check_names(kind: &str, names: &[String]) -> Result<()> {
    let other = names.iter().find(|name| kind_and_name(kind, name).0 != kind);
    let problem = |name: &String| format!("the kind `{kind}` contradicts `{name}`: leave one of them out");
    other.map_or(Ok(()), |name| Err(CliError::broken(problem(name))))
}

impl TargetArgs {
    pub(crate) fn target(&self) -> Result<TargetRef> {
        TargetRef::parse(self.kind.of(std::slice::from_ref(&self.name))?, &self.name)
    }
}

/// Arguments of commands that print the server's data about one target.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TargetCommandArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
