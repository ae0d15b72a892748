//! `ebb plugin get`: shows a plugin version.

use ebb_documents::compile;
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_documents::model::Named;
use ebb_protocol::api::{PluginDetail, SigningSecrets};

use super::VersionedName;
use crate::client::ApiClient;
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs, OutputFormat};
use crate::timing;

/// Show a plugin version, published or withdrawn. `-o yaml` prints the document as it was published; `-o json` prints
/// all stored data
#[derive(Debug, clap::Args)]
pub(crate) struct PluginGetArgs {
    /// Plugin to show; without VERSION, its highest version
    #[arg(value_name = "NAME[@VERSION]")]
    plugin: VersionedName,
    /// Print the secrets that verify the plugin's webhooks, one per line, the current one first
    #[arg(long)]
    signing_secret: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl PluginGetArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        if self.signing_secret {
            return self.print_secrets(client).await;
        }
        let detail = client.plugin(&self.plugin.name, &self.plugin.version()).await?;
        let detail = detail.ok_or_else(|| self.plugin.unknown())?;
        match self.output.format() {
            Some(OutputFormat::Yaml) => output::print_data(&detail.document),
            Some(OutputFormat::Json) | None => self.output.write(&detail, text),
        }
    }

    async fn print_secrets(self, client: &ApiClient) -> Result<Exit> {
        let secrets: Option<SigningSecrets> = client.find(&["plugins", &self.plugin.name, "signing-secret"]).await?;
        let secrets = secrets.ok_or_else(|| super::never_published(&self.plugin.name))?;
        self.output.write(&secrets, |secrets| secrets.secrets.iter().map(|secret| format!("{secret}\n")).collect())
    }
}

fn text(detail: &PluginDetail) -> String {
    let info = &detail.info;
    let withdrawn = detail.withdrawn.as_deref().map(timing::clock);
    let head = format!(
        "Name:     {}@{}\nCreated:  {}\nStatus:   {}\nFormat:   {}\nDigest:   {}\n",
        info.name,
        info.version,
        timing::clock(&info.created),
        withdrawn.map_or("published".to_owned(), |at| format!("withdrawn {at}")),
        info.dialect,
        info.digest,
    );
    head + &interface(&detail.document)
}

/// Returns tables of the plugin's params and outputs, with their descriptions.
fn interface(document: &str) -> String {
    let Ok(plugins) = load::plugins("document", document, &NoFiles, &DocumentVars::none()) else {
        return String::new();
    };
    let Some(plugin) = plugins.first() else { return String::new() };
    let description = |text: &Option<String>| text.as_deref().map(one_line).unwrap_or_default();
    let mut text = String::new();
    if let Some(description) = &plugin.description {
        text += &format!("About:    {}\n", one_line(description));
    }
    let params = plugin.params.iter().map(|param| {
        let default = match &param.default {
            Some(default) => default.value.to_string(),
            None if param.is_optional() => "optional".to_owned(),
            None => "required".to_owned(),
        };
        let sensitive = if param.sensitive { "sensitive " } else { "" };
        let kind = format!("{sensitive}{}", compile::kind_name(param.kind));
        [param.name.value.clone(), kind, default, description(&param.description)]
    });
    if !plugin.params.is_empty() {
        text += &format!("\n{}", output::table(&["PARAM", "TYPE", "DEFAULT", "DESCRIPTION"], params));
    }
    let outputs = plugin.outputs.iter().map(|Named { name, .. }| {
        let declared = plugin.hooks().flat_map(|(_, hook)| &hook.inner).flat_map(|unit| &unit.outputs);
        let last = name.value.rsplit('.').next().unwrap_or_default();
        let text = declared.filter(|output| output.name.value == last).find_map(|output| output.description.as_ref());
        [name.value.clone(), description(&text.cloned())]
    });
    if !plugin.outputs.is_empty() {
        text += &format!("\n{}", output::table(&["OUTPUT", "DESCRIPTION"], outputs));
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withdrawn_version() {
        let detail: PluginDetail = serde_json::from_value(serde_json::json!({
            "name": "db", "version": "1.0.0", "dialect": "signadot", "digest": "sha256:0123",
            "created": "2026-11-21T09:00:00Z", "withdrawn": "2026-11-22T09:00:00Z", "document": "name: db",
        }))
        .unwrap();
        insta::assert_snapshot!(text(&detail), @r"
        Name:     db@1.0.0
        Created:  2026-11-21 09:00:00Z
        Status:   withdrawn 2026-11-22 09:00:00Z
        Format:   signadot
        Digest:   sha256:0123
        ");
    }
}
