//! The options of the installation of a relay, which the control plane stores as JSON with the cluster.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;
use ebb_documents::compile::{AllowedService, ClusterPolicy, NamespacePolicy, PodSecurityLevel, is_cluster_wide};
use ebb_protocol::api::{ClusterRegistration, SignadotOutputs};
use ebb_protocol::id::is_dns_label;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::exit::{CliError, Result};
use crate::output;
use crate::progress::labels;

/// The namespace that the profile `signadot` adds.
const SIGNADOT: &str = "signadot";
/// Kinds that the profile `signadot` adds.
const SIGNADOT_KINDS: [&str; 2] = ["ConfigMap", "Secret"];
/// Namespaces of Kubernetes itself.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];
/// Kinds in namespaces of the group that has no name.
const CORE_KINDS: &str = "ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate \
    ReplicationController ResourceQuota Secret Service ServiceAccount";
/// Maximum characters of a name in Kubernetes.
const MAX_NAME: usize = 253;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PolicyProfile {
    /// Pods run without root.
    #[default]
    Restricted,
    /// Pods may run as root in their container.
    Baseline,
    /// `restricted`, and a namespace in which Signadot's plugins run unchanged.
    Signadot,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ClusterOptions {
    pub(crate) profile: PolicyProfile,
    pub(crate) image: String,
    pub(crate) entrypoint_image: String,
    pub(crate) relay_namespace: String,
    pub(crate) unit_namespace: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) namespaces: BTreeMap<String, NamespacePolicy>,
    /// The plural name by `KIND` or `KIND.GROUP`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) kinds: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) bind_namespaces: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) services: BTreeMap<String, AllowedService>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signadot_outputs: Option<SignadotOutputs>,
    /// The URL of the relay with push transport. `None` means pull.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) push_url: Option<String>,
    /// The URL of the API, if the default is not right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pull_url: Option<String>,
    /// The URL for callbacks, if that of the server is not right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) callback_url: Option<String>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            profile: PolicyProfile::default(),
            image: String::new(),
            entrypoint_image: String::new(),
            relay_namespace: "ebb-relay".to_owned(),
            unit_namespace: "ebb-units".to_owned(),
            namespaces: BTreeMap::new(),
            kinds: BTreeMap::new(),
            bind_namespaces: BTreeSet::new(),
            services: BTreeMap::new(),
            signadot_outputs: None,
            push_url: None,
            pull_url: None,
            callback_url: None,
        }
    }
}

/// The options of commands. Those that can be repeated are added to the stored ones.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct OptionArgs {
    /// Settings of usual clusters: `restricted`, `baseline`, or `signadot` for Signadot's plugins
    #[arg(long, value_enum, hide_possible_values = true)]
    profile: Option<PolicyProfile>,
    /// Namespace for units, with its level of Pod Security: `restricted`, `baseline` or `privileged`; repeatable
    #[arg(long = "namespace", value_name = "NAMESPACE[:LEVEL]", value_parser = namespace)]
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
    /// Namespace of workloads in which `bind` may have Secrets and ConfigMaps; repeatable
    #[arg(long = "bind-namespace", value_name = "NAMESPACE")]
    bind_namespaces: Vec<String>,
    /// Service that units may call; repeatable
    #[arg(long = "service", value_name = "NAME=NAMESPACE/SERVICE:PORT[/PATH]", value_parser = service)]
    services: Vec<(String, AllowedService)>,
    /// `open`: show the outputs of Signadot plugins in clear; by default, they stay in a Secret of the cluster
    #[arg(long, value_name = "open", value_parser = signadot_outputs)]
    signadot_outputs: Option<SignadotOutputs>,
    /// Stored option to remove, such as `namespace=team-a` or `callback-url`; repeatable
    #[arg(long = "remove", value_name = "OPTION[=VALUE]", value_parser = removal)]
    removals: Vec<(String, String)>,
    /// Image of the relay, REPOSITORY:TAG or REPOSITORY@DIGEST
    #[arg(long)]
    image: Option<String>,
    /// Image that contains the entrypoint as /ebb-entrypoint
    #[arg(long, value_name = "IMAGE")]
    entrypoint_image: Option<String>,
    /// Namespace of the relay and its records, which holds nothing else; by default `ebb-relay`
    #[arg(long, value_name = "NAMESPACE")]
    relay_namespace: Option<String>,
    /// Namespace of units that name none; by default `ebb-units`
    #[arg(long, value_name = "NAMESPACE")]
    unit_namespace: Option<String>,
    /// URL at which the control plane reaches the relay; without it, the relay polls and needs no inbound access
    #[arg(long, value_name = "URL")]
    push_url: Option<Url>,
    /// URL at which the relay reaches the API of the control plane; by default that of this command
    #[arg(long, value_name = "URL")]
    pull_url: Option<Url>,
    /// URL at which the control plane accepts callbacks; by default as the server says
    #[arg(long, value_name = "URL")]
    callback_url: Option<Url>,
}

