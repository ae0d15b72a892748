//! The values of the chart of a relay: the changes of a command line, and the policy that the chart makes of them.

use std::collections::BTreeSet;

use clap::ValueEnum;
use ebb_documents::compile::{AllowedService, ClusterPolicy, PodSecurityLevel, is_cluster_wide};
use ebb_protocol::{SignadotOutputs, is_dns_label};
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;

use crate::exit::{CliError, Result};

/// The namespace that the profile `signadot` adds.
const SIGNADOT: &str = "signadot";
/// The namespace of units in the chart's values.
const UNITS: &str = "ebb-units";
/// Kinds in namespaces of the group that has no name.
const CORE_KINDS: &str = "ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate \
    ReplicationController ResourceQuota Secret Service ServiceAccount";
/// The word that removes an option of the registration.
const NONE: &str = "none";

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub(super) enum PolicyProfile {
    /// Pods run without root.
    Restricted,
    /// Pods may run as root in their container.
    Baseline,
    /// `restricted`, and a namespace in which Signadot's plugins run unchanged.
    Signadot,
}

/// The options of `connect`. Lists are completed, and other values are replaced.
#[derive(Debug, Default, clap::Args)]
pub(super) struct OptionArgs {
    /// Settings of usual clusters: `restricted`, `baseline`, or `signadot` for Signadot's plugins
    #[arg(long, value_enum, hide_possible_values = true)]
    profile: Option<PolicyProfile>,
    /// Namespace for units, with its level of Pod Security: `restricted`, `baseline` or `privileged`; repeatable
    #[arg(long = "namespace", value_name = "NAMESPACE[:LEVEL]", value_parser = namespace_option)]
    namespaces: Vec<(String, Option<PodSecurityLevel>)>,
    /// Service account that pods may use; repeatable
    #[arg(long = "service-account", value_name = "NAMESPACE/NAME", value_parser = in_namespace)]
    service_accounts: Vec<(String, String)>,
    /// Secret with which pods of scripts pull their images; repeatable
    #[arg(long = "pull-secret", value_name = "NAMESPACE/NAME", value_parser = in_namespace)]
    pull_secrets: Vec<(String, String)>,
    /// Kind of objects that documents may have, with the rights to them; repeatable
    #[arg(long = "kind", value_name = "KIND[.GROUP][=PLURAL]", value_parser = kind)]
    kinds: Vec<(String, String)>,
    /// Kind of objects outside of namespaces that documents may have, with the rights to all of them; repeatable
    #[arg(long = "cluster-kind", value_name = "KIND[.GROUP][=PLURAL]", value_parser = cluster_kind)]
    cluster_kinds: Vec<(String, String)>,
    /// Namespace of workloads in which `bind` may have Secrets and ConfigMaps; repeatable
    #[arg(long = "bind-namespace", value_name = "NAMESPACE", value_parser = label)]
    bind_namespaces: Vec<String>,
    /// Service that units may call; repeatable
    #[arg(long = "service", value_name = "NAME=NAMESPACE/SERVICE:PORT[/PATH]", value_parser = service)]
    services: Vec<(String, AllowedService)>,
    /// Image of the relay, REPOSITORY:TAG or REPOSITORY@DIGEST
    #[arg(long)]
    image: Option<String>,
    /// Namespace of units that name none; by default `ebb-units`
    #[arg(long, value_name = "NAMESPACE", value_parser = label)]
    unit_namespace: Option<String>,
    /// Image that contains the entrypoint as /ebb-entrypoint
    #[arg(long, value_name = "IMAGE")]
    pub(super) entrypoint_image: Option<String>,
    /// `open`: show the outputs of Signadot plugins in clear; `none`: they stay in a Secret of the cluster, the default
    #[arg(long, value_name = "open|none", value_parser = [NONE, "open"], hide_possible_values = true)]
    signadot_outputs: Option<String>,
    /// Namespace of the relay and its records, which holds nothing else; by default `ebb-relay`
    #[arg(long, value_name = "NAMESPACE", value_parser = label)]
    pub(super) relay_namespace: Option<String>,
    /// URL at which the control plane reaches the relay; `none`, the default: the relay polls
    #[arg(long, value_name = "URL|none", value_parser = url_or_none)]
    push_url: Option<String>,
    /// URL at which the relay reaches the API of the control plane; by default that of this command
    #[arg(long, value_name = "URL", value_parser = plain_url)]
    pub(super) pull_url: Option<String>,
    /// URL at which the control plane accepts callbacks; by default as the server says
    #[arg(long, value_name = "URL", value_parser = plain_url)]
    pub(super) callback_url: Option<String>,
}

