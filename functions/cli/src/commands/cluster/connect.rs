//! `ebb cluster connect` and `ebb cluster rotate`: register a cluster, and install its relay with helm.

use ebb_protocol::api::{CheckList, ClusterBootstrap, ClusterDetail, ClusterInfo, ClusterRegistration, PutCluster};
use ebb_protocol::id::is_dns_label;
use ebb_relay_client::reported_policy;
use serde_json::{Map, Value};
use url::Url;

use super::list::missing;
use super::release::InstallArgs;
use super::values::{self, OptionArgs, label};
use crate::{ApiClient, CliError, Exit, Result, is_local, output};

#[derive(Debug, clap::Args)]
pub(crate) struct ClusterConnectArgs {
    /// Name of the cluster in documents; documents that name none run in `default`
    #[arg(value_parser = label)]
    name: String,
    #[command(flatten)]
    options: OptionArgs,
    #[command(flatten)]
    install: InstallArgs,
    /// Show the changes of the policy in force, and make none
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ClusterRotateArgs {
    /// Name of the cluster
    #[arg(value_parser = label)]
    name: String,
    #[command(flatten)]
    install: InstallArgs,
}

impl ClusterConnectArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let Self { name, options, install, dry_run } = self;
        let former = registered(client, &name).await?;
        let connection = Connection { client, name: &name, options: &options, install: &install, former };
        let values = connection.values().await?;
        let (heading, changes) = connection.changes(&values)?;
        if dry_run {
            output::status_line(&heading);
            return output::print(&changes.join("\n"));
        }
        output::status_line(&[vec![heading], changes].concat().join("\n"));
        connection.connect(values, false).await
    }
}

impl ClusterRotateArgs {
    /// Requests another token, with which the relay makes and registers another secret.
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let Self { name, install } = self;
        let former = Some(registered(client, &name).await?.ok_or_else(|| missing(&name))?);
        let options = OptionArgs::default();
        let connection = Connection { client, name: &name, options: &options, install: &install, former };
        connection.connect(connection.values().await?, true).await
    }
}

/// A cluster that is connected, for the first time or again.
struct Connection<'a> {
    client: &'a ApiClient,
    name: &'a str,
    options: &'a OptionArgs,
    install: &'a InstallArgs,
    former: Option<(ClusterInfo, ClusterRegistration)>,
}