/// The options that `--remove` takes, and whether they have a value.
const REMOVABLE: [(&str, bool); 10] = [
    ("namespace", true),
    ("service-account", true),
    ("pull-secret", true),
    ("kind", true),
    ("bind-namespace", true),
    ("service", true),
    ("signadot-outputs", false),
    ("push-url", false),
    ("pull-url", false),
    ("callback-url", false),
];

impl OptionArgs {
    /// Returns the stored options with these changes.
    ///
    /// # Errors
    /// Returns an error if an option is invalid.
    pub(crate) fn merged(self, stored: &ClusterOptions) -> Result<ClusterOptions> {
        let mut options = stored.clone();
        let missing: Vec<&(String, String)> =
            self.removals.iter().filter(|(option, value)| !options.remove(option, value)).collect();
        let url = |url: Url| url.as_str().trim_end_matches('/').to_owned();
        options.profile = self.profile.unwrap_or(options.profile);
        options.image = self.image.unwrap_or(options.image);
        options.entrypoint_image = self.entrypoint_image.unwrap_or(options.entrypoint_image);
        options.relay_namespace = self.relay_namespace.unwrap_or(options.relay_namespace);
        options.unit_namespace = self.unit_namespace.unwrap_or(options.unit_namespace);
        options.signadot_outputs = self.signadot_outputs.or(options.signadot_outputs);
        options.push_url = self.push_url.map(url).or(options.push_url);
        options.pull_url = self.pull_url.map(url).or(options.pull_url);
        options.callback_url = self.callback_url.map(url).or(options.callback_url);
        for (name, level) in self.namespaces {
            let entry = options.namespaces.entry(name).or_default();
            entry.level = level.or(entry.level);
        }
        for (namespace, name) in self.service_accounts {
            options.listed(&namespace, "--service-account")?.service_accounts.insert(name);
        }
        for (namespace, name) in self.pull_secrets {
            options.listed(&namespace, "--pull-secret")?.image_pull_secrets.insert(name);
        }
        options.kinds.extend(self.kinds);
        options.bind_namespaces.extend(self.bind_namespaces);
        options.services.extend(self.services);
        options.check()?;
        for removal in &self.removals {
            let (option, value) = removal;
            let equals = if value.is_empty() { "" } else { "=" };
            let why = match options.reason_to_stay(option, value) {
                Some(reason) => format!("remains, because {reason}"),
                None if missing.contains(&removal) => "is not stored, so nothing is removed".to_owned(),
                None => continue,
            };
            output::status_line(&format!("note: {option}{equals}{value} {why}"));
        }
        Ok(options)
    }
}

impl ClusterOptions {
    /// Returns the options of a registered cluster.
    ///
    /// # Errors
    /// Returns an error if another program has stored options that this one does not know.
    pub(crate) fn stored(name: &str, registration: &ClusterRegistration) -> Result<Self> {
        let stored = Value::Object(registration.options.clone());
        let mut options: Self = serde_json::from_value(stored).map_err(|error| {
            let why = output::printable(&error.to_string());
            CliError::failed(format!("the stored options of the cluster {name} cannot be read: {why}")).with_hint(
                "use the version of `ebb` that has stored them, or store others with `PUT /v1/clusters/NAME`",
            )
        })?;
        options.entrypoint_image.clone_from(&registration.entrypoint_image);
        options.push_url.clone_from(&registration.url);
        options.signadot_outputs = registration.signadot_outputs;
        options.check_names()?;
        Ok(options)
    }

