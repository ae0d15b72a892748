//! The server of this machine.

use std::path::{Path, PathBuf};

use ebb_flow::ports::RelayClient;
use ebb_local::{Stack, StackSettings};
use url::Url;

use crate::client::ApiClient;
use crate::exit::CliError;
use crate::server::{AddressOrigin, FILE, ServerAccess};

/// A running local server, found by other commands through its state folder.
pub(crate) struct LocalServer {
    stack: Stack,
    url: Url,
    file: PathBuf,
}

impl LocalServer {
    /// Starts one.
    pub(crate) async fn start(settings: StackSettings) -> Result<Self, CliError> {
        let state = settings.state.clone();
        let started = Stack::start(settings).await;
        let stack = started.map_err(|error| {
            CliError::broken(format!("the local server cannot be started with its state in {}", state.display()))
                .with_causes(&error)
        })?;
        let url: Url = stack
            .url()
            .parse()
            .map_err(|error| CliError::broken(format!("{} is no address", stack.url())).with_causes(&error))?;
        Ok(Self { stack, url, file: state.join(FILE) })
    }

    /// Its address.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The address of its bucket service.
    pub(crate) fn s3_url(&self) -> String {
        self.stack.s3_url()
    }

    /// The file with its address and token.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// A connection to it.
    pub(crate) fn client(&self) -> Result<ApiClient, CliError> {
        ApiClient::new(ServerAccess {
            url: self.url.clone(),
            token: Some(self.stack.token().to_owned()),
            webhook_secret: Some(self.stack.webhook_secret().to_owned()),
            origin: AddressOrigin::Own,
        })
    }

    /// The last line that an attempt of a pod unit has logged so far.
    pub(crate) fn last_line(&self, run: &str, unit: usize, attempt: u32) -> Option<String> {
        self.stack.last_line(run, unit, attempt)
    }

    /// What runs scripts.
    pub(crate) fn relay(&self) -> &dyn RelayClient {
        self.stack.env().relay.as_ref()
    }

    /// Where results are told.
    pub(crate) fn callback_url(&self) -> String {
        self.stack.env().settings.callback_url.clone()
    }

    /// Ends it. What runs in units goes on and is found again by the next one.
    pub(crate) async fn stop(self) {
        self.stack.stop().await;
    }
}