impl Connection<'_> {
    fn registration(&self) -> Option<&ClusterRegistration> {
        self.former.as_ref().map(|(_, registration)| registration)
    }

    fn relay_since(&self) -> Option<&str> {
        self.registration()?.registered.as_deref()
    }

    fn namespace(&self) -> &str {
        let stored = self.registration().and_then(relay_namespace);
        self.options.relay_namespace.as_deref().or(stored).unwrap_or("ebb-relay")
    }

    /// Returns the values of the last connection. They have no secret.
    fn stored_values(&self) -> Value {
        self.registration().and_then(|registration| registration.options.get("values")).cloned().unwrap_or_default()
    }

    /// Returns the values of the release, or of the last connection, with the changes of the command line.
    ///
    /// # Errors
    /// Returns an error if the relay is installed and its values cannot be read: it would lose what helm has set.
    async fn values(&self) -> Result<Value> {
        if let (Some(_), Some(old)) = (self.relay_since(), self.registration().and_then(relay_namespace))
            && old != self.namespace()
        {
            let new = self.namespace();
            return Err(CliError::broken(format!(
                "the relay cannot move from the namespace {old} to {new}: its records are in {old}"
            ))
            .with_hint("delete the sandboxes in the cluster, disconnect it, and connect it again"));
        }
        let found = match self.install.values(self.namespace()).await {
            Err(error) if self.relay_since().is_none() && !self.install.apply => {
                output::status_line(&format!("note: the values of a release are not read: {}", error.message()));
                None
            }
            found => found?,
        };
        let mut values = found.unwrap_or_else(|| self.stored_values());
        self.options.change(&mut values, self.namespace())?;
        Ok(values)
    }

    /// Returns the differences between the policy in force and that of values, with a heading.
    fn changes(&self, values: &Value) -> Result<(String, Vec<String>)> {
        let in_force = self.former.as_ref().and_then(|(info, _)| info.policy.as_ref()).and_then(reported_policy);
        let changes = values::differences(in_force.as_ref(), &values::policy(values)?);
        let changes: Vec<String> = changes.iter().map(|line| output::printable(line)).collect();
        let name = self.name;
        let heading = match (self.registration().is_some(), in_force.is_some(), changes.is_empty()) {
            (false, ..) => format!("New cluster {name}, with this policy:"),
            (true, false, _) => format!("Cluster {name}, whose policy in force is not known, with this policy:"),
            (true, true, true) => format!("Cluster {name}: the policy in force does not change"),
            // Helm deletes the rights with the entry.
            (true, true, false) if changes[0].starts_with('-') => format!(
                "Cluster {name}, changes of the policy in force (first delete the sandboxes that need what is removed, because \
                 the relay loses its rights to it):"
            ),
            (true, true, false) => format!("Cluster {name}, changes of the policy in force:"),
        };
        Ok((heading, changes))
    }

    /// Registers the cluster, and installs its relay or prints the commands for it.
    async fn connect(&self, mut values: Value, rotates: bool) -> Result<Exit> {
        let Self { client, name, options, install, .. } = *self;
        let (registration, namespace) = (self.registration(), self.namespace());
        let push_url = options.push_url(registration.and_then(|known| known.url.as_deref()));
        let entrypoint_image = options.entrypoint_image.as_ref().or(registration.map(|known| &known.entrypoint_image));
        let entrypoint_image = entrypoint_image.ok_or_else(|| values::missing_image("--entrypoint-image"))?.clone();
        let (api_url, callback_url) = self.urls(&values).await?;
        values::set_control_plane(&mut values, name, &api_url, callback_url.as_deref(), push_url.is_none())?;
        let folder = install.folder(name)?;
        let file = folder.write_values(&values)?;
        if install.apply {
            if let Some((info, _)) = self.former.as_ref().filter(|_| self.relay_since().is_some()) {
                install.check_uid(info).await?;
            }
            install.check(namespace, &folder).await?;
        }
        let stored = [("namespace".to_owned(), namespace.into()), ("values".to_owned(), values.clone())];
        let request = PutCluster {
            url: push_url,
            entrypoint_image,
            signadot_outputs: options.signadot_outputs(registration.and_then(|known| known.signadot_outputs)),
            options: Map::from_iter(stored),
            // A token that no relay has used cannot be read again.
            rebootstrap: rotates || (registration.is_some() && self.relay_since().is_none()),
            expected: registration.and_then(|known| known.version),
        };
        let ClusterBootstrap { bootstrap_token: token, .. } =
            client.put(&["clusters", name], &output::json(&request), &[]).await?;
        values::set_token(&mut values, token.as_deref())?;
        folder.write_values(&values)?;
        if install.apply {
            install.install(namespace, &folder).await?;
            // Another token replaces the secret of the relay.
            let replaced = self.relay_since().filter(|_| token.is_some());
            install.wait_until_up(client, name, namespace, replaced).await?;
            return output::message(&format!(
                "Sandboxes with `cluster: {name}` run there. `ebb cluster get {name}` shows the policy in force."
            ));
        }
        let with = if token.is_some() { " with a token that registers one relay within an hour" } else { "" };
        output::status_line(&format!(
            "Wrote {}{with}, and the chart. Run these commands; the first one fails if the namespace exists. `ebb cluster get \
             {name}` shows when the relay is up.",
            file.display()
        ));
        output::print_data(&install.commands(namespace, &folder))
    }

    /// Returns the URL of the API, and that for callbacks unless their hosts are known, as pods reach them.
    async fn urls(&self, values: &Value) -> Result<(String, Option<String>)> {
        // The release can be that of another control plane, unless its relay has registered here.
        let known = if self.relay_since().is_some() { values.clone() } else { self.stored_values() };
        let places = ["/pull/url", "/bootstrap/url"];
        let known_api = places.iter().find_map(|at| known.pointer(at)?.as_str().filter(|url| !url.is_empty()));
        let (api, callback) = (self.options.pull_url.as_deref().or(known_api), self.options.callback_url.as_deref());
        let of_server: CheckList = self.client.fetch(&["checks"]).await?;
        // A proxy of the operator passes callbacks on to a server that only its machine reaches.
        if let Some(api) = api
            && callback.is_none()
            && known["callbackHosts"].is_array()
            && Url::parse(&of_server.callback_url).is_ok_and(|url| is_local(&url))
        {
            return Ok((api.to_owned(), None));
        }
        let (api, callback) = addresses(&self.client.server.url, api, callback, &of_server.callback_url)?;
        Ok((api, Some(callback)))
    }
}

