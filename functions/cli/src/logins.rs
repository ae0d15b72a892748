//! The logins of this person: one file with a token for each server, by its URL. A token goes to no other server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ebb_local::files;
use url::Url;

use crate::{CliError, Result};

/// Tokens with their ends.
type Logins = BTreeMap<String, (String, String)>;

fn unusable(error: &(dyn std::error::Error + 'static)) -> CliError {
    CliError::broken("cannot use the file of logins").with_causes(error)
}

fn read() -> Result<(PathBuf, Logins)> {
    // The specification of the variable ignores a relative path.
    let configured = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = configured.or_else(|| Some(std::env::home_dir()?.join(".config")));
    let file = folder.unwrap_or(PathBuf::from("/")).join("ebb/logins.json");
    let bytes = files::read_secret(&file).map_err(|error| unusable(&error))?;
    // The text of the parser could contain a part of a token.
    let logins = serde_json::from_slice(bytes.as_deref().unwrap_or(b"{}"));
    let logins = logins.map_err(|_| CliError::broken(format!("{} is damaged: remove it", file.display())))?;
    Ok((file, logins))
}

/// Returns the token of the login at a server and its end, if there is one.
pub(crate) fn find(server: &Url) -> Result<Option<(String, String)>> {
    Ok(read()?.1.remove(server.as_str()))
}

/// Stores or removes the login at a server. Returns the token of the former one.
pub(crate) fn change(server: &Url, login: Option<(String, String)>) -> Result<Option<String>> {
    let (file, mut logins) = read()?;
    let former = logins.remove(server.as_str());
    logins.extend(login.map(|login| (server.to_string(), login)));
    let folder = files::private_folder(file.parent().unwrap_or(Path::new("/")));
    folder.and_then(|()| files::write_json(&file, &logins)).map_err(|error| unusable(&error))?;
    Ok(former.map(|(token, _)| token))
}
