//! Which target a command is about.

use std::fmt;

/// A target by kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetRef {
    /// `sandbox`, …
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
}

impl fmt::Display for TargetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// A target on the command line.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// Its name
    #[arg(value_name = "SANDBOX")]
    name: String,
    #[command(flatten)]
    kind: KindArgs,
}

/// `--kind`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct KindArgs {
    /// What it is, such as `routegroup`
    #[arg(long, value_name = "KIND", default_value = "sandbox")]
    kind: String,
}

impl TargetArgs {
    /// The target.
    pub(crate) fn target(&self) -> TargetRef {
        TargetRef { kind: self.kind.kind.clone(), name: self.name.clone() }
    }
}

impl KindArgs {
    /// The kind.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }
}