impl OptionArgs {
    /// Changes the values of a release. `values` are null for a new release, whose namespaces the chart creates.
    ///
    /// # Errors
    /// Returns an error without an image, for an account or Secret in a namespace that the policy does not list, and for
    /// values of another form than those of the chart.
    pub(super) fn change(&self, values: &mut Value, relay_namespace: &str) -> Result<()> {
        let is_new = values.is_null();
        complete(values, json!({"profile": self.profile, "image": self.image, "unitNamespace": self.unit_namespace}))?;
        for (name, level) in &self.namespaces {
            complete_namespace(values, name, &json!({"level": level}))?;
        }
        for (option, key, items) in [
            ("--service-account", "serviceAccounts", &self.service_accounts),
            ("--pull-secret", "imagePullSecrets", &self.pull_secrets),
        ] {
            for (name, item) in items {
                if !policy(values)?.namespaces.contains_key(name) {
                    return Err(CliError::broken(format!("{option}: the policy does not list the namespace {name}"))
                        .with_hint(format!("add --namespace {name}")));
                }
                complete_namespace(values, name, &json!({key: [item]}))?;
            }
        }
        for (key, kinds) in [("grantedKinds", &self.kinds), ("grantedClusterKinds", &self.cluster_kinds)] {
            for (kind, plural) in kinds {
                complete(values, json!({key: {kind: plural}}))?;
            }
        }
        for name in &self.bind_namespaces {
            complete(values, json!({"policy": {"bindNamespaces": [name]}}))?;
        }
        for (key, AllowedService { namespace, name, port, path }) in &self.services {
            // An empty path replaces a former one.
            let service = json!({"namespace": namespace, "name": name, "port": port, "path": path});
            complete(values, json!({"policy": {"services": {key: service}}}))?;
        }
        let units = self.unit_namespace.as_deref().or(is_new.then_some(UNITS));
        let created = is_new.then_some(relay_namespace).into_iter().chain(units);
        for name in created.chain(self.namespaces.iter().map(|(name, _)| name.as_str())) {
            complete(values, json!({"createNamespaces": [name]}))?;
        }
        if values["image"].as_str().is_none_or(str::is_empty) { Err(missing_image("--image")) } else { Ok(()) }
    }

    /// Returns the URL of the relay with push transport, or `None` for pull.
    pub(super) fn push_url(&self, stored: Option<&str>) -> Option<String> {
        self.push_url.as_deref().or(stored).filter(|url| *url != NONE).map(str::to_owned)
    }

    pub(super) fn signadot_outputs(&self, stored: Option<SignadotOutputs>) -> Option<SignadotOutputs> {
        match self.signadot_outputs.as_deref() {
            Some(NONE) => None,
            Some(_) => Some(SignadotOutputs::Open),
            None => stored,
        }
    }
}

/// Sets where a relay finds its control plane, under which name, and that it registers itself.
///
/// # Errors
/// Returns an error if the callback URL is invalid.
pub(super) fn set_control_plane(
    values: &mut Value,
    cluster: &str,
    api_url: &str,
    callback_url: Option<&str>,
    polls: bool,
) -> Result<()> {
    if let Some(url) = callback_url {
        let invalid = || CliError::broken("invalid URL for callbacks: expected https://HOST or http://HOST");
        let url = Url::parse(url).ok();
        let parts = url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default()?)));
        let (host, port) = parts.ok_or_else(invalid)?;
        let is_known = values["callbackHosts"].as_array().is_some_and(|hosts| hosts.iter().any(|known| known == host));
        if port != 443 || !is_known {
            complete(values, json!({"callbackHosts": [format!("{host}:{port}")]}))?;
        }
    }
    let (pull, bootstrap) = if polls { (api_url, "") } else { ("", api_url) };
    complete(values, json!({"pull": {"url": pull, "cluster": cluster}, "bootstrap": {"url": bootstrap}}))?;
    values["signing"] = json!({});
    set_token(values, None)
}