    /// Returns the namespaces of the policy, with those that no option names.
    pub(crate) fn all_namespaces(&self) -> BTreeMap<String, NamespacePolicy> {
        let mut all = self.namespaces.clone();
        all.entry(self.unit_namespace.clone()).or_default();
        if self.profile == PolicyProfile::Signadot {
            all.entry(SIGNADOT.to_owned()).or_default().level.get_or_insert(PodSecurityLevel::Baseline);
        }
        all
    }

    /// Returns the policy that the relay reads.
    pub(super) fn policy(&self) -> ClusterPolicy {
        let mut kinds: BTreeSet<String> = self.kinds.keys().cloned().collect();
        kinds.insert("Job.batch".to_owned());
        if self.profile == PolicyProfile::Signadot {
            kinds.extend(SIGNADOT_KINDS.map(str::to_owned));
        }
        let is_baseline = self.profile == PolicyProfile::Baseline;
        ClusterPolicy {
            pod_security_level: if is_baseline { PodSecurityLevel::Baseline } else { PodSecurityLevel::Restricted },
            namespaces: self.all_namespaces(),
            kinds,
            bind_namespaces: self.bind_namespaces.clone(),
            services: self.services.clone(),
            ..ClusterPolicy::default()
        }
    }

    /// Returns the entry of a namespace of the policy.
    fn listed(&mut self, namespace: &str, option: &str) -> Result<&mut NamespacePolicy> {
        if !self.all_namespaces().contains_key(namespace) {
            return Err(CliError::broken(format!("{option}: the policy does not list the namespace {namespace}"))
                .with_hint(format!("add --namespace {namespace}")));
        }
        Ok(self.namespaces.entry(namespace.to_owned()).or_default())
    }

