//! `ebb plan`: prints the plan of a sandbox.

use std::path::PathBuf;

use ebb_documents::{DocumentVars, PolicyRequest, SandboxDoc};
use ebb_protocol::api::PlanPreview;

use crate::{
    ApiClient, Exit, OutputArgs, Result, ServerArgs, SetArgs, cluster_policy, connect, documents, drawing, in_document,
    offline, pretend, target_of,
};

#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    /// File with the sandbox; `-` reads standard input
    file: PathBuf,
    /// File with plugins; repeatable. With it, the server is only asked for the policies of clusters
    #[arg(long = "plugin", value_name = "FILE", num_args = 1..)]
    plugins: Vec<PathBuf>,
    /// Ask the InfraKit plugins of this machine what they would do; nothing is made
    #[arg(long)]
    pretend: bool,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl PlanArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        let vars = self.sets.vars()?;
        let document = documents::single_target(&self.file, &vars)?;
        let (mut preview, requests) = preview(server, &document, &self.plugins, &vars).await?;
        match (requests, server.find()) {
            (None, _) => {
                if let Some(error) = cluster_policy::found(&preview, &document.source) {
                    return Err(error);
                }
            }
            (Some(requests), Ok(access)) => cluster_policy::check(&ApiClient::new(access)?, &requests).await?,
            (Some(requests), Err(_)) => cluster_policy::note_missing_server(&requests),
        }
        if self.pretend {
            pretend::ask(&mut preview).await?;
        }
        let title = format!("{}  {}", document.name.value, preview.digest);
        self.output.write(&preview, |preview| drawing::text(&title, preview))
    }
}

/// Returns the plan of a document with the plugins of these files, or with those of the server if there are none.
///
/// A plan of the server has the violations of policies. With another one, also returns what the units request from their
/// clusters.
pub(super) async fn preview(
    server: &ServerArgs,
    document: &SandboxDoc,
    plugins: &[PathBuf],
    vars: &DocumentVars,
) -> Result<(PlanPreview, Option<Vec<PolicyRequest>>)> {
    // Collections and built-in plugins need no server.
    if plugins.is_empty() && !offline::complete(document, &[]) {
        let hint = "or add the plugins' files with --plugin, which needs no server";
        let preview = connect(server).map_err(|error| error.with_hint(hint))?.preview(&document.expanded).await;
        return Ok((preview.map_err(|error| in_document(error, &document.source))?, None));
    }
    let plugins = documents::all_plugins(plugins, vars)?;
    let local = offline::plan(document, &plugins)?;
    documents::warn(&local.warnings);
    let target = target_of(document, "sandbox");
    let preview = offline::preview(&target.kind, &target.name, offline::as_published(document, &plugins)?)?;
    Ok((preview, Some(local.requests)))
}
