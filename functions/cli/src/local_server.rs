//! The control plane that commands run on this machine.

use std::path::PathBuf;

use ebb_local::{Stack, StackSettings};

use crate::server::{AddressOrigin, FILE, ServerAccess};
use crate::{ApiClient, CliError, Result};

/// A running control plane. Other commands find it through its state folder.
pub(crate) struct LocalServer {
    pub(crate) stack: Stack,
    /// The file with the address and the secrets of the server.
    pub(crate) file: PathBuf,
    pub(crate) client: ApiClient,
}

impl LocalServer {
    pub(crate) async fn start(settings: StackSettings) -> Result<Self> {
        let state = settings.state.clone();
        let stack = Stack::start(settings).await.map_err(|error| {
            CliError::broken(format!("cannot start the local server with its state in {}", state.display()))
                .with_causes(&error)
        })?;
        let url = stack.url().parse();
        let client = ApiClient::new(ServerAccess {
            url: url.map_err(|error| CliError::broken(format!("{} is not a URL", stack.url())).with_causes(&error))?,
            token: Some(stack.token().to_owned()),
            has_given_token: false,
            webhook_secret: Some(stack.webhook_secret().to_owned()),
            origin: AddressOrigin::Own,
        })?;
        Ok(Self { stack, file: state.join(FILE), client })
    }
}