    /// Returns why the policy has a namespace or a kind that no option names.
    pub(super) fn reason_to_stay(&self, option: &str, value: &str) -> Option<&'static str> {
        let of_profile = "the profile signadot grants it; choose another one with --profile";
        let is_signadot = self.profile == PolicyProfile::Signadot;
        match option {
            "namespace" if value == self.unit_namespace => {
                Some("it is the namespace of units; choose another one with --unit-namespace")
            }
            "namespace" if is_signadot && value == SIGNADOT => Some(of_profile),
            "kind" if is_signadot && SIGNADOT_KINDS.contains(&value) => Some(of_profile),
            "kind" if value == "Job.batch" => Some("scripts need it"),
            _ => None,
        }
    }

    /// Removes an option of [`REMOVABLE`]. Returns false if it is not set.
    fn remove(&mut self, option: &str, value: &str) -> bool {
        let (namespace, name) = value.split_once('/').unwrap_or((value, ""));
        let is_removed = self.remove_value(option, value, namespace, name);
        // An entry that has only named what is removed would outlive the profile.
        if self.namespaces.get(namespace) == Some(&NamespacePolicy::default())
            && self.reason_to_stay("namespace", namespace).is_some()
        {
            self.namespaces.remove(namespace);
        }
        is_removed
    }

    fn remove_value(&mut self, option: &str, value: &str, namespace: &str, name: &str) -> bool {
        let entry = self.namespaces.get_mut(namespace);
        match option {
            "namespace" => self.namespaces.remove(value).is_some(),
            "service-account" => entry.is_some_and(|entry| entry.service_accounts.remove(name)),
            "pull-secret" => entry.is_some_and(|entry| entry.image_pull_secrets.remove(name)),
            "kind" => self.kinds.remove(value).is_some(),
            "bind-namespace" => self.bind_namespaces.remove(value),
            "service" => self.services.remove(value).is_some(),
            "signadot-outputs" => self.signadot_outputs.take().is_some(),
            "push-url" => self.push_url.take().is_some(),
            "pull-url" => self.pull_url.take().is_some(),
            _ => self.callback_url.take().is_some(),
        }
    }

    /// Returns the namespaces of `bind` and of Services. The manifests do not create them.
    pub(super) fn needed_namespaces(&self) -> BTreeSet<&str> {
        let services = self.services.values().map(|service| service.namespace.as_str());
        self.bind_namespaces.iter().map(String::as_str).chain(services).collect()
    }

    /// Returns one line per option, such as `namespaces.team-a: baseline`.
    fn lines(&self) -> BTreeSet<String> {
        let policy = self.policy();
        let mut lines = namespace_lines(&policy);
        let of_profile = policy.kinds.iter().filter(|kind| !self.kinds.contains_key(*kind));
        lines.extend(of_profile.map(|kind| format!("kinds.{kind}: of the profile")));
        lines.extend(self.kinds.iter().map(|(kind, plural)| format!("kinds.{kind}: {plural}")));
        lines.extend(self.services.iter().map(|(key, AllowedService { namespace, name, port, path })| {
            format!("services.{key}: {namespace}/{name}:{port}{path}")
        }));
        let texts = [
            ("profile", Some(labels::name(&self.profile))),
            ("image", Some(self.image.clone()).filter(|image| !image.is_empty())),
            ("entrypointImage", Some(self.entrypoint_image.clone()).filter(|image| !image.is_empty())),
            ("relayNamespace", Some(self.relay_namespace.clone())),
            ("unitNamespace", Some(self.unit_namespace.clone())),
            ("signadotOutputs", self.signadot_outputs.as_ref().map(labels::name)),
            ("pushUrl", self.push_url.clone()),
            ("pullUrl", self.pull_url.clone()),
            ("callbackUrl", self.callback_url.clone()),
        ];
        lines.extend(texts.into_iter().filter_map(|(key, value)| Some(format!("{key}: {}", value?))));
        lines
    }

    /// Returns the differences to former options: lines that begin with `-` or `+`. Without former options, all are new.
    pub(crate) fn changes_since(&self, former: Option<&Self>) -> Vec<String> {
        changed_lines(&former.map(Self::lines).unwrap_or_default(), &self.lines())
    }

    /// Checks the options.
    ///
    /// # Errors
    /// Returns an error that names the first invalid value.
    pub(crate) fn check(&self) -> Result<()> {
        for (option, image) in [("--image", &self.image), ("--entrypoint-image", &self.entrypoint_image)] {
            if image.is_empty() {
                return Err(CliError::broken(format!("{option} is missing, and no image is stored"))
                    .with_hint("the first connection of a cluster needs --image and --entrypoint-image")
                    .with_hint("`cargo xtask build images --repository REGISTRY` builds both"));
            }
            valid(option, image, is_image(image), "REPOSITORY:TAG or REPOSITORY@DIGEST")?;
        }
        self.check_names()?;
        let all = self.all_namespaces();
        let mut used = all.keys().chain(&self.bind_namespaces).chain([&self.relay_namespace]);
        if let Some(system) = used.find(|namespace| SYSTEM_NAMESPACES.contains(&namespace.as_str())) {
            return Err(CliError::broken(format!(
                "the namespace {system} is one of Kubernetes itself: it holds no units, no bound objects and no relay"
            ))
            .with_hint("choose another namespace"));
        }
        for (what, url) in [("--push-url", &self.push_url), ("--callback-url", &self.callback_url)] {
            url.as_deref().map_or(Ok(()), |url| server(url, what).map(drop))?;
        }
        self.pull_url.as_deref().map_or(Ok(()), |url| api(url, "--pull-url").map(drop))
    }

    /// Checks the names, which another program may have stored. They become parts of commands.
    fn check_names(&self) -> Result<()> {
        let label = |what: &str, value: &str| valid(what, value, is_dns_label(value), LABEL);
        let name = |what: &str, value: &str| {
            let is_name = value.len() <= MAX_NAME && value.split('.').all(is_dns_label);
            valid(what, value, is_name, "a name of Kubernetes: DNS labels with dots between them")
        };
        label("relay namespace", &self.relay_namespace)?;
        for (namespace, entry) in &self.all_namespaces() {
            label("namespace", namespace)?;
            entry.service_accounts.iter().try_for_each(|account| name("service account", account))?;
            entry.image_pull_secrets.iter().try_for_each(|secret| name("pull secret", secret))?;
        }
        self.bind_namespaces.iter().try_for_each(|namespace| label("bind namespace", namespace))?;
        for (kind, plural) in &self.kinds {
            valid("kind", kind, is_kind(kind), "KIND or KIND.GROUP, such as Cluster.postgresql.cnpg.io")?;
            let is_plural = plural.starts_with(|c: char| c.is_ascii_lowercase())
                && plural.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
                && plural.len() <= MAX_NAME;
            valid(
                "plural name",
                plural,
                is_plural,
                "lower-case letters and digits, as `kubectl api-resources` prints",
            )?;
        }
        for (key, AllowedService { namespace, name, port, path }) in &self.services {
            [key, namespace, name].into_iter().try_for_each(|text| label("service", text))?;
            // Other roles of the relay have these names.
            let is_free = !matches!(key.as_str(), "bind" | "granted");
            valid("name of a service", key, is_free, "another name than `bind` and `granted`")?;
            valid("port of the service", key, *port != 0, "a port from 1 to 65535")?;
            valid("path of a service", path, is_path(path), "segments of letters, digits, `.`, `_`, `~` and `-`")?;
        }
        let own = &self.relay_namespace;
        if self.all_namespaces().contains_key(own) || self.bind_namespaces.contains(own) {
            return Err(CliError::broken(format!(
                "the namespace {own} of the relay holds no units and no bound objects"
            ))
            .with_hint("give the relay a namespace of its own with --relay-namespace"));
        }
        Ok(())
    }
}

