//! The commands, one per file.

mod cluster;
mod completions;
mod dev;
mod doctor;
mod graph;
mod logs;
mod orphans;
mod plan;
mod plugin;
mod retry;
mod run;
mod sandbox;
mod schema;
mod unit;
mod why;

use clap::{Parser, Subcommand};

use crate::client::ApiClient;
use crate::exit::{CliError, Exit};
use crate::server::ServerArgs;
use crate::target::TargetRef;

/// Create the resources that sandboxes need, and delete them when the sandboxes end
#[derive(Debug, Parser)]
#[command(
    name = "ebb",
    version,
    after_help = "Examples:\n  ebb run sandbox.yaml --plugin plugin.yaml --rm\n  ebb sandbox apply -f sandbox.yaml\n  ebb why pr-1\n\n\
                  Exit codes: 0 success, 1 the run failed or the document is invalid, 2 usage or internal error, 130 \
                  interrupted.\nData goes to standard output, messages to standard error."
)]
pub(crate) struct EbbCli {
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: EbbCommand,
}

#[derive(Debug, Subcommand)]
enum EbbCommand {
    /// Run a sandbox from files on this machine, once
    Run(run::RunArgs),
    /// Run the control plane on this machine until Ctrl-C
    Dev(dev::DevArgs),
    /// Check each component of a deployment
    Doctor(doctor::DoctorArgs),
    /// Publish, show, check and draw plugins
    #[command(subcommand, alias = "rp", alias = "resourceplugin")]
    Plugin(plugin::PluginCommand),
    /// Create, list and delete sandboxes
    #[command(subcommand)]
    Sandbox(sandbox::SandboxCommand),
    /// Connect clusters and list them
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Run a unit alone, or mark a failed one as complete
    #[command(subcommand)]
    Unit(unit::UnitCommand),
    /// Print the logs of units
    Logs(logs::LogsArgs),
    /// Explain the state of a sandbox and list the next steps
    Why(why::ExplainArgs),
    /// Draw the units of a sandbox or plugin and their dependencies
    Graph(graph::GraphArgs),
    /// Show the plan of a sandbox without running it
    Plan(plan::PlanArgs),
    /// Retry the failed units of a sandbox
    Retry(retry::RetryArgs),
    /// List objects of ended sandboxes that remain in clusters
    Orphans(orphans::OrphansArgs),
    /// Name the commands that apply documents
    #[command(hide = true)]
    Apply {
        /// Ignored arguments, such as `-f FILE`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<std::ffi::OsString>,
    },
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Print the JSON Schema of a document
    Schema(schema::SchemaArgs),
}

impl EbbCli {
    pub(crate) async fn run(self) -> Result<Exit, CliError> {
        let server = &self.server;
        match self.command {
            EbbCommand::Run(args) => Box::pin(args.run()).await,
            EbbCommand::Dev(args) => args.run().await,
            EbbCommand::Doctor(args) => args.run(&connect(server)?).await,
            EbbCommand::Plugin(command) => command.run(server).await,
            EbbCommand::Sandbox(command) => command.run(server).await,
            EbbCommand::Cluster(command) => command.run(server).await,
            EbbCommand::Unit(command) => command.run(server).await,
            EbbCommand::Logs(args) => args.run(&connect(server)?).await,
            EbbCommand::Why(args) => args.run(&connect(server)?).await,
            EbbCommand::Graph(args) => args.run(server).await,
            EbbCommand::Apply { .. } => {
                Err(CliError::broken("`ebb apply` is not a command: sandboxes and plugins have their own")
                    .with_hint("ebb sandbox apply -f FILE")
                    .with_hint("ebb plugin apply -f FILE"))
            }
            EbbCommand::Plan(args) => args.run(server).await,
            EbbCommand::Retry(args) => args.run(&connect(server)?).await,
            EbbCommand::Orphans(args) => args.run(&connect(server)?).await,
            EbbCommand::Completions(args) => args.run(),
            EbbCommand::Schema(args) => args.run(),
        }
    }
}

/// Returns a client of the server that `server` selects.
fn connect(server: &ServerArgs) -> Result<ApiClient, CliError> {
    ApiClient::new(server.find()?)
}

/// The error if the server has no such target.
fn unknown(target: &TargetRef) -> CliError {
    let list = match target.kind.as_str() {
        "sandbox" => "ebb sandbox list".to_owned(),
        kind => format!("ebb sandbox list --kind {kind}"),
    };
    CliError::failed(format!("{target} does not exist")).with_hint(list)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        super::EbbCli::command().debug_assert();
    }
}
