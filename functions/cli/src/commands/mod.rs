//! The commands, one per file.

mod apply;
mod apply_target;
mod cluster;
mod connection;
mod delete;
mod dev;
mod doctor;
mod env;
mod event;
mod get;
mod graph;
mod history;
mod inventory;
mod kinds;
mod login;
mod logs;
mod mcp;
mod open;
mod orphans;
mod plan;
mod plugin;
mod retry;
mod run;
mod schema;
mod source;
mod subscription;
mod target_text;
mod token;
mod unit;
mod validate;
mod wait;

use std::collections::BTreeMap;

use clap::{Command, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use self::cluster::ClusterCommand;
use self::connection::ConnectionCommand;
use self::plugin::PluginCommand;
use self::source::SourceCommand;
use self::subscription::SubscriptionCommand;
use self::token::TokenCommand;
use self::unit::UnitCommand;
use crate::{Exit, OutputArgs, Result, ServerArgs, TargetCommandArgs, connect, output, why};

/// Create the resources that sandboxes need, and delete them when the sandboxes end
#[derive(Debug, Parser)]
#[command(name = "ebb", version, after_help = include_str!("after_help.txt").trim_end())]
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
    /// Show the console, or the page of a sandbox, in a browser
    Open(open::OpenArgs),
    /// Sign in to the server as yourself, on a page of its console
    Login(login::LoginArgs),
    /// End the login at the server
    Logout,
    /// Show as whom commands use the server, and with which scopes
    Whoami(OutputArgs),
    /// Check each component of a deployment
    Doctor(OutputArgs),
    /// Store documents of any kind, and create or update sandboxes; retry failed ones
    Apply(apply::ApplyArgs),
    /// List the documents or targets of a kind, or show one of them
    #[command(alias = "describe", alias = "ls")]
    Get(get::GetArgs),
    /// Delete documents, or sandboxes with their resources
    Delete(Box<delete::DeleteArgs>),
    /// Check documents without a server
    Validate(validate::ValidateArgs),
    /// Explain the state of a sandbox and list the next steps
    Why(TargetCommandArgs),
    /// Print the logs of units
    Logs(logs::LogsArgs),
    /// Retry the failed units of sandboxes
    Retry(retry::RetryArgs),
    /// Wait until sandboxes are ready or gone
    Wait(wait::WaitCommandArgs),
    /// Print the environment of a ready sandbox for a shell or CI system
    Env(env::EnvArgs),
    /// Show who changed a sandbox, when and why
    History(history::HistoryArgs),
    /// Run the units of an event, such as `sleep`
    Event(event::EventArgs),
    /// Show the plan of a sandbox without running it
    Plan(plan::PlanArgs),
    /// Draw the units of a sandbox or plugin and their dependencies
    Graph(graph::GraphArgs),
    /// Write plugins, compare their versions, and give targets another one
    #[command(subcommand, alias = "rp", alias = "resourceplugin")]
    Plugin(PluginCommand),
    /// Write and test sources, which map events of third parties to targets
    #[command(subcommand)]
    Source(SourceCommand),
    /// Write connections, which authorize requests of plugins
    #[command(subcommand)]
    Connection(ConnectionCommand),
    /// Write and test subscriptions, which send notifications
    #[command(subcommand)]
    Subscription(SubscriptionCommand),
    /// Run a unit alone, show its rendered form, or mark a failed one as complete
    #[command(subcommand)]
    Unit(UnitCommand),
    /// Connect, show and disconnect clusters
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Create, list and revoke API tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// List objects of ended sandboxes that remain in clusters
    Orphans(orphans::OrphansArgs),
    /// Compare what exists of a plugin with what Ebb knows
    Inventory(Box<inventory::InventoryArgs>),
    /// Serve tools for coding agents by the Model Context Protocol (MCP)
    Mcp(mcp::McpArgs),
    /// Print the JSON Schema of a document
    Schema(schema::SchemaArgs),
    /// Print a completion script for a shell
    Completions {
        /// Shell to write the script for
        shell: Shell,
    },
}

/// Adds their examples to the subcommands of a command, by their paths.
fn with_examples(command: Command, path: &str, examples: &BTreeMap<String, Vec<String>>) -> Command {
    command.mut_subcommands(|one| {
        let path = format!("{path}{}", one.get_name());
        let one = with_examples(one, &format!("{path} "), examples);
        match examples.get(&path) {
            Some(lines) => one.after_help(format!("Examples:\n  {}", lines.join("\n  "))),
            None => one,
        }
    })
}

impl EbbCli {
    /// Returns the command line with the examples of its commands.
    pub(crate) fn described() -> Command {
        let examples = serde_json::from_str(include_str!("examples.json")).expect("the file has examples");
        with_examples(Self::command(), "", &examples)
    }

