//! The server that commands use.
//!
//! `ebb dev` and `ebb run` write its address to their state folder. Commands search for that file from the working
//! directory upwards, unless `--server` or `EBB_URL` names a server. A given token has precedence over the login at the server,
//! and the login has precedence over the token of the state folder.

use std::path::PathBuf;
use std::time::Duration;

use ebb_local::files::StateFileError;
use ebb_local::stack::StackConnection;
use url::{Position, Url};

use crate::exit::{CliError, Result};
use crate::{logins, output, timing};

/// The default state folder.
pub(crate) const STATE: &str = ".ebb";
/// The file in the state folder with the address and the secrets of the server.
pub(crate) const FILE: &str = "server.json";

/// Options that select the server.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServerArgs {
    /// URL of the server; by default that of `.ebb/server.json` in this directory or above
    #[arg(long, env = "EBB_URL", value_name = "URL", global = true)]
    server: Option<String>,
    /// Bearer token of the server
    #[arg(long, env = "EBB_TOKEN", value_name = "TOKEN", hide = true, hide_env_values = true, global = true)]
    pub(crate) token: Option<String>,
    /// Secret that signs lifecycle webhooks
    #[arg(long, env = "EBB_WEBHOOK_SECRET", value_name = "SECRET", hide = true, hide_env_values = true, global = true)]
    webhook_secret: Option<String>,
}

/// Returns the URL of a server. Its errors do not show the text, which can have a password.
fn given(text: &str) -> Result<Url> {
    let is_base = |url: &Url| url[..Position::BeforePath] == url.origin().ascii_serialization();
    let url = text.parse::<Url>().ok().filter(|url| is_base(url) && url[Position::AfterPath..].is_empty());
    url.ok_or_else(|| {
        let error = CliError::broken("--server or EBB_URL is not the URL of a server: expected scheme, host and port");
        error.with_hint("use a URL such as https://ebb.example.com, and EBB_TOKEN or `ebb login`")
    })
}

/// The address of a server and the credentials for it.
#[derive(Clone)]
pub(crate) struct ServerAccess {
    pub(crate) url: Url,
    pub(crate) token: Option<String>,
    /// True for the token of `EBB_TOKEN`, which no login replaces.
    pub(crate) has_given_token: bool,
    /// The secret for lifecycle webhooks, `whsec_…`.
    pub(crate) webhook_secret: Option<String>,
    pub(crate) origin: AddressOrigin,
}

impl ServerAccess {
    /// Returns the name of the server in the file of logins. Two `ebb dev` can have the same URL one after the other, and not the
    /// same folder.
    pub(crate) fn login_name(&self) -> String {
        match &self.origin {
            AddressOrigin::File(file) => format!("{} {}", self.url, file.parent().unwrap_or(file).display()),
            AddressOrigin::Given | AddressOrigin::Own => self.url.to_string(),
        }
    }
}

/// The source of a server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressOrigin {
    /// `--server` or `EBB_URL`.
    Given,
    /// The file of a local server.
    File(PathBuf),
    /// This program runs the server.
    Own,
}

impl ServerArgs {
    /// Returns the server that the options, the environment or a state folder select.
    pub(crate) fn find(&self) -> Result<ServerAccess> {
        let mut found = self.without_login()?;
        if !found.has_given_token
            && let Some(login) = logins::find(&found.login_name(), found.token.is_some())?
        {
            let rest = login.rest();
            if rest < Duration::from_secs(3_600) {
                let ends =
                    if rest.is_zero() { "has ended".into() } else { format!("ends in {}", timing::length(rest)) };
                output::status_line(&format!("the login at {} {ends}: run `ebb login`, or `ebb logout`", found.url));
            }
            // A server on this machine has a token without a login.
            if !rest.is_zero() || found.token.is_none() {
                found.token = Some(login.token);
            }
        }
        Ok(found)
    }

    /// Returns the same server without the token of a login.
    pub(crate) fn without_login(&self) -> Result<ServerAccess> {
        let here = std::env::current_dir().map_err(|error| {
            let error = CliError::broken("cannot find the working directory").with_causes(&error);
            error.with_hint("another command may have deleted it; change to an existing folder")
        })?;
        let Self { server, token, webhook_secret } = self.clone();
        // A secret that was pasted or read from a file ends with a line feed.
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        let has_given_token = token.is_some();
        // An empty argument has the same effect as no argument.
        if let Some(text) = server.filter(|text| !text.is_empty()) {
            let url = given(&text)?;
            return Ok(ServerAccess { url, token, has_given_token, webhook_secret, origin: AddressOrigin::Given });
        }
        let state = here.ancestors().map(|folder| folder.join(STATE)).find(|state| state.join(FILE).is_file());
        let Some(state) = state else {
            return Err(CliError::broken("no server: found no .ebb/server.json in this directory or above")
                .with_hint("start `ebb dev`, or set EBB_URL"));
        };
        let file = state.join(FILE);
        let unusable = |error: &(dyn std::error::Error + 'static), hint: &str| {
            CliError::broken(format!("cannot use {}", file.display())).with_causes(error).with_hint(hint)
        };
        let again = "start `ebb dev` again, or set EBB_URL";
        let found = StackConnection::read(&state).map_err(|error| match error {
            // Another user may have written it to receive the token of this one.
            StateFileError::Unsafe { .. } => unusable(&error, "set EBB_URL, or start `ebb dev` in a folder of yours"),
            _ => unusable(&error, again),
        })?;
        let found = found.ok_or_else(|| unusable(&std::io::Error::from(std::io::ErrorKind::NotFound), again))?;
        let url = found.url.parse().map_err(|error: url::ParseError| unusable(&error, again))?;
        let (token, webhook_secret) = (token.or(Some(found.token)), webhook_secret.or(Some(found.webhook_secret)));
        Ok(ServerAccess { url, token, has_given_token, webhook_secret, origin: AddressOrigin::File(file) })
    }
}
