//! Reads `kind: Connection`.

use ebb_kube::podspec::is_service_header;
use url::Url;

use crate::load::ebb::event_source::check_secret_name;
use crate::load::names::{MAX_NAME, MAX_PLUGIN_NAME, NameSyntax, is_name};
use crate::model::{At, AuthDoc, BasicAuthDoc, ConnectionDoc, OWN_UNITS, OauthDoc};
use crate::template::{is_loopback, is_service};
use crate::{DocumentReader, YamlNode};

/// Headers that Ebb or the client sets, besides those with a prefix of [`RESERVED_PREFIXES`].
const RESERVED: &str = "host content-length content-type transfer-encoding connection upgrade te \
    expect idempotency-key traceparent";
const RESERVED_PREFIXES: [&str; 3] = ["webhook-", "ebb-", "proxy-"];
const MAX_SLOTS: u32 = 1_000;

/// Reads a connection. Returns `None` after it has reported an error.
pub(super) fn connection(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<ConnectionDoc> {
    let connection: ConnectionDoc = reader.read(node)?;
    reader.check_name(&connection.name, "the connection's name", NameSyntax::Signadot, MAX_NAME);
    check_origin(reader, &connection.origin, connection.cluster.is_some());
    check_auth(reader, &connection.auth);
    check_cluster(reader, node, &connection);
    let ca = &connection.ca;
    if !ca.value.is_empty() && (!ca.value.contains("BEGIN CERTIFICATE") || ca.value.contains("PRIVATE KEY")) {
        let wrong = reader.wrong("certificate", ca.at, "`ca` is not PEM of certificates alone");
        reader.note(wrong.help("such as `-----BEGIN CERTIFICATE-----…`, without a private key"));
    }
    check_slots(reader, connection.max_concurrent.as_ref());
    if connection.plugins.is_empty() && connection.sources.is_empty() && connection.subscriptions.is_empty() {
        let at = node.get("plugins").map_or(node.at, |plugins| plugins.at);
        let wrong = reader.wrong("empty", at, "nothing may use the connection");
        reader.note(wrong.help("list plugins, such as `plugins: [neon-branch]`, `sources` or `subscriptions`"));
    }
    let users = [(&connection.sources, "the source's name"), (&connection.subscriptions, "the subscription's name")];
    for (names, what) in users {
        names.iter().for_each(|name| reader.check_name(name, what, NameSyntax::Signadot, MAX_NAME));
    }
    for plugin in connection.plugins.iter().filter(|plugin| plugin.value != OWN_UNITS) {
        match plugin.value.contains('@') {
            true => {
                let wrong = reader.wrong("bad-name", plugin.at, format!("`{}` has a version", plugin.value));
                reader.note(wrong.help("write the name alone; all versions of the plugin may use the connection"));
            }
            false => reader.check_name(plugin, "the plugin's name", NameSyntax::Signadot, MAX_PLUGIN_NAME),
        }
    }
    Some(ConnectionDoc { source: reader.source.clone(), expanded, ..connection })
}

pub(super) fn check_slots(reader: &DocumentReader<'_>, slots: Option<&At<u32>>) {
    if let Some(slots) = slots.filter(|slots| !(1..=MAX_SLOTS).contains(&slots.value)) {
        let message = format!("`maxConcurrent` is {}; it is from 1 to {MAX_SLOTS}", slots.value);
        reader.note(reader.wrong("limit", slots.at, message));
    }
}

/// Checks that a connection with `cluster` has its credential there and is for plugins, and that another one has a secret.
fn check_cluster(reader: &DocumentReader<'_>, node: &YamlNode, connection: &ConnectionDoc) {
    let auth = &connection.auth;
    let given = (auth.cluster_secret().is_some(), auth.secrets().next().is_some());
    let at = |key: &str| node.get(key).map_or(node.at, |node| node.at);
    if given != (connection.cluster.is_some(), connection.cluster.is_none()) {
        let (message, help) = match connection.cluster.is_some() {
            true => (
                "the credential of a connection with `cluster` is a Secret there, as `header` or `signed`",
                "such as `header: {name: X-Api-Key, secretRef: {namespace: apps, name: billing, key: token}}`; the API server \
                 of the cluster removes `Authorization`",
            ),
            false => ("the scheme needs a `secret`", "write `secret: NAME`; only with `cluster`, it has a `secretRef`"),
        };
        reader.note(reader.wrong("secret", at("auth"), message).help(help));
    }
    if connection.cluster.is_none() {
        return;
    }
    // They become parts of paths of the API server.
    let names = auth.cluster_secret().into_iter().flat_map(|secret| [&secret.namespace, &secret.name, &secret.key]);
    let is_mark = |c: char| "-_.".contains(c);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || is_mark(c);
    let is_name = |name: &str| name.chars().all(is_plain) && !name.chars().all(is_mark);
    for name in names.chain(&connection.cluster).filter(|name| !is_name(&name.value)) {
        let wrong = reader.wrong("bad-name", name.at, "the name is not valid");
        reader.note(wrong.help("letters, digits, `-`, `_` and `.`"));
    }
    if !connection.ca.value.is_empty() {
        let wrong = reader.wrong("cluster", connection.ca.at, "a connection with `cluster` uses no TLS");
        reader.note(wrong.help("leave out `ca`"));
    }
    if let AuthDoc::Header(header) = auth
        && !is_service_header(&header.name.value.to_ascii_lowercase())
    {
        let message = format!("header `{}` cannot pass the API server of a cluster", header.name.value);
        reader.note(reader.wrong("header", header.name.at, message).help("such as `X-Api-Key`"));
    }
    if !connection.sources.is_empty() || !connection.subscriptions.is_empty() {
        let wrong = reader.wrong("cluster", at("cluster"), "only webhook units can use a connection with `cluster`");
        reader.note(wrong.help("list `plugins` alone"));
    }
}

/// Checks an origin. The message does not repeat a user or password.
fn check_origin(reader: &DocumentReader<'_>, origin: &At<String>, is_in_cluster: bool) {
    let text = origin.value.as_str();
    let example = "such as `https://console.neon.tech`";
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => {
            let wrong = reader.wrong("origin", origin.at, format!("the origin is not a URL: {error}"));
            return reader.note(wrong.help(example));
        }
    };
    let own = url.origin().ascii_serialization();
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
    let (message, help) = if !url.username().is_empty() || url.password().is_some() || text.contains('@') {
        ("the origin has a user or password".to_owned(), "give credentials in `auth`".to_owned())
    } else if is_in_cluster && !is_service(&url) {
        (format!("`{text}` is not a Service of a cluster"), "such as `http://billing.shop.svc:8080`".to_owned())
    } else if url.scheme() == "http" && !is_loopback(&url) && !is_in_cluster {
        ("the origin is not encrypted".to_owned(), "write `https://`; `http://` is for this machine only".to_owned())
    } else if !["http", "https"].contains(&url.scheme()) || url.port() == Some(0) {
        (format!("`{text}` is not an origin of HTTP"), example.to_owned())
    } else if !url.host_str().unwrap_or_default().chars().all(is_host) {
        (format!("`{text}` is not an origin"), format!("the host is literal, {example}"))
    } else if own != text {
        (format!("`{text}` is not an origin"), format!("write `{own}`; the path stands in the webhook"))
    } else {
        return;
    };
    reader.note(reader.wrong("origin", origin.at, message).help(help));
}

