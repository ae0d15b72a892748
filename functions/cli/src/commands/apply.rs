//! `ebb apply`: stores documents of any kind, and creates or updates targets.

use std::time::{Duration, Instant};

use ebb_documents::{Document, PluginDoc, SandboxDoc, load};
use ebb_protocol::api::PluginInfo;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::apply_target::{self, AppliedTarget};
use super::env::{self, EnvFormat};
use super::kinds::{DocumentKind, KINDS};
use super::{connection, plugin, source, subscription, validate};
use crate::silence::repeated;
use crate::{
    ApiClient, ChangeKind, CliError, DocumentChange, DryRunArgs, Exit, FileArgs, KindArgs, OutputArgs, Result,
    ServerArgs, SetArgs, WaitArgs, accept_loss, connect, divided, offline, output, target_of, timing, why,
};

#[derive(Debug, clap::Args)]
#[command(mut_arg("files", |files| files.required(true)))]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    kind: KindArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// Longest time to wait until the targets are ready
    #[arg(long, value_name = "DURATION", value_parser = timing::parse, default_value = "3m")]
    wait_timeout: Duration,
    /// Also remove or replace complete resources of living targets; what they hold is lost
    #[arg(long)]
    allow_replace: bool,
    /// Name of the request. The UID of a new target follows from it, so a repetition starts no second one
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Apply a target only if it has this generation; 0 only creates it
    #[arg(long, value_name = "N")]
    if_generation: Option<u64>,
    /// Replace a connection that living targets need as it is, without asking for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    dry_run: DryRunArgs,
    /// With `--dry-run`: check that `ebb env -o FORMAT` accepts the names of all variables, and can print the values that
    /// are known before the start
    #[arg(long, value_name = "FORMAT", requires = "dry_run", hide_possible_values = true)]
    check_env: Option<EnvFormat>,
    /// With `--check-env`: leave out sensitive values; without this, one is an error
    #[arg(long, requires = "check_env")]
    skip_sensitive: bool,
    /// With `--dry-run`: check the plugins also against the policy of this cluster
    #[arg(long, value_name = "NAME", requires = "dry_run")]
    cluster: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

impl ApplyArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        let policy = validate::policy(server, self.cluster.as_deref()).await?;
        let (valid, errors) = validate::load(&self.files.files, &self.sets.vars()?, policy.as_ref())?;
        if errors.has_errors() {
            return Err(errors.into());
        }
        let (mut documents, targets) = divided(valid.into_iter().flat_map(|(_, documents)| documents));
        documents.sort_by_key(|document| KINDS.iter().position(|kind| kind.plural == path(document)[0]));
        let named: Vec<_> = targets.iter().map(|document| target_of(document, &self.kind.kind)).collect();
        if let Some(twice) = (1..named.len()).find(|&at| named[..at].contains(&named[at])) {
            return Err(CliError::broken(format!("the files name {} twice", named[twice])).with_hint("leave one out"));
        }
        let client = connect(server)?;
        if self.dry_run.dry_run {
            return self.preview(&client, &documents, &targets).await;
        }
        let mut stored = Vec::new();
        for document in &documents {
            stored.push(store(&client, document, self.yes).await?);
        }
        let limit = self.wait.wait.then_some(self.wait_timeout);
        let how = (limit.is_some(), self.allow_replace, self.if_generation, self.idempotency_key.as_deref());
        let (mut applied, mut failed) = (Vec::new(), Ok(()));
        for document in &targets {
            let target = target_of(document, &self.kind.kind);
            failed = AppliedTarget::apply(&client, document, target, how).await.map(|target| applied.push(target));
            if failed.is_err() {
                break;
            }
        }
        // The data about the accepted ones is also printed after an error.
        let limit = limit.filter(|_| failed.is_ok());
        let (mut done, state) = if limit.is_some() { (0, "are ready") } else { (applied.len(), "were applied") };
        if failed.as_ref().is_err_and(CliError::is_unreachable) {
            stored.extend(applied.drain(..).map(|target| target.accepted()));
        }
        let (begun, mut end) = (Instant::now(), Ok(Exit::Done));
        for target in applied {
            let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
            let (seen, ended) = target.finish(&client, left).await;
            done += usize::from(limit.is_some() && matches!(ended, Ok(Exit::Done)));
            if let Some(seen) = seen {
                if self.output.format.is_none() && targets.len() == 1 && matches!(ended, Ok(Exit::Done)) {
                    output::print(&why::output_lines(&seen.resources))?;
                }
                stored.push(output::json(&seen));
            }
            // The command ends as the first target does that is not ready.
            end = match (end, ended) {
                (Ok(Exit::Done), ended) => ended,
                (end, Err(error)) => {
                    output::status_line(&error.text(output::drawing()));
                    end
                }
                (end, Ok(_)) => end,
            };
        }
        if targets.len() > 1 {
            output::status_line(&format!("{done} of {} targets {state}", targets.len()));
        }
        if failed.is_ok() || done > 0 {
            self.output.write_data(&stored)?;
        }
        failed.and(end)
    }

    async fn preview(&self, client: &ApiClient, documents: &[Document], targets: &[SandboxDoc]) -> Result<Exit> {
        let plugins: Vec<PluginDoc> = documents.iter().filter_map(as_plugin).cloned().collect();
        let (mut planned, mut has_new, line) = (Vec::new(), false, self.output.lines());
        for document in documents {
            let change = change(client, document, &plugins).await?;
            line(&change.text())?;
            has_new |= change.change != ChangeKind::None;
            planned.push(output::json(&change));
        }
        // The server does not have the documents that the targets would find.
        let how = (self.if_generation, self.idempotency_key.as_deref(), has_new.then_some(plugins.as_slice()));
        for document in targets {
            let target = target_of(document, &self.kind.kind);
            let (data, text) = apply_target::preview(client, document, target, how).await?;
            if let Some(format) = self.check_env {
                let known = serde_json::from_value(data["plan"]["env"].clone()).unwrap_or_default();
                document.env.iter().try_for_each(|it| env::check_variable(format, &it.name.value, ""))?;
                env::check(format, known, self.skip_sensitive)?;
            }
            // A log of a job shows no values.
            line(if self.output.format.is_none() { &text } else { text.lines().next().unwrap_or_default() })?;
            planned.push(data);
        }
        self.output.write_data(&planned)
    }
}

