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
mod waive;
mod why;

use clap::{Parser, Subcommand};

use crate::client::Client;
use crate::exit::{Exit, Trouble};
use crate::server::ServerArgs;
use crate::target::Target;

/// Gives sandboxes the resources that they need, and takes them away again
#[derive(Debug, Parser)]
#[command(
    name = "ebb",
    version,
    after_help = "Exit codes: 0 done, 1 the run failed or the document is invalid, 2 wrong usage or our error, 130 \
                  interrupted.\nData goes to standard output, everything else to standard error."
)]
pub(crate) struct Ebb {
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a sandbox's resources on this machine, once, from files
    Run(run::Args),
    /// Run the server on this machine until Ctrl-C
    Dev(dev::Args),
    /// Check a deployment, part by part
    Doctor(doctor::Args),
    /// Publish, read, check and draw plugins
    #[command(subcommand, alias = "rp", alias = "resourceplugin")]
    Plugin(plugin::Command),
    /// Ask for sandboxes and their end
    #[command(subcommand)]
    Sandbox(sandbox::Command),
    /// Connect clusters and see whether they are there
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Run a part of a plugin
    #[command(subcommand)]
    Unit(unit::Command),
    /// Show what units have logged
    Logs(logs::Args),
    /// Explain why a sandbox is not where it should be
    Why(why::Args),
    /// Draw the units of a sandbox or plugin and what waits for what
    Graph(graph::Args),
    /// Show what would be done for a sandbox, without doing anything
    Plan(plan::Args),
    /// Try again what has failed
    Retry(retry::Args),
    /// Let a failed unit of a stuck sandbox's teardown count as over, and go on
    Skip(waive::SkipArgs),
    /// End the life of a stuck sandbox, although something of it may be left
    Abandon(waive::AbandonArgs),
    /// Show, and delete, what is left in clusters of sandboxes that are gone
    Orphans(orphans::Args),
    /// Says which command applies a document
    #[command(hide = true)]
    Apply {
        /// Anything
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<std::ffi::OsString>,
    },
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Print the JSON Schema of a document, for editors
    Schema(schema::Args),
}

impl Ebb {
    /// Does what was asked for.
    pub(crate) async fn run(self) -> Result<Exit, Trouble> {
        let server = &self.server;
        match self.command {
            Command::Run(args) => Box::pin(args.run()).await,
            Command::Dev(args) => args.run().await,
            Command::Doctor(args) => args.run(&connect(server)?).await,
            Command::Plugin(command) => command.run(server).await,
            Command::Sandbox(command) => command.run(server).await,
            Command::Cluster(command) => command.run(server).await,
            Command::Unit(command) => command.run().await,
            Command::Logs(args) => args.run(&connect(server)?).await,
            Command::Why(args) => args.run(&connect(server)?).await,
            Command::Graph(args) => args.run(server).await,
            Command::Apply { .. } => Err(Trouble::broken("`ebb apply` does not say what to apply")
                .next("ebb sandbox apply -f FILE")
                .next("ebb plugin apply -f FILE")),
            Command::Plan(args) => args.run(server).await,
            Command::Retry(args) => args.run(&connect(server)?).await,
            Command::Skip(args) => args.run(&connect(server)?).await,
            Command::Abandon(args) => args.run(&connect(server)?).await,
            Command::Orphans(args) => args.run(&connect(server)?).await,
            Command::Completions(args) => args.run(),
            Command::Schema(args) => args.run(),
        }
    }
}

/// A connection to the server that is meant.
fn connect(server: &ServerArgs) -> Result<Client, Trouble> {
    Client::new(server.find()?)
}

/// There is no such target.
fn unknown(target: &Target) -> Trouble {
    let list = match target.kind.as_str() {
        "sandbox" => "ebb sandbox list".to_owned(),
        kind => format!("ebb sandbox list --kind {kind}"),
    };
    Trouble::failed(format!("the server knows no {target}")).next(list)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        super::Ebb::command().debug_assert();
    }
}
