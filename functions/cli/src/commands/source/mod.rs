//! The subcommands of `ebb source`, and what is to do after a source was stored.

mod drift;
mod new;
mod send;
mod test;

use clap::Subcommand;
use ebb_documents::{Diagnostic, PluginDoc, SourceDoc, compile};
use ebb_flow::source::delivery::scheme;
use ebb_protocol::source_signature;
use serde_json::Value;

use self::send::local_secret;
use crate::{ApiClient, Result, documents, output};

#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// Print a source as a starting point, and the setup of its sender
    New(new::SourceNewArgs),
    /// Show the effect of an event on a source, without a server
    Test(test::SourceTestArgs),
    /// Show the targets whose things are missing at the sender
    Drift(drift::SourceDriftArgs),
    /// Delete targets whose things are missing at the sender, without the grace period
    Reconcile(drift::SourceReconcileArgs),
    /// Sign an event with the secret of `ebb dev` and send it, for tests
    Send(send::SourceSendArgs),
}

/// Warns of the plugins of a source that are not published. `new` would be published before it.
pub(super) async fn warn_of_plugins(client: &ApiClient, document: &SourceDoc, new: &[PluginDoc]) -> Result<()> {
    let (source, _) = compile::event_source(document)?;
    for plugin in compile::named_plugins(&source) {
        let version = plugin.version.as_ref().map_or("latest".to_owned(), ToString::to_string);
        let is_new = new.iter().any(|new| new.name.value == plugin.name);
        if !is_new && client.plugin(&plugin.name, &version).await?.is_none_or(|found| found.withdrawn.is_some()) {
            output::status_line(&format!(
                "warning: plugin {plugin} is not published; events that need it are rejected until it is"
            ));
        }
    }
    Ok(())
}

/// Prints the effect of a source that was stored.
pub(super) fn report(client: &ApiClient, source: &SourceDoc, stored: &Value) {
    let address = client.address(stored["path"].as_str().unwrap_or_default());
    output::status_line(&format!("Applied source {}. Send its events to {address}", source.name.value));
    if let (Some(problem), Some(fetch)) = (stored["problem"].as_str(), &source.fetch) {
        let message = format!("its events cannot be completed yet: {problem}");
        documents::warn([&Diagnostic::warning("connection", &source.source, fetch.connection.at, message)]);
    }
    let Ok((source, _)) = compile::event_source(source) else { return };
    let secret = &source.verify.secret().value;
    match (client.state_folder(), local_secret(client, secret)) {
        (_, Ok(Some(value))) => {
            if let Err(error) = source_signature::check_secret(&scheme(&source.verify), &value) {
                output::status_line(&format!("warning: secret {secret}: {error}"));
            }
        }
        (Some(state), Ok(None)) => output::status_line(&format!(
            "The secret {secret} is missing: add it to {}, with mode 600",
            state.join("secrets.json").display()
        )),
        (Some(_), Err(error)) => output::status_line(&format!("warning: {}", error.message())),
        (None, _) => output::status_line(&format!("The deployment needs the secret {secret}")),
    }
}
