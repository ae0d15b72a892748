//! `ebb validate`: checks documents without a server, and plugins also against the policy of a cluster.

use std::path::PathBuf;

use ebb_documents::{ClusterPolicy, Diagnostics, Document, DocumentVars, compile, load};

use crate::{
    DocumentSource, Exit, FileArgs, OutputArgs, Result, ServerArgs, SetArgs, cluster_policy, connect, documents, output,
};

#[derive(Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Files with documents of any kind, or folders with such files; `-` reads standard input
    #[arg(required_unless_present = "files", value_name = "FILE")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    sets: SetArgs,
    /// Check the plugins also against the policy of this cluster, which the server knows
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

type NamedPolicy = (String, ClusterPolicy);

/// The valid documents by the names of their files, and the errors of the other files.
type CheckedFiles = (Vec<(String, Vec<Document>)>, Diagnostics);

impl ValidateArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        let policy = policy(server, self.cluster.as_deref()).await?;
        let paths = [self.paths, self.files.files].concat();
        let (valid, errors) = load(&paths, &self.sets.vars()?, policy.as_ref())?;
        let valid: Vec<String> = valid.into_iter().map(|(name, _)| name).collect();
        if self.output.format.is_none() {
            output::print(&valid.iter().map(|name| format!("{name}: valid\n")).collect::<String>())?;
        }
        if errors.has_errors() { Err(errors.into()) } else { self.output.write_data(&valid) }
    }
}

/// Returns the policy of a cluster, if a name is given and the server knows the policy.
pub(super) async fn policy(server: &ServerArgs, cluster: Option<&str>) -> Result<Option<NamedPolicy>> {
    let Some(name) = cluster else { return Ok(None) };
    let policy = cluster_policy::of(&connect(server)?, name).await?;
    Ok(policy.map(|policy| (name.to_owned(), policy)))
}

/// Loads and checks the documents of files and folders, and prints warnings.
pub(super) fn load(paths: &[PathBuf], vars: &DocumentVars, policy: Option<&NamedPolicy>) -> Result<CheckedFiles> {
    let (mut valid, mut errors) = (Vec::new(), Diagnostics::default());
    for path in documents::files(paths)? {
        let source = DocumentSource::read(&path)?;
        match check(&source, vars, policy) {
            Ok((documents, warnings)) => {
                documents::warn(warnings.iter());
                valid.push((source.name, documents));
            }
            Err(wrong) => errors.extend(wrong),
        }
    }
    Ok((valid, errors))
}

/// Runs all checks that need no other document. Returns the documents with the warnings.
fn check(
    source: &DocumentSource,
    vars: &DocumentVars,
    policy: Option<&NamedPolicy>,
) -> Result<(Vec<Document>, Diagnostics), Diagnostics> {
    let (documents, mut found) = load::documents(&source.name, &source.text, &source.folder, vars)?;
    for document in &documents {
        let checked = match document {
            Document::Plugin(plugin) => compile::check_plugin(plugin).and_then(|(warnings, requests)| {
                let refused = policy.map(|(name, policy)| cluster_policy::check_plugin(&requests, name, policy));
                refused.unwrap_or(Ok(())).map(|()| warnings)
            }),
            Document::RouteGroup(group) => compile::check_route_group(group).and(compile::check_target(&group.target)),
            Document::Sandbox(sandbox) => compile::check_target(sandbox),
            Document::Source(source) => compile::event_source(source).map(|(_, warnings)| warnings),
            Document::Subscription(subscription) => compile::subscription(subscription).map(|_| Vec::new()),
            Document::Connection(_) => Ok(Vec::new()),
        };
        match checked {
            Ok(warnings) => found.extend(warnings),
            Err(errors) => found.extend(errors),
        }
    }
    found.or(documents)
}