/// Sets or removes the token with which a relay registers itself.
pub(super) fn set_token(values: &mut Value, token: Option<&str>) -> Result<()> {
    let existing = token.map(|_| "");
    complete(values, json!({"bootstrap": {"token": token.unwrap_or_default(), "existingSecret": existing}}))
}

/// Returns the policy that the chart makes of values, as its templates do.
///
/// # Errors
/// Returns an error if the values have another form than those of the chart.
pub(super) fn policy(values: &Value) -> Result<ClusterPolicy> {
    let mut given = values["policy"].as_object().cloned().unwrap_or_default();
    given.entry("kinds").or_insert_with(|| json!(["Job.batch"]));
    if given.get("podSecurityLevel").is_none_or(|level| level == "") {
        let level = if values["profile"] == "baseline" { "baseline" } else { "restricted" };
        given.insert("podSecurityLevel".to_owned(), level.into());
    }
    let mut policy: ClusterPolicy = serde_json::from_value(Value::Object(given))
        .map_err(|error| CliError::failed("the value `policy` is not that of the chart").with_causes(&error))?;
    let granted = |key: &str| values[key].as_object().into_iter().flatten().map(|(kind, _)| kind.clone());
    policy.kinds.extend(granted("grantedKinds"));
    policy.cluster_kinds.extend(granted("grantedClusterKinds"));
    policy.namespaces.entry(values["unitNamespace"].as_str().unwrap_or(UNITS).to_owned()).or_default();
    if values["profile"] == SIGNADOT {
        policy.kinds.extend(["ConfigMap", "Secret"].map(str::to_owned));
        policy.namespaces.entry(SIGNADOT.to_owned()).or_default().level.get_or_insert(PodSecurityLevel::Baseline);
    }
    Ok(policy)
}

/// Returns the differences of a policy to the one in force, if that is known: lines that begin with `-` or `+`.
pub(super) fn differences(in_force: Option<&ClusterPolicy>, policy: &ClusterPolicy) -> Vec<String> {
    let (former, new) = (in_force.map(lines).unwrap_or_default(), lines(policy));
    let removed = former.difference(&new).map(|line| format!("- {line}"));
    removed.chain(new.difference(&former).map(|line| format!("+ {line}"))).collect()
}

/// Returns one line per setting that relays report. The targets of Services stay in the cluster.
fn lines(policy: &ClusterPolicy) -> BTreeSet<String> {
    let mut lines: BTreeSet<String> = policy.services.keys().map(|key| format!("services: {key}")).collect();
    for (key, names) in [
        ("kinds", &policy.kinds),
        ("clusterKinds", &policy.cluster_kinds),
        ("bindNamespaces", &policy.bind_namespaces),
        ("runtimeClasses", &policy.runtime_classes),
        ("priorityClasses", &policy.priority_classes),
    ] {
        lines.extend(names.iter().map(|name| format!("{key}: {name}")));
    }
    for (namespace, entry) in &policy.namespaces {
        lines.insert(format!("namespaces.{namespace}: {}", policy.level(namespace).name()));
        lines.extend(entry.service_accounts.iter().map(|account| format!("serviceAccounts: {namespace}/{account}")));
        lines.extend(entry.image_pull_secrets.iter().map(|secret| format!("imagePullSecrets: {namespace}/{secret}")));
    }
    lines
}

/// Returns the error for an image that is neither given nor known.
pub(super) fn missing_image(option: &str) -> CliError {
    CliError::broken(format!("{option} is missing, and no image is stored"))
        .with_hint("the first connection, and one after a disconnection, needs --image and --entrypoint-image")
        .with_hint("`cargo xtask build images --repository REGISTRY` builds both")
}

/// Completes the settings of a namespace in the policy. Their short form is a list of service accounts.
fn complete_namespace(values: &mut Value, name: &str, settings: &Value) -> Result<()> {
    if let Some(accounts @ Value::Array(_)) = values.pointer_mut(&format!("/policy/namespaces/{name}")) {
        *accounts = json!({"serviceAccounts": accounts.take()});
    }
    complete(values, json!({"policy": {"namespaces": {name: settings}}}))
}