/// Returns a registered cluster, or `None` if the cluster does not exist.
///
/// # Errors
/// Returns an error if the cluster is one of the configuration.
pub(super) async fn registered(client: &ApiClient, name: &str) -> Result<Option<(ClusterInfo, ClusterRegistration)>> {
    let Some(found) = client.find::<ClusterDetail>(&["clusters", name]).await? else { return Ok(None) };
    if found.registration.is_none() && found.info.uid.is_none() {
        return Err(CliError::failed(format!("this token may not read the registration of the cluster {name}"))
            .with_hint(
                "use a token with the scope `operate`: the operator of Ebb creates one with `ebb token create`",
            ));
    }
    let configured = || {
        CliError::failed(format!(
            "the cluster {name} is an entry of EBB_CLUSTERS, or of the file of `ebb dev --clusters`"
        ))
        .with_hint("change the entry there, and the values of the chart with helm")
        .with_hint("to register the cluster instead, remove the entry first")
    };
    let ClusterDetail { info, registration } = found;
    registration.map(|registration| Some((info, registration))).ok_or_else(configured)
}

/// Returns the namespace of the relay of a registered cluster. Returns `None` if another program has installed it.
pub(super) fn relay_namespace(registration: &ClusterRegistration) -> Option<&str> {
    registration.options.get("namespace")?.as_str().filter(|name| is_dns_label(name))
}

/// Returns the URL of the API and the URL for callbacks, as pods reach them. `used` is the URL of this command.
fn addresses(used: &Url, api: Option<&str>, callback: Option<&str>, of_server: &str) -> Result<(String, String)> {
    let callback_url = callback.unwrap_or(of_server);
    let api_url = match api {
        Some(url) => url,
        None if !is_local(used) => used.as_str().trim_end_matches('/'),
        None => callback_url.trim_end_matches("/v1/callbacks"),
    };
    for (_, url) in [(callback, callback_url), (api, api_url)].into_iter().filter(|(given, _)| given.is_none()) {
        if Url::parse(url).is_ok_and(|url| is_local(&url)) {
            return Err(CliError::failed(format!(
                "the cluster cannot reach the control plane at {url}: this is an address of one machine"
            ))
            .with_hint(
                "start `ebb dev` with --listen ADDRESS, an address that pods can reach, and run the command again",
            )
            .with_hint("or give --callback-url and --pull-url, if a proxy passes requests on"));
        }
    }
    Ok((api_url.to_owned(), callback_url.to_owned()))
}

#[cfg(test)]
mod tests {
    use ebb_documents::diagnostic::DiagnosticStyle;

    use super::*;
    use crate::progress::fixtures::rows;

    #[test]
    fn urls_of_one_machine_are_refused() {
        type Row = (String, Option<String>, Option<String>, String, Option<(String, String)>);
        for (used, api, callback, of_server, expected) in rows::<Row>("urls_of_one_machine_are_refused") {
            let found = addresses(&used.parse().unwrap(), api.as_deref(), callback.as_deref(), &of_server);
            let found = found.map_err(|error| error.text(DiagnosticStyle::Plain));
            assert_eq!(found.as_ref().ok(), expected.as_ref(), "{used}");
            let is_refusal = |error: &String| error.contains("cannot reach") && error.contains("--listen ADDRESS");
            assert!(found.as_ref().err().is_none_or(is_refusal), "{found:?}");
        }
    }
}
