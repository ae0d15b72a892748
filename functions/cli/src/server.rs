//! Which server the commands talk to.
//!
//! `ebb dev` and `ebb run` leave a file in their state folder; commands find it from the working directory upwards,
//! unless they are told another server.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use url::Url;

use crate::exit::CliError;

/// The folder of a state in a project.
pub(crate) const STATE: &str = ".ebb";
/// The file in it with the address of its server, which the server writes.
pub(crate) const FILE: &str = "server.json";

/// `--server`, or the environment.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServerArgs {
    /// The server's address; without it the one that `ebb dev` has written to `.ebb/server.json` here or above
    #[arg(long, env = "EBB_URL", value_name = "URL", value_parser = given, global = true)]
    server: Option<OptionalUrl>,
    /// Its bearer token
    #[arg(long, env = "EBB_TOKEN", value_name = "TOKEN", hide = true, hide_env_values = true, global = true)]
    token: Option<String>,
    /// The secret that lifecycle webhooks are signed with
    #[arg(long, env = "EBB_WEBHOOK_SECRET", value_name = "SECRET", hide = true, hide_env_values = true, global = true)]
    webhook_secret: Option<String>,
}

/// An address; an empty one is as good as none.
type OptionalUrl = Option<Url>;

fn given(text: &str) -> Result<OptionalUrl, url::ParseError> {
    if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
}

/// A server, and what it wants to see of its callers.
#[derive(Clone)]
pub(crate) struct ServerAccess {
    /// Its address.
    pub(crate) url: Url,
    /// The bearer token.
    pub(crate) token: Option<String>,
    /// The secret for lifecycle webhooks, `whsec_…`.
    pub(crate) webhook_secret: Option<String>,
    /// Where its address is from.
    pub(crate) origin: AddressOrigin,
}

/// Where a server's address is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressOrigin {
    /// `--server` or `EBB_URL`.
    Given,
    /// A file that a local server has left.
    File(PathBuf),
    /// This very program runs it.
    Own,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerFile {
    url: Url,
    token: String,
    webhook_secret: String,
}

impl ServerArgs {
    /// The server that is meant.
    pub(crate) fn find(&self) -> Result<ServerAccess, CliError> {
        let here = std::env::current_dir()
            .map_err(|error| CliError::broken("the working directory cannot be found").with_causes(&error))?;
        self.find_from(&here)
    }

    fn find_from(&self, here: &Path) -> Result<ServerAccess, CliError> {
        if let Some(url) = self.server.iter().flatten().next() {
            return Ok(ServerAccess {
                url: url.clone(),
                token: self.token.clone(),
                webhook_secret: self.webhook_secret.clone(),
                origin: AddressOrigin::Given,
            });
        }
        let file = here.ancestors().map(|folder| folder.join(STATE).join(FILE)).find(|file| file.is_file());
        let Some(file) = file else {
            return Err(CliError::broken("no server is known: there is no .ebb/server.json here or above")
                .with_hint("start `ebb dev`, or set EBB_URL"));
        };
        let unreadable = |error: &(dyn std::error::Error + 'static)| {
            CliError::broken(format!("{} cannot be read", file.display()))
                .with_causes(error)
                .with_hint("start `ebb dev` again, or set EBB_URL")
        };
        let text = fs::read(&file).map_err(|error| unreadable(&error))?;
        let left: ServerFile = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
        Ok(ServerAccess {
            url: left.url,
            token: Some(self.token.clone().unwrap_or(left.token)),
            webhook_secret: Some(self.webhook_secret.clone().unwrap_or(left.webhook_secret)),
            origin: AddressOrigin::File(file),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_server_is_found_from_below() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        let Err(trouble) = ServerArgs::default().find_from(&below) else { panic!("there is none") };
        assert!(trouble.text(crate::output::drawing()).contains("start `ebb dev`"));
        let file = root.path().join(STATE).join(FILE);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = r#"{"url": "http://127.0.0.1:7878", "token": "t", "webhookSecret": "whsec_s", "s3": "http://x"}"#;
        fs::write(&file, text).unwrap();
        let server = ServerArgs::default().find_from(&below).unwrap();
        assert_eq!((server.url.as_str(), server.token.as_deref()), ("http://127.0.0.1:7878/", Some("t")));
        assert_eq!(server.origin, AddressOrigin::File(file));
    }

    #[test]
    fn a_given_server_comes_first() {
        let args = ServerArgs { server: Some(given("https://ebb.example.org").unwrap()), ..Default::default() };
        assert_eq!(super::given("").unwrap(), None);
        let server = args.find_from(Path::new("/")).unwrap();
        assert_eq!(server.origin, AddressOrigin::Given);
        assert_eq!(server.token, None);
    }
}