/// Completes mappings with the keys of `changes`, and lists with the names that they lack. Replaces other values. A key
/// without a value in `changes` changes nothing.
///
/// # Errors
/// Returns an error if a mapping, a list or a text stands in the place of another form.
fn complete(values: &mut Value, changes: Value) -> Result<()> {
    let is_plain = |value: &Value| !value.is_object() && !value.is_array();
    if values.is_null() {
        *values = match &changes {
            Value::Object(_) => json!({}),
            Value::Array(_) => json!([]),
            _ => Value::Null,
        };
    }
    match (values, changes) {
        (Value::Object(known), Value::Object(changes)) => {
            let mut changes = changes.into_iter().filter(|(_, change)| !change.is_null());
            changes.try_for_each(|(key, change)| complete(known.entry(key).or_insert(Value::Null), change))
        }
        (Value::Array(known), Value::Array(names)) => {
            for name in names {
                // An entry of `createNamespaces` can have a level.
                if !known.iter().any(|entry| *entry == name || entry["name"] == name) {
                    known.push(name);
                }
            }
            Ok(())
        }
        (value, change) if is_plain(value) && is_plain(&change) => {
            *value = change;
            Ok(())
        }
        (_, change) => {
            Err(CliError::failed(format!("the values are not those of the chart: found no place for {change}")))
        }
    }
}

pub(super) fn label(text: &str) -> Result<String, String> {
    if !is_dns_label(text) {
        return Err("expected a DNS label: 1 to 63 of a-z, 0-9 and -, no - at the ends".to_owned());
    }
    Ok(text.to_owned())
}

fn namespace_option(text: &str) -> Result<(String, Option<PodSecurityLevel>), String> {
    let Some((name, level)) = text.split_once(':') else { return Ok((label(text)?, None)) };
    let level = serde_json::from_value(level.into())
        .map_err(|_| format!("unknown level `{level}`; expected restricted, baseline or privileged"))?;
    Ok((label(name)?, Some(level)))
}

fn in_namespace(text: &str) -> Result<(String, String), String> {
    let (namespace, name) = text.split_once('/').ok_or("expected NAMESPACE/NAME")?;
    Ok((namespace.to_owned(), name.to_owned()))
}

/// Parses `KIND[.GROUP][=PLURAL]` of a kind in namespaces.
fn kind(text: &str) -> Result<(String, String), String> {
    let (name, plural) = with_plural(text);
    if is_cluster_wide(&name) {
        return Err("it is outside of namespaces: give it with --cluster-kind".to_owned());
    }
    if !name.contains('.') && !CORE_KINDS.split(' ').any(|core| core == name) {
        return Err("expected KIND.GROUP of `kubectl api-resources`, or a kind of the core group: ConfigMap".to_owned());
    }
    Ok((name, plural))
}

fn cluster_kind(text: &str) -> Result<(String, String), String> {
    let (name, plural) = with_plural(text);
    match name.contains('.') || is_cluster_wide(&name) {
        true => Ok((name, plural)),
        false => Err("expected KIND.GROUP, or a kind of the core group outside of namespaces: Namespace".to_owned()),
    }
}

/// Returns a kind and the name of its resource, by default the usual plural in English.
fn with_plural(text: &str) -> (String, String) {
    if let Some((name, plural)) = text.split_once('=') {
        return (name.to_owned(), plural.to_owned());
    }
    let word = text.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let plural = match word.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if word.ends_with(['s', 'x', 'z']) || word.ends_with("ch") || word.ends_with("sh") => format!("{word}es"),
        _ => format!("{word}s"),
    };
    (text.to_owned(), plural)
}

