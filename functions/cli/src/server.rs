//! Which server the commands talk to.
//!
//! `ebb dev` and `ebb run` leave a file in their state folder; commands find it from the working directory upwards,
//! unless they are told another server.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use url::Url;

use crate::exit::Trouble;

/// The folder of a state in a project.
pub(crate) const STATE: &str = ".ebb";
const FILE: &str = "server.json";

/// `--server`, or the environment.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServerArgs {
    /// The server's address; without it the one that `ebb dev` has written to `.ebb/server.json` here or above
    #[arg(long, env = "EBB_URL", value_name = "URL", global = true)]
    server: Option<Url>,
    /// Its bearer token
    #[arg(long, env = "EBB_TOKEN", value_name = "TOKEN", hide = true, hide_env_values = true, global = true)]
    token: Option<String>,
    /// The secret that lifecycle webhooks are signed with
    #[arg(
        long,
        env = "EBB_WEBHOOK_SECRET",
        value_name = "SECRET",
        hide = true,
        hide_env_values = true,
        global = true
    )]
    webhook_secret: Option<String>,
}

/// A server, and what it wants to see of its callers.
#[derive(Clone)]
pub(crate) struct Server {
    /// Its address.
    pub(crate) url: Url,
    /// The bearer token.
    pub(crate) token: Option<String>,
    /// The secret for lifecycle webhooks, `whsec_…`.
    pub(crate) webhook_secret: Option<String>,
    /// Where its address is from.
    pub(crate) origin: Origin,
}

/// Where a server's address is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `--server` or `EBB_URL`.
    Given,
    /// A file that a local server has left.
    File(PathBuf),
    /// This very program runs it.
    Own,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Left {
    url: Url,
    token: String,
    webhook_secret: String,
}

impl ServerArgs {
    /// The server that is meant.
    pub(crate) fn find(&self) -> Result<Server, Trouble> {
        let here = std::env::current_dir()
            .map_err(|error| Trouble::broken("the working directory cannot be found").because(&error))?;
        self.find_from(&here)
    }

    fn find_from(&self, here: &Path) -> Result<Server, Trouble> {
        if let Some(url) = &self.server {
            return Ok(Server {
                url: url.clone(),
                token: self.token.clone(),
                webhook_secret: self.webhook_secret.clone(),
                origin: Origin::Given,
            });
        }
        let file = here.ancestors().map(|folder| folder.join(STATE).join(FILE)).find(|file| file.is_file());
        let Some(file) = file else {
            return Err(Trouble::broken("no server is known: there is no .ebb/server.json here or above")
                .next("start `ebb dev`, or set EBB_URL"));
        };
        let unreadable = |error: &(dyn std::error::Error + 'static)| {
            Trouble::broken(format!("{} cannot be read", file.display()))
                .because(error)
                .next("start `ebb dev` again, or set EBB_URL")
        };
        let text = fs::read(&file).map_err(|error| unreadable(&error))?;
        let left: Left = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
        Ok(Server {
            url: left.url,
            token: Some(self.token.clone().unwrap_or(left.token)),
            webhook_secret: Some(self.webhook_secret.clone().unwrap_or(left.webhook_secret)),
            origin: Origin::File(file),
        })
    }
}

/// The file of a running local server; dropping it takes it away.
pub(crate) struct Announced {
    file: PathBuf,
    text: Vec<u8>,
}

impl Announced {
    /// Writes the file of a server into its state folder, readable for this user only.
    pub(crate) fn new(state: &Path, url: &Url, token: &str, webhook_secret: &str) -> Result<Self, Trouble> {
        let left =
            Left { url: url.clone(), token: token.to_owned(), webhook_secret: webhook_secret.to_owned() };
        let text = serde_json::to_vec_pretty(&left).expect("three texts are JSON");
        let file = state.join(FILE);
        let written = fs::create_dir_all(state).and_then(|()| {
            // Written beside it and renamed: a reader sees the old file or the new one. Temporary files have 0600.
            let mut fresh = tempfile::NamedTempFile::new_in(state)?;
            fresh.write_all(&text)?;
            fresh.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
            fresh.persist(&file)?;
            Ok(())
        });
        match written {
            Ok(()) => Ok(Self { file, text }),
            Err(error) => {
                Err(Trouble::broken(format!("{} cannot be written", file.display())).because(&error))
            }
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.file
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        // Another server may have taken the folder over since.
        if fs::read(&self.file).is_ok_and(|text| text == self.text) {
            let _ = fs::remove_file(&self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_server_is_found_from_below_and_forgotten_when_it_ends() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        let url: Url = "http://127.0.0.1:7878".parse().unwrap();
        let announced = Announced::new(&root.path().join(STATE), &url, "t", "whsec_s").unwrap();
        let mode = fs::metadata(announced.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let server = ServerArgs::default().find_from(&below).unwrap();
        assert_eq!((server.url, server.token.as_deref()), (url, Some("t")));
        assert_eq!(server.origin, Origin::File(announced.path().to_owned()));
        drop(announced);
        let Err(trouble) = ServerArgs::default().find_from(&below) else { panic!("it is gone") };
        assert!(trouble.text(crate::output::drawing()).contains("start `ebb dev`"));
    }

    #[test]
    fn a_given_server_comes_first() {
        let given = ServerArgs { server: Some("https://ebb.example.org".parse().unwrap()), ..Default::default() };
        let server = given.find_from(Path::new("/")).unwrap();
        assert_eq!(server.origin, Origin::Given);
        assert_eq!(server.token, None);
    }
}
