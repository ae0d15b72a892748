//! `ebb plugin apply`: publishes plugins.

use std::path::PathBuf;

use ebb_documents::compile;
use ebb_protocol::api::PluginInfo;

use super::immutable;
use crate::client::PublicationStatus;
use crate::commands::connect;
use crate::documents::{self, SetArgs};
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs};
use crate::server::ServerArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct PluginApplyArgs {
    /// File with plugins; `-` reads standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl PluginApplyArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit, CliError> {
        let plugins = documents::plugins(&self.file, &self.sets.vars()?)?;
        for plugin in &plugins {
            for warning in compile::check_plugin(plugin)? {
                output::status_line(warning.drawn(output::drawing()).trim_end());
            }
        }
        let client = connect(server)?;
        let mut published: Vec<PluginInfo> = Vec::new();
        for plugin in &plugins {
            match client.publish(&plugin.expanded).await {
                Ok((publication, info)) => {
                    let word = match publication {
                        PublicationStatus::Created => "Created",
                        PublicationStatus::Unchanged => "Unchanged",
                    };
                    output::status_line(&format!("{word} resource plugin {}@{}", info.name, info.version));
                    published.push(info);
                }
                Err(error) if error.refusal().is_some_and(|problem| problem.status == 409) => {
                    return Err(immutable(plugin));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if self.output.format().is_some() {
            self.output.write(&published, |_| String::new())?;
        }
        Ok(Exit::Done)
    }
}
