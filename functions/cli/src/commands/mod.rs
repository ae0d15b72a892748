//! The commands, one per file.

mod cluster;
mod connection;
mod dev;
mod doctor;
mod graph;
mod logs;
mod orphans;
mod plan;
mod plugin;
mod run;
mod sandbox;
mod schema;
mod source;
mod token;
mod unit;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use ebb_protocol::api::RetryResponse;

use crate::client::ApiClient;
use crate::exit::{CliError, Exit};
use crate::server::ServerArgs;
use crate::target::TargetCommandArgs;
use crate::{output, why};

/// Create the resources that sandboxes need, and delete them when the sandboxes end
#[derive(Debug, Parser)]
#[command(
    name = "ebb",
    version,
    after_help = "Examples:\n  ebb run sandbox.yaml --plugin plugin.yaml --rm\n  ebb sandbox apply -f sandbox.yaml\n  ebb why pr-1\n\n\
                  Exit codes: 0 success, 1 the run failed or the document is invalid, 2 usage or internal error, 124 \
                  the time limit of a wait ended, 130 interrupted.\nData goes to standard output, messages to standard error."
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
    /// Write, test and publish sources, which map events of third parties to targets
    #[command(subcommand)]
    Source(source::SourceCommand),
    /// Create, list and revoke API tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Write, check and store connections, which authorize requests of plugins
    #[command(subcommand)]
    Connection(connection::ConnectionCommand),
    /// Connect clusters and list them
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Run a unit alone, or mark a failed one as complete
    #[command(subcommand)]
    Unit(unit::UnitCommand),
    /// Print the logs of units
    Logs(logs::LogsArgs),
    /// Explain the state of a sandbox and list the next steps
    Why(TargetCommandArgs),
    /// Draw the units of a sandbox or plugin and their dependencies
    Graph(graph::GraphArgs),
    /// Show the plan of a sandbox without running it
    Plan(plan::PlanArgs),
    /// Retry the failed units of a sandbox
    Retry(TargetCommandArgs),
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
    Completions {
        /// Shell to write the script for
        shell: Shell,
    },
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
            EbbCommand::Source(command) => command.run(&self.server).await,
            EbbCommand::Token(command) => command.run(&connect(server)?).await,
            EbbCommand::Connection(command) => command.run(server).await,
            EbbCommand::Cluster(command) => command.run(server).await,
            EbbCommand::Unit(command) => command.run(server).await,
            EbbCommand::Logs(args) => args.run(&connect(server)?).await,
            EbbCommand::Why(args) => {
                let client = connect(server)?;
                args.print(async |target| client.why(target).await, |output, why| output.write(why, why::text)).await
            }
            EbbCommand::Graph(args) => args.run(server).await,
            EbbCommand::Apply { .. } => {
                Err(CliError::broken("`ebb apply` is not a command: sandboxes and plugins have their own")
                    .with_hint("ebb sandbox apply -f FILE")
                    .with_hint("ebb plugin apply -f FILE"))
            }
            EbbCommand::Plan(args) => args.run(server).await,
            EbbCommand::Retry(args) => {
                let client = connect(server)?;
                args.print(async |target| client.retry(target).await, |output, done| output.write_status(done, retried))
                    .await
            }
            EbbCommand::Orphans(args) => args.run(&connect(server)?).await,
            EbbCommand::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "ebb", &mut script);
                output::print(&String::from_utf8_lossy(&script))?;
                Ok(Exit::Done)
            }
            EbbCommand::Schema(args) => args.run(),
        }
    }
}

/// Returns a client of the server that `server` selects.
fn connect(server: &ServerArgs) -> Result<ApiClient, CliError> {
    ApiClient::new(server.find()?)
}

/// Returns a client of the server for a command that can also read plugins from files.
fn connect_for_plugins(server: &ServerArgs) -> Result<ApiClient, CliError> {
    connect(server).map_err(|error| error.with_hint("or add the plugins' files with --plugin, which needs no server"))
}

fn retried(retried: &RetryResponse) -> String {
    match retried.units.as_slice() {
        [] => format!("Nothing to retry in {}", retried.run),
        units => format!("Retrying in {}: {}", retried.run, units.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_definition_is_valid() {
        EbbCli::command().debug_assert();
    }
}
