//! `ebb graph`: draws the units of a sandbox or plugin.

use std::path::PathBuf;

use ebb_documents::{Document, RouteGroupDoc};

use super::plan;
use crate::drawing::DiagramFormat;
use crate::{DocumentSource, Exit, Result, ServerArgs, SetArgs, drawing, offline, output, unexpected};

#[derive(Debug, clap::Args)]
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
            let (title, mut plan) = match document {
                Document::Plugin(plugin) => {
                    let title = offline::full_name(&plugin);
                    let plan = offline::preview("sandbox", &title, offline::plan_alone(&plugin)?.plan)?;
                    (title, plan)
                }
                Document::Sandbox(sandbox) | Document::RouteGroup(RouteGroupDoc { target: sandbox, .. }) => {
                    let (plan, _) = plan::preview(server, &sandbox, &self.plugins, &vars).await?;
                    (sandbox.name.value, plan)
                }
                other => return Err(unexpected(&source.name, &other, "a sandbox or plugins")),
            };
            // A picture has no rendered data.
            for unit in plan.hooks.iter_mut().flat_map(|hook| &mut hook.units) {
                unit.rendered = serde_json::Value::Null;
            }
            pictures.push(match self.format {
                DiagramFormat::Text => drawing::text(&title, &plan),
                DiagramFormat::Mermaid => drawing::mermaid(&title, &plan),
            });
        }
        output::print(&pictures.join("\n"))
    }
}
