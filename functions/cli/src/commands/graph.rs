//! `ebb graph`: draws the units of a sandbox or plugin.

use std::path::PathBuf;

use ebb_documents::{Document, PluginDoc, RouteGroupDoc};
use ebb_protocol::api::PlanPreview;

use super::plan;
use crate::drawing::DiagramFormat;
use crate::{DocumentSource, Exit, Result, ServerArgs, SetArgs, offline, output, unexpected};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb graph sandbox.yaml --plugin plugin.yaml\n  ebb graph plugin.yaml --format mermaid >plugin.mmd"
)]
pub(crate) struct GraphArgs {
    /// File with a sandbox or plugins; `-` reads standard input
    file: PathBuf,
    /// File with plugins; repeatable. With it, the server is not used
    #[arg(long = "plugin", value_name = "FILE", num_args = 1..)]
    plugins: Vec<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    /// Format of the picture
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    format: DiagramFormat,
}

impl GraphArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        let vars = self.sets.vars()?;
        let source = DocumentSource::read(&self.file)?;
        let mut pictures = Vec::new();
        for document in source.documents(&vars)? {
            match document {
                Document::Plugin(plugin) => pictures.push(plugin_picture(&plugin, self.format)?),
                Document::Sandbox(sandbox) | Document::RouteGroup(RouteGroupDoc { target: sandbox, .. }) => {
                    let (plan, _) = plan::preview(server, &sandbox, &self.plugins, &vars).await?;
                    pictures.push(picture(&sandbox.name.value, plan, self.format));
                }
                other => return Err(unexpected(&source.name, &other, "a sandbox or plugins")),
            }
        }
        output::print(&pictures.join("\n"))
    }
}

fn plugin_picture(plugin: &PluginDoc, format: DiagramFormat) -> Result<String> {
    let title = offline::full_name(plugin);
    let plan = offline::preview("sandbox", &title, offline::plan_alone(plugin)?.plan)?;
    Ok(picture(&title, plan, format))
}

/// Returns a picture without the rendered data of the units.
fn picture(title: &str, mut plan: PlanPreview, format: DiagramFormat) -> String {
    for unit in plan.hooks.iter_mut().flat_map(|hook| &mut hook.units) {
        unit.rendered = serde_json::Value::Null;
    }
    format.draw(title, &plan)
}