fn check_auth(reader: &DocumentReader<'_>, auth: &AuthDoc) {
    auth.secrets().for_each(|secret| check_secret_name(reader, secret));
    let is_visible = |c: char| c.is_ascii_graphic() || c == ' ';
    match auth {
        AuthDoc::Basic(BasicAuthDoc { username, .. }) | AuthDoc::Digest(BasicAuthDoc { username, .. }) => {
            if username.value.contains(':') || username.value.chars().any(char::is_control) {
                let wrong = reader.wrong("bad-name", username.at, "the username is not valid");
                reader.note(wrong.help("no `:` and no control characters"));
            }
        }
        AuthDoc::Oauth(oauth) => check_token_url(reader, oauth),
        AuthDoc::Sigv4(sigv4) => {
            for part in [&sigv4.access_key_id, &sigv4.region, &sigv4.service] {
                if !part.value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) || part.value.is_empty()
                {
                    let wrong = reader.wrong("bad-name", part.at, format!("`{}` is not valid", part.value));
                    reader.note(wrong.help("letters, digits, `-`, `_` and `.`"));
                }
            }
        }
        AuthDoc::GithubApp(app) => {
            let is_id = |id: &str| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
            let wrong = |id: &&At<String>| !is_id(&id.value) || (id.value.is_empty() && *id == &app.app_id);
            for id in [&app.app_id, &app.installation].into_iter().filter(wrong) {
                let wrong = reader.wrong("bad-name", id.at, format!("`{}` is not an ID of GitHub", id.value));
                reader.note(wrong.help("such as `\"4711\"`: the settings of the App show it"));
            }
        }
        AuthDoc::Header(header) => {
            let name = header.name.value.to_ascii_lowercase();
            let reserved = RESERVED.split(' ').any(|reserved| reserved == name);
            if reserved || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                let message = format!("the header `{}` is set by Ebb", header.name.value);
                reader.note(reader.wrong("header", header.name.at, message).help("such as `X-Api-Key`"));
            } else if !is_name(&name, NameSyntax::Ours) {
                let message = format!("the header `{}` is not valid", header.name.value);
                let wrong = reader.wrong("bad-name", header.name.at, message);
                reader.note(wrong.help("letters, digits, `-` and `_`, such as `X-Api-Key`"));
            }
            if !header.prefix.value.chars().all(is_visible) {
                let wrong = reader.wrong("bad-name", header.prefix.at, "the prefix is not visible ASCII");
                reader.note(wrong.help("such as `Token `"));
            }
        }
        AuthDoc::Bearer(_) | AuthDoc::Signed(_) | AuthDoc::Mtls(_) => {}
    }
}

/// Checks the URL of a token endpoint. The message does not repeat it, because it may have a password.
fn check_token_url(reader: &DocumentReader<'_>, OauthDoc { token_url, .. }: &OauthDoc) {
    let is_valid = match Url::parse(&token_url.value) {
        Ok(url) => {
            let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
            is_safe && url.username().is_empty() && url.password().is_none() && url.fragment().is_none()
        }
        Err(_) => token_url.value.starts_with('/') && !token_url.value.starts_with("//"),
    };
    if !is_valid {
        let wrong = reader.wrong("url", token_url.at, "the token endpoint is neither a URL with `https://` nor a path");
        reader.note(wrong.help("such as `https://cloud.mongodb.com/api/oauth/token` or `/oauth/token`"));
    }
}
