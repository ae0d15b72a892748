//! `ebb plugin get`.

use ebb_wire::api::PluginDetail;

use super::Named;
use super::list::status;
use crate::client::Client;
use crate::exit::{Exit, Trouble};
use crate::output::{self, Format, Output};
use crate::timing;

/// Show a version and who holds it. `-o yaml` gives the document as it was published, which can be applied again;
/// `-o json` everything that is known of it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plugin; without a version its highest
    #[arg(value_name = "NAME[@VERSION]")]
    plugin: Named,
    #[command(flatten)]
    output: Output,
}

impl Args {
    pub(crate) async fn run(self, client: &Client) -> Result<Exit, Trouble> {
        let detail = client.plugin(&self.plugin.name, &self.plugin.version()).await?;
        let detail = detail.ok_or_else(|| self.plugin.unknown())?;
        match self.output.format() {
            Some(Format::Yaml) => output::print(&detail.document)?,
            Some(Format::Json) | None => self.output.write(&detail, text)?,
        }
        Ok(Exit::Done)
    }
}

fn text(detail: &PluginDetail) -> String {
    let info = &detail.info;
    let head = format!(
        "Name:     {}@{}\nCreated:  {}\nStatus:   {}\nFormat:   {}\nDigest:   {}\n",
        info.name,
        info.version,
        timing::clock(&info.created),
        status(detail.in_use.len()),
        info.dialect,
        info.digest,
    );
    if detail.in_use.is_empty() {
        return head;
    }
    let rows = detail
        .in_use
        .iter()
        .map(|held| [held.resource.clone(), held.target.clone(), held.cluster.clone().unwrap_or_default()]);
    format!("{head}\n{}", output::table(&["RESOURCE NAME", "SANDBOX", "CLUSTER"], rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_and_its_holders() {
        let detail: PluginDetail = serde_json::from_value(serde_json::json!({
            "name": "db", "version": "1.0.0", "dialect": "signadot", "digest": "sha256:0123",
            "created": "2026-11-21T09:00:00Z", "document": "name: db",
            "inUse": [{"kind": "sandbox", "target": "pr-1", "resource": "users", "cluster": "staging"}],
        }))
        .unwrap();
        insta::assert_snapshot!(text(&detail), @r"
        Name:     db@1.0.0
        Created:  2026-11-21 09:00:00Z
        Status:   1 resource
        Format:   signadot
        Digest:   sha256:0123

        RESOURCE NAME  SANDBOX  CLUSTER
        users          pr-1     staging
        ");
    }
}
