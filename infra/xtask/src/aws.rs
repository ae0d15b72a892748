//! `cargo xtask aws`: the deployment, checked and built as it is deployed.

mod build;
mod deploy;
mod functions;
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
    /// Builds them, and runs each under Lambda's runtime interface emulator in front of DynamoDB Local; needs root
    Functions(functions::Arguments),
}

/// Does it.
///
/// # Errors
/// When a tool cannot be had, or finds something wrong.
pub(crate) fn all(order: Option<Order>) -> anyhow::Result<()> {
    match order {
        Some(Order::Lint) => lint::all(),
        Some(Order::Build(arguments)) => build::all(&arguments),
        Some(Order::Deploy) => {
            build::all(&build::Arguments::default())?;
            deploy::all()
        }
        Some(Order::Functions(arguments)) => {
            build::all(&build::Arguments::default())?;
            functions::all(&arguments)
        }
        None => {
            lint::all()?;
            build::all(&build::Arguments::default())?;
            deploy::all()?;
            functions::all(&functions::Arguments::default())
        }
    }
}