/// Returns one line per setting that relays report. The targets of Services stay in the cluster.
pub(super) fn policy_lines(policy: &ClusterPolicy) -> BTreeSet<String> {
    let mut lines = namespace_lines(policy);
    lines.extend(policy.kinds.iter().map(|kind| format!("kinds: {kind}")));
    lines.extend(policy.services.keys().map(|key| format!("services: {key}")));
    lines
}

/// Returns the lines that are the same for options and for the policy of a relay.
fn namespace_lines(policy: &ClusterPolicy) -> BTreeSet<String> {
    let bound = policy.bind_namespaces.iter().map(|namespace| format!("bindNamespaces: {namespace}"));
    let mut lines: BTreeSet<String> = bound.collect();
    for (namespace, entry) in &policy.namespaces {
        lines.insert(format!("namespaces.{namespace}: {}", policy.level(namespace).name()));
        lines.extend(entry.service_accounts.iter().map(|account| format!("serviceAccounts: {namespace}/{account}")));
        lines.extend(entry.image_pull_secrets.iter().map(|secret| format!("imagePullSecrets: {namespace}/{secret}")));
    }
    lines
}

/// Returns the lines of one set only: `- LINE` for the former, `+ LINE` for the new one.
pub(super) fn changed_lines(former: &BTreeSet<String>, new: &BTreeSet<String>) -> Vec<String> {
    let removed = former.difference(new).map(|line| format!("- {line}"));
    removed.chain(new.difference(former).map(|line| format!("+ {line}"))).collect()
}

/// Returns an error that names a value, if it is not valid.
fn valid(what: &str, value: &str, is_valid: bool, expected: &str) -> Result<()> {
    if is_valid {
        return Ok(());
    }
    Err(CliError::broken(format!("invalid {what} {value:?}: expected {expected}")))
}

const LABEL: &str = "a DNS label: 1 to 63 of a-z, 0-9 and -, no - at the ends";