fn as_plugin(document: &Document) -> Option<&PluginDoc> {
    if let Document::Plugin(plugin) = document { Some(plugin) } else { None }
}

/// Returns the change that storing a document would make. `plugins` would be published before it.
async fn change(client: &ApiClient, document: &Document, plugins: &[PluginDoc]) -> Result<DocumentChange> {
    let kind = DocumentKind::of(document).map_or("", |kind| kind.name);
    if let Document::Plugin(plugin) = document {
        let version = offline::version(plugin).to_string();
        let change = match client.plugin(&plugin.name.value, &version).await? {
            None => ChangeKind::Create,
            Some(found) if found.info.digest == load::digest(plugin) => ChangeKind::None,
            Some(_) => return Err(plugin::immutable(plugin)),
        };
        return Ok(DocumentChange::planned(kind, offline::full_name(plugin), change));
    }
    if let Document::Source(source) = document {
        source::warn_of_plugins(client, source, plugins).await?;
    }
    let found: Option<Value> = client.find(&path(document)).await?;
    let change = match found {
        None => ChangeKind::Create,
        Some(found) if found["document"] == document.expanded() => ChangeKind::None,
        Some(_) => {
            put(client, document, Some("dryRun"), true).await?;
            let effect = DocumentKind::of(document).map(|kind| kind.replaced).unwrap_or_default();
            output::status_line(&format!("{kind} {}: {effect}", document.name()));
            ChangeKind::Replace
        }
    };
    Ok(DocumentChange::planned(kind, document.name().to_owned(), change))
}

fn path(document: &Document) -> [&str; 2] {
    [DocumentKind::of(document).map_or("", |kind| kind.plural), document.name()]
}

/// Sends a document with an option of the API. If living targets need the stored one as it is, prints them, asks unless `yes`,
/// and sends it again with `force`.
async fn put(client: &ApiClient, document: &Document, option: Option<&str>, yes: bool) -> Result<Value> {
    let (path, body) = (path(document), json!({"document": document.expanded()}));
    let options: Vec<&str> = option.into_iter().collect();
    match repeated(|| client.has_server(), || client.put(&path, &body, &options)).await {
        Err(error) if error.has_code("document-in-use") => {
            let kind = DocumentKind::of(document).map_or("", |kind| kind.name);
            accept_loss(&error, yes, &format!("Replace {kind} {}", document.name()))?;
            client.put(&path, &body, &[options.as_slice(), &["force"]].concat()).await
        }
        answered => answered,
    }
}

/// Stores a document, and prints what is to do next. Returns the stored data.
async fn store(client: &ApiClient, document: &Document, yes: bool) -> Result<Value> {
    if let Document::Plugin(plugin) = document {
        return publish(client, plugin).await.map(|info| output::json(&info));
    }
    if let Document::Source(source) = document {
        source::warn_of_plugins(client, source, &[]).await?;
    }
    let stored = put(client, document, None, yes).await?;
    match document {
        Document::Connection(connection) => connection::report(connection, &stored),
        Document::Source(source) => source::report(client, source, &stored),
        Document::Subscription(subscription) => subscription::report(subscription, &stored),
        Document::Plugin(_) | Document::Sandbox(_) | Document::RouteGroup(_) => {}
    }
    Ok(stored)
}

async fn publish(client: &ApiClient, plugin: &PluginDoc) -> Result<PluginInfo> {
    let published = repeated(|| client.has_server(), || client.publish(&plugin.expanded)).await;
    let immutable = |error: CliError| if error.has_status(409) { plugin::immutable(plugin) } else { error };
    let (status, info) = published.map_err(immutable)?;
    // The version has the same document already.
    let word = if status == StatusCode::OK { "Unchanged" } else { "Created" };
    output::status_line(&format!("{word} plugin {}@{}", info.name, info.version));
    Ok(info)
}
