//! The control plane that commands run on this machine.

use std::path::{Path, PathBuf};

use ebb_flow::ports::RelayClient;
use ebb_local::{Stack, StackSettings};
use url::Url;

use crate::client::ApiClient;
use crate::exit::CliError;
use crate::server::{AddressOrigin, FILE, ServerAccess};

/// A running control plane. Other commands find it through its state folder.
pub(crate) struct LocalServer {
    stack: Stack,
    url: Url,
    file: PathBuf,
}

impl LocalServer {
    /// Starts a control plane with `settings`.
    pub(crate) async fn start(settings: StackSettings) -> Result<Self, CliError> {
        let state = settings.state.clone();
        let started = Stack::start(settings).await;
        let stack = started.map_err(|error| {
            CliError::broken(format!("cannot start the local server with its state in {}", state.display()))
                .with_causes(&error)
        })?;
        let url: Url = stack
            .url()
            .parse()
            .map_err(|error| CliError::broken(format!("{} is not a URL", stack.url())).with_causes(&error))?;
        Ok(Self { stack, url, file: state.join(FILE) })
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn s3_url(&self) -> String {
        self.stack.s3_url()
    }

    /// Returns the file with the address and the secrets of the server.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn client(&self) -> Result<ApiClient, CliError> {
        ApiClient::new(ServerAccess {
            url: self.url.clone(),
            token: Some(self.stack.token().to_owned()),
            webhook_secret: Some(self.stack.webhook_secret().to_owned()),
            origin: AddressOrigin::Own,
        })
    }

    /// Returns the last line that an attempt of a pod unit has logged.
    pub(crate) fn last_line(&self, run: &str, unit: usize, attempt: u32) -> Option<String> {
        self.stack.last_line(run, unit, attempt)
    }

    pub(crate) fn relay(&self) -> &dyn RelayClient {
        self.stack.env().relay.as_ref()
    }

    pub(crate) fn callback_url(&self) -> String {
        self.stack.env().settings.callback_url.clone()
    }

    /// Stops the control plane. Units continue; the next control plane in the same folder adopts them.
    pub(crate) async fn stop(self) {
        self.stack.stop().await;
    }
}