/// Returns the host and port of a URL.
///
/// # Errors
/// Returns an error that names the option for any other text.
pub(super) fn server(text: &str, option: &str) -> Result<(String, u16)> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.username().is_empty());
    let parts = url.and_then(|url| Some((url.host_str()?.to_owned(), url.port_or_known_default()?)));
    parts.ok_or_else(|| CliError::broken(format!("invalid {option}: expected https://HOST or http://HOST")))
}

/// Returns the host and port of the URL of an API, which has no path.
///
/// # Errors
/// Returns an error that names the option for any other text.
pub(super) fn api(text: &str, option: &str) -> Result<(String, u16)> {
    let has_path = text.splitn(4, '/').nth(3).is_some_and(|path| !path.is_empty()) || text.contains(['?', '#', '@']);
    if has_path {
        return Err(CliError::broken(format!("invalid {option}: expected https://HOST or http://HOST without a path")));
    }
    server(text, option)
}

/// Returns true for the name of an image. Its characters have no meaning in YAML.
fn is_image(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./:@_-".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

fn is_kind(text: &str) -> bool {
    let (kind, group) = text.split_once('.').unwrap_or((text, "core"));
    let is_word = kind.starts_with(|c: char| c.is_ascii_uppercase()) && kind.bytes().all(|b| b.is_ascii_alphanumeric());
    is_word && text.len() <= MAX_NAME && group.split('.').all(is_dns_label)
}

fn is_path(text: &str) -> bool {
    let is_segment = |segment: &str| {
        let mut characters = segment.chars();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '~' | '-');
        characters.next().is_some_and(plain) && characters.all(|c| plain(c) || c == '.')
    };
    text.is_empty() || (text.starts_with('/') && text.split('/').skip(1).all(is_segment))
}

fn namespace(text: &str) -> Result<(String, Option<PodSecurityLevel>), String> {
    let Some((name, level)) = text.split_once(':') else { return Ok((text.to_owned(), None)) };
    let level = serde_json::from_value(level.into())
        .map_err(|_| format!("unknown level `{level}`; expected restricted, baseline or privileged"))?;
    Ok((name.to_owned(), Some(level)))
}

fn signadot_outputs(text: &str) -> Result<SignadotOutputs, String> {
    match text {
        "open" => Ok(SignadotOutputs::Open),
        _ => Err("expected `open`; `--remove signadot-outputs` returns to the default".to_owned()),
    }
}

fn in_namespace(text: &str) -> Result<(String, String), String> {
    let (namespace, name) = text.split_once('/').ok_or("expected NAMESPACE/NAME")?;
    Ok((namespace.to_owned(), name.to_owned()))
}

/// Parses `KIND[.GROUP][=PLURAL]`. The default is the usual plural in English.
fn kind(text: &str) -> Result<(String, String), String> {
    let name = text.split_once('=').map_or(text, |(name, _)| name);
    if is_cluster_wide(name) {
        return Err(
            "it is outside of namespaces, so only the value `policy.clusterKinds` of the chart allows it".to_owned()
        );
    }
    let has_group = name.contains('.') || CORE_KINDS.split(' ').any(|core| core == name);
    if is_kind(name) && !has_group {
        return Err("the kind has a group, so write KIND.GROUP, as `kubectl api-resources` prints them".to_owned());
    }
    if let Some((kind, plural)) = text.split_once('=') {
        return Ok((kind.to_owned(), plural.to_owned()));
    }
    let word = text.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let plural = match word.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ if word.ends_with(['s', 'x', 'z']) || word.ends_with("ch") || word.ends_with("sh") => format!("{word}es"),
        _ => format!("{word}s"),
    };
    Ok((text.to_owned(), plural))
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

fn removal(text: &str) -> Result<(String, String), String> {
    let (option, value) = text.split_once('=').unwrap_or((text, ""));
    match REMOVABLE.iter().find(|(name, _)| *name == option) {
        Some((_, has_value)) if *has_value != value.is_empty() => Ok((option.to_owned(), value.to_owned())),
        _ => {
            let names =
                REMOVABLE.map(|(name, has_value)| if has_value { format!("{name}=…") } else { name.to_owned() });
            Err(format!("expected {}", names.join(", ")))
        }
    }
}
