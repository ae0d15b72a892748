//! `ebb plugin validate`: checks documents without a server, and plugins also against the policy of a cluster.

use std::path::PathBuf;

use ebb_documents::compile::{self, ClusterPolicy};
use ebb_documents::diagnostic::Diagnostics;
use ebb_documents::load::{self, Document, DocumentVars};

use crate::cluster_policy;
use crate::commands::connect;
use crate::documents::{self, DocumentSource, SetArgs};
use crate::exit::{Exit, Result};
use crate::output::{self, OutputArgs};
use crate::server::ServerArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct PluginValidateArgs {
    /// Files with plugins, sandboxes, route groups, sources, connections or subscriptions; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PolicyValidateArgs {
    /// Check the plugins also against the policy of this cluster, which the server knows
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    documents: PluginValidateArgs,
}

/// The policy of a cluster with the name of the cluster.
type NamedPolicy<'a> = (&'a str, &'a ClusterPolicy);

impl PolicyValidateArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        let Some(name) = &self.cluster else { return self.documents.run() };
        let policy = cluster_policy::of(&connect(server)?, name).await?;
        self.documents.check(policy.as_ref().map(|policy| (name.as_str(), policy)))
    }
}

impl PluginValidateArgs {
    pub(crate) fn run(&self) -> Result<Exit> {
        self.check(None)
    }

    fn check(&self, policy: Option<NamedPolicy<'_>>) -> Result<Exit> {
        let vars = self.sets.vars()?;
        let sources = self.files.iter().map(|file| DocumentSource::read(file)).collect::<Result<Vec<_>, _>>()?;
        let (mut valid, mut found) = (Vec::new(), Diagnostics::new());
        for source in &sources {
            match check(source, &vars, policy) {
                Ok(warnings) => {
                    documents::warn(&warnings);
                    valid.push(&source.name);
                }
                Err(errors) => found.extend(errors),
            }
        }
        if self.output.format().is_none() {
            output::print(&valid.iter().map(|name| format!("{name}: valid\n")).collect::<String>())?;
        }
        if found.has_errors() {
            return Err(found.into());
        }
        self.output.write_data(&valid)
    }
}

/// Runs all checks that need no other document. Returns the warnings.
fn check(
    source: &DocumentSource,
    vars: &DocumentVars,
    policy: Option<NamedPolicy<'_>>,
) -> Result<Diagnostics, Diagnostics> {
    let loaded = load::documents(&source.name, &source.text, &source.folder, vars)?;
    let mut found = loaded.warnings;
    for document in &loaded.documents {
        let checked = match document {
            Document::Plugin(plugin) => compile::check_plugin(plugin).and_then(|warnings| {
                let refused = policy.map(|(name, policy)| cluster_policy::check_plugin(plugin, name, policy));
                refused.unwrap_or(Ok(())).map(|()| warnings)
            }),
            Document::RouteGroup(group) => compile::check_route_group(group).map(|()| Vec::new()),
            Document::Source(source) => compile::event_source(source).map(|(_, warnings)| warnings),
            Document::Subscription(subscription) => compile::subscription(subscription).map(|_| Vec::new()),
            Document::Sandbox(_) | Document::Connection(_) => Ok(Vec::new()),
        };
        match checked {
            Ok(warnings) => found.extend(warnings),
            Err(errors) => found.extend(errors),
        }
    }
    found.or(()).map(|((), warnings)| warnings)
}