    pub(crate) async fn run(self) -> Result<Exit> {
        let server = &self.server;
        match self.command {
            EbbCommand::Run(args) => Box::pin(args.run()).await,
            EbbCommand::Dev(args) => args.run().await,
            EbbCommand::Open(args) => args.run(&connect(server)?).await,
            EbbCommand::Login(args) => Box::pin(args.run(server)).await,
            EbbCommand::Logout => Box::pin(login::logout(server)).await,
            EbbCommand::Whoami(output) => login::whoami(&connect(server)?, output).await,
            EbbCommand::Doctor(output) => doctor::run(&connect(server)?, output).await,
            EbbCommand::Apply(args) => Box::pin(args.run(server)).await,
            EbbCommand::Get(args) => Box::pin(args.run(&connect(server)?)).await,
            EbbCommand::Delete(args) => Box::pin(args.run(server)).await,
            EbbCommand::Validate(args) => args.run(server).await,
            EbbCommand::Why(args) => {
                let why = connect(server)?.why(&args.target.target()?).await?;
                args.output.write(&why, why::text)
            }
            EbbCommand::Logs(args) => args.run(&connect(server)?).await,
            EbbCommand::Retry(args) => args.run(&connect(server)?).await,
            EbbCommand::Wait(args) => Box::pin(args.run(&connect(server)?)).await,
            EbbCommand::Env(args) => args.run(&connect(server)?).await,
            EbbCommand::History(args) => args.run(&connect(server)?).await,
            EbbCommand::Event(args) => args.run(&connect(server)?).await,
            EbbCommand::Plan(args) => args.run(server).await,
            EbbCommand::Graph(args) => args.run(server).await,
            EbbCommand::Plugin(PluginCommand::New(args)) => args.run(),
            EbbCommand::Plugin(PluginCommand::Diff(args)) => args.run(&connect(server)?).await,
            EbbCommand::Plugin(PluginCommand::Upgrade(args)) => Box::pin(args.run(&connect(server)?)).await,
            EbbCommand::Plugin(PluginCommand::SigningSecret(args)) => args.run(&connect(server)?).await,
            EbbCommand::Source(SourceCommand::New(args)) => args.run(),
            EbbCommand::Source(SourceCommand::Test(args)) => args.run(),
            EbbCommand::Source(SourceCommand::Send(args)) => args.run(&connect(server)?).await,
            EbbCommand::Source(SourceCommand::Drift(args)) => args.run(&connect(server)?).await,
            EbbCommand::Source(SourceCommand::Reconcile(args)) => args.run(&connect(server)?).await,
            EbbCommand::Connection(ConnectionCommand::New(args)) => args.run(),
            EbbCommand::Subscription(SubscriptionCommand::New(args)) => args.run(),
            EbbCommand::Subscription(SubscriptionCommand::Test(args)) => args.run(),
            EbbCommand::Subscription(SubscriptionCommand::Retry(args)) => args.run(&connect(server)?).await,
            EbbCommand::Unit(UnitCommand::Run(args)) => args.run().await,
            EbbCommand::Unit(UnitCommand::Rendered(args)) => args.run(&connect(server)?).await,
            EbbCommand::Unit(UnitCommand::ForceComplete(args)) => args.run(&connect(server)?).await,
            EbbCommand::Cluster(ClusterCommand::Connect(args)) => args.run(&connect(server)?).await,
            EbbCommand::Cluster(ClusterCommand::List(output)) => cluster::list(&connect(server)?, output).await,
            EbbCommand::Cluster(ClusterCommand::Get(args)) => args.run(&connect(server)?).await,
            EbbCommand::Cluster(ClusterCommand::Rotate(args)) => args.run(&connect(server)?).await,
            EbbCommand::Cluster(ClusterCommand::Disconnect(args)) => args.run(&connect(server)?).await,
            EbbCommand::Token(TokenCommand::Create(args)) => args.run(&connect(server)?).await,
            EbbCommand::Token(TokenCommand::List(output)) => token::list(&connect(server)?, output).await,
            EbbCommand::Token(TokenCommand::Revoke(args)) => args.run(&connect(server)?).await,
            EbbCommand::Orphans(args) => args.run(&connect(server)?).await,
            EbbCommand::Inventory(args) => Box::pin(args.run(&connect(server)?)).await,
            EbbCommand::Mcp(args) => args.run(connect(server)?).await,
            EbbCommand::Schema(args) => args.run(),
            EbbCommand::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Self::command(), "ebb", &mut script);
                output::print_data(&String::from_utf8_lossy(&script))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::reference::leaves;

    /// Returns the names of the commands without subcommands that have an option, and of those that do not.
    fn by_option(option: &str) -> (BTreeSet<String>, BTreeSet<String>) {
        let mut all = Vec::new();
        leaves("ebb", &EbbCli::command(), &mut all);
        let (with, without): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, command)| command.get_arguments().any(|one| one.get_long() == Some(option)));
        let names = |commands: Vec<(String, clap::Command)>| {
            commands.into_iter().map(|(path, _)| path.trim_start_matches("ebb ").to_owned()).collect()
        };
        (names(with), names(without))
    }

    #[test]
    fn each_command_has_output_and_dry_run_or_a_reason() {
        let lists: Value = serde_saphyr::from_str(include_str!("exceptions.yaml")).unwrap();
        let named = |list: &str| lists[list].as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(by_option("output").1, named("no data"));
        let reads = lists["reads"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
        assert_eq!(by_option("dry-run").1, named("no dry run").into_iter().chain(reads).collect());
    }

    /// The page has a row for the data of each command with `-o json`.
    #[test]
    fn the_data_of_each_command_is_documented() {
        let page = include_str!("../../../../docs/src/cli.md");
        let (_, table) = page.split_once("| command | data of `-o json` |\n|---|---|\n").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        let cells = table.lines().flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(','));
        let documented: BTreeSet<_> = cells.map(|cell| cell.trim().trim_matches('`').to_owned()).collect();
        assert_eq!(documented, by_option("output").0);
        let api = serde_json::to_value(ebb_api::openapi()).unwrap();
        let words = table.split('`').filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()));
        for schema in words.filter(|word| word.chars().all(char::is_alphanumeric)) {
            assert!(api["components"]["schemas"][schema].is_object(), "{schema} is not a schema");
        }
    }
}
