//! `ebb source send`: signs an event as its sender does, and posts it to the server.

use std::path::{Path, PathBuf};

use ebb_documents::{EventSource, compile, load};
use ebb_flow::source::delivery::scheme;
use ebb_local::SecretFile;
use ebb_protocol::{MessageId, SecretReader as _, SecretText, SourceDetail, SourceResponse, source_signature};

use super::test::{checked, headers};
use crate::{ApiClient, CliError, DocumentSource, Exit, OutputArgs, Result, SetArgs, fresh_uid, labels, output};

#[derive(Debug, clap::Args)]
pub(crate) struct SourceSendArgs {
    /// Name of the published source, or the file that it was published from
    #[arg(value_name = "NAME|FILE")]
    source: String,
    /// File with the body of the event; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    payload: PathBuf,
    /// Header of the event, also as `NAME: VALUE`; repeatable
    #[arg(long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// ID of the delivery, for senders that give one; by default a new one
    #[arg(long, value_name = "ID", value_parser = delivery)]
    delivery: Option<MessageId>,
    #[command(flatten)]
    sets: SetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn delivery(text: &str) -> Result<MessageId, String> {
    let expected = "expected 1 to 128 visible ASCII characters without a full stop";
    MessageId::parse(text).map_err(|_| expected.to_owned())
}

impl SourceSendArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let source = self.source(client).await?;
        let name = &source.verify.secret().value;
        let secret = local_secret(client, name)?.ok_or_else(|| {
            CliError::failed(format!("the secret {name} is not on this machine, so the event cannot be signed"))
                .with_hint(format!("add {name} to `.ebb/secrets.json` of `ebb dev`, or send the event from its sender"))
        })?;
        let body = DocumentSource::read(&self.payload)?.text;
        let id = self.delivery.clone().unwrap_or_else(|| MessageId::parse(&fresh_uid()).expect("hexadecimal digits"));
        let mut all = headers(&self.headers)?;
        let scheme = scheme(&source.verify).sending(&all);
        let signed = source_signature::sign(&scheme, &secret, &id, body.as_bytes(), crate::client::timestamp())
            .map_err(|error| CliError::failed(error.to_string()))?;
        all.entry("content-type".to_owned()).or_insert_with(|| "application/json".to_owned());
        for (name, value) in signed.headers {
            all.entry(name).or_insert(value);
        }
        let url_secret = signed.url_secret.as_ref().map(|secret| secret.as_str());
        let response = client.source_event(&source.name, all, url_secret, body).await?;
        self.output.write(&response, text)?;
        Ok(if response.result.is_failure() { Exit::Failed } else { Exit::Done })
    }

    /// Returns the source of a file, or the published one.
    async fn source(&self, client: &ApiClient) -> Result<EventSource> {
        let path = Path::new(&self.source);
        if path.is_file() {
            return checked(&DocumentSource::read(path)?, &self.sets.vars()?);
        }
        let unknown = || CliError::failed(format!("no source {} exists", self.source)).with_hint("ebb get sources");
        let detail: SourceDetail = client.find(&["sources", &self.source]).await?.ok_or_else(unknown)?;
        let doc = load::event_source(&self.source, &detail.document, &load::NoFiles, &load::DocumentVars::none())?;
        Ok(compile::event_source(&doc)?.0)
    }
}

/// Returns a secret of the server, if the state of the server is on this machine.
///
/// # Errors
/// Returns an error if the file of the secrets is invalid.
pub(super) fn local_secret(client: &ApiClient, name: &str) -> Result<Option<SecretText>> {
    let Some(state) = client.state_folder() else { return Ok(None) };
    SecretFile::of(state).secret(name).map_err(CliError::failed)
}

fn text(response: &SourceResponse) -> String {
    let target = response.target.iter().map(|target| format!(" {target}")).collect::<String>();
    format!("{}{target}: {}\n", labels::name(&response.result), output::joined_lines(&response.detail))
}
