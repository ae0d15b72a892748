//! `cargo xtask aws`: the deployment, checked and built as it is deployed.

mod build;
mod deploy;
mod lint;
mod python;

/// What is done.
#[derive(clap::Subcommand)]
pub(crate) enum Order {
    /// What SAM, cfn-lint and checkov say of the template
    Lint,
    /// Builds the four functions as they are deployed, and prints how large they are
    Build(build::Arguments),
    /// Builds them, deploys them to an AWS of this machine, and has a life go through them; needs root
    Deploy,
}

/// Does it.
///
/// # Errors
/// When a tool cannot be had, or finds something wrong.
pub(crate) fn all(order: Option<Order>) -> anyhow::Result<()> {
    match order {
        Some(Order::Lint) => lint::all(),
        Some(Order::Build(arguments)) => build::all(&arguments),
        Some(Order::Deploy) => deploy::all(),
        None => {
            lint::all()?;
            deploy::all()
        }
    }
}
