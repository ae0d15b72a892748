//! `ebb plugin apply`: publishes plugins.

use std::path::PathBuf;

use ebb_documents::compile;
use ebb_protocol::api::PluginInfo;
use reqwest::StatusCode;

use super::immutable;
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
            documents::warn(&compile::check_plugin(plugin)?);
        }
        let client = connect(server)?;
        let mut published: Vec<PluginInfo> = Vec::new();
        for plugin in &plugins {
            match client.publish(&plugin.expanded).await {
                Ok((status, info)) => {
                    let word = if status == StatusCode::OK { "Unchanged" } else { "Created" };
                    output::status_line(&format!("{word} resource plugin {}@{}", info.name, info.version));
                    published.push(info);
                }
                Err(error) if error.has_status(409) => return Err(immutable(plugin)),
                Err(error) => return Err(error),
            }
        }
        self.output.write_data(&published)?;
        Ok(Exit::Done)
    }
}