fn service(text: &str) -> Result<(String, AllowedService), String> {
    let expected = || "expected NAME=NAMESPACE/SERVICE:PORT or NAME=NAMESPACE/SERVICE:PORT/PATH".to_owned();
    let (key, place) = text.split_once('=').ok_or_else(expected)?;
    let (namespace, rest) = place.split_once('/').ok_or_else(expected)?;
    let (name, rest) = rest.split_once(':').ok_or_else(expected)?;
    let (port, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let [namespace, name, path] = [namespace, name, path.trim_end_matches('/')].map(str::to_owned);
    Ok((key.to_owned(), AllowedService { namespace, name, port: port.parse().map_err(|_| expected())?, path }))
}

/// Returns a URL without a slash at its end.
fn plain_url(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() || !url.username().is_empty() {
        return Err("expected https://HOST or http://HOST".to_owned());
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn url_or_none(text: &str) -> Result<String, String> {
    if text == NONE { Ok(NONE.to_owned()) } else { plain_url(text) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use ebb_documents::diagnostic::DiagnosticStyle;

    use super::*;
    use crate::progress::fixtures::rows;

    #[derive(Parser)]
    struct OptionLine {
        #[command(flatten)]
        options: OptionArgs,
    }

    fn parsed(line: &str) -> Result<OptionArgs, String> {
        let line = OptionLine::try_parse_from(std::iter::once("").chain(line.split_whitespace()));
        line.map(|line| line.options).map_err(|error| error.to_string())
    }

    fn known(name: &str) -> Value {
        serde_json::from_str::<Value>(include_str!("values.json")).unwrap()[name].take()
    }

    fn changed(mut values: Value, line: &str) -> Result<Value, String> {
        let options = parsed(line)?;
        options.change(&mut values, "ebb-relay").map(|()| values).map_err(|error| error.text(DiagnosticStyle::Plain))
    }

    #[test]
    fn options_change_the_values_of_a_release() {
        type Row = (Option<String>, String, String, bool, Option<String>, String, Vec<String>);
        let rows = rows::<Row>("options_change_the_values_of_a_release");
        for (release, line, callback_url, polls, token, expected, changes) in rows {
            let release = release.as_deref().map(known);
            let in_force = release.as_ref().map(|values| policy(values).unwrap());
            let mut values = changed(release.unwrap_or_default(), &line).unwrap();
            set_control_plane(&mut values, "eu", "https://ebb.example", Some(&callback_url), polls).unwrap();
            set_token(&mut values, token.as_deref()).unwrap();
            assert_eq!(values, known(&expected));
            assert_eq!(differences(in_force.as_ref(), &policy(&values).unwrap()), changes, "{expected}");
        }
        // Values that lack what is in force show it.
        let in_force = policy(&known("release")).unwrap();
        let lost = differences(Some(&in_force), &policy(&json!({})).unwrap()).join("\n");
        for line in ["- clusterKinds: Namespace", "- priorityClasses: low", "- serviceAccounts: team-a/builder"] {
            assert!(lost.contains(line), "{lost}");
        }
    }

    #[test]
    fn options_of_the_registration_are_kept_replaced_or_removed() {
        let (url, open) = (Some("https://relay.example"), Some(SignadotOutputs::Open));
        for (line, stored, expected) in [
            ("", (url, open), (url, open)),
            ("--push-url https://relay.example/ --signadot-outputs open", (None, None), (url, open)),
            ("--push-url none --signadot-outputs none", (url, open), (None, None)),
        ] {
            let options = parsed(line).unwrap();
            assert_eq!((options.push_url(stored.0).as_deref(), options.signadot_outputs(stored.1)), expected, "{line}");
        }
    }

    #[test]
    fn plural_names_are_those_of_english() {
        for (option, plural) in rows::<(String, String)>("plural_names_are_those_of_english") {
            assert_eq!(kind(&option).unwrap().1, plural, "{option}");
        }
    }

    #[test]
    fn invalid_options_are_rejected() {
        for (line, expected) in rows::<(String, String)>("invalid_options_are_rejected") {
            let error = changed(json!({"image": "r/relay:1"}), &line).unwrap_err();
            assert!(error.contains(&expected), "{line}: {error}");
        }
        assert!(changed(Value::Null, "").unwrap_err().contains("--image is missing"));
        for values in [json!({"image": "i", "policy": []}), json!({"image": "i", "policy": {"namespaces": []}})] {
            let error = changed(values, "--namespace a").unwrap_err();
            assert!(error.contains("not those of the chart"), "{error}");
        }
    }
}
