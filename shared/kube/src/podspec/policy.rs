//! The policy of a cluster's operator, and the texts of its refusals.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::podspec::{PodspecViolation, is_dns_part};

/// The maximum number of allowed values in the text of a refusal.
const MAX_LISTED: usize = 10;
/// The maximum length of a rejected value in a text, and in a command. Names in Kubernetes have at most 253 bytes.
const MAX_SHOWN: usize = 253;

/// The policy of a cluster's operator. Everything that it does not list is denied. [`Default`] allows no namespace and
/// no kind.
///
/// The relay enforces `namespaces` and the kinds. The admission policy of its chart enforces the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterPolicy {
    /// The Pod Security Standard of namespaces that set no `level`.
    pub pod_security_level: PodSecurityLevel,
    #[serde(deserialize_with = "namespaces")]
    pub namespaces: BTreeMap<String, NamespacePolicy>,
    /// Kinds of namespaced objects: `Kind` of the core group, `Kind.group`, or `*.group`.
    pub kinds: BTreeSet<String>,
    /// Kinds of cluster-wide objects, in the same form.
    pub cluster_kinds: BTreeSet<String>,
    /// Namespaces of workloads for objects of `bind`. An empty set is not written: an earlier relay rejects the key.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub bind_namespaces: BTreeSet<String>,
    pub runtime_classes: BTreeSet<String>,
    pub priority_classes: BTreeSet<String>,
    /// Services that the control plane may call, by a name of the operator's choice.
    pub services: BTreeMap<String, AllowedService>,
    /// Reserved Secrets that the current task may read: those with its own outputs. No operator sets them.
    #[serde(skip)]
    pub secrets: BTreeSet<String>,
    /// The namespace of units whose documents name none, in a policy that a relay has reported. The report of an earlier
    /// relay has neither it nor the classes of pods, so `None` means that both are unknown. No operator sets it.
    #[serde(skip)]
    pub unit_namespace: Option<String>,
    /// The namespace of the relay, in a policy that it has reported. No operator sets it.
    #[serde(skip)]
    pub relay_namespace: Option<String>,
}

impl ClusterPolicy {
    /// Returns the Pod Security Standard for the pods of a namespace.
    pub fn level(&self, namespace: &str) -> PodSecurityLevel {
        self.namespaces.get(namespace).and_then(|entry| entry.level).unwrap_or(self.pod_security_level)
    }

    /// Returns the violation of a namespace that the policy does not list.
    pub fn namespace_violation(&self, namespace: &str) -> Option<PodspecViolation> {
        if self.namespaces.contains_key(namespace) {
            return None;
        }
        let (name, allowed) = (shown(namespace), listed(self.namespaces.keys()));
        Some(PodspecViolation {
            path: "metadata.namespace".to_owned(),
            why: format!(
                "the namespace `{name}` is not allowed by the policy of the cluster (`namespaces`: {allowed})"
            ),
            help: match self.is_closed(namespace) {
                true => "use another one: no unit may run in those of Kubernetes and of the relay".to_owned(),
                // Many images have the user root, whom the level `restricted` rejects.
                false => ask_operator(&format!("--namespace {namespace}:baseline"), namespace),
            },
        })
    }

    /// Returns true for a namespace of Kubernetes itself or of the relay, which no policy lists.
    pub(crate) fn is_closed(&self, namespace: &str) -> bool {
        ["kube-node-lease", "kube-public", "kube-system"].contains(&namespace)
            || self.relay_namespace.as_deref() == Some(namespace)
    }

    /// Returns what to do about a rejection by Pod Security in a namespace. `why` is the text of the API server.
    pub fn pod_security_fix(&self, namespace: &str, why: &str) -> String {
        let needed = match self.level(namespace) {
            PodSecurityLevel::Restricted if !why.contains("privileged (") => PodSecurityLevel::Baseline,
            _ => PodSecurityLevel::Privileged,
        };
        format!("change the pod, or {}", ask_operator(&format!("--namespace {namespace}:{}", needed.name()), namespace))
    }

    /// Returns the Services with a key, or those with a host and a port, such as `page.shop.svc:80`. They differ in their paths.
    pub fn services_of<'a>(&'a self, service: &str) -> impl Iterator<Item = &'a AllowedService> {
        let named = self.services.get(service);
        let is_meant = move |it: &&AllowedService| {
            named.map_or_else(|| format!("{}.{}.svc:{}", it.name, it.namespace, it.port) == service, |own| *it == own)
        };
        self.services.values().filter(is_meant)
    }

    /// Returns the violation of a Service that the policy does not list.
    pub fn service_refusal(&self, service: &str) -> PodspecViolation {
        let (shown, allowed) = (shown(service), listed(self.services.keys()));
        let of_host = || {
            let (host, port) = service.rsplit_once(':')?;
            let (name, namespace) = service_of(host)?;
            Some((format!("{name}={namespace}/{name}:{}", port.parse::<u16>().ok()?), name))
        };
        let (wanted, name) = of_host().unwrap_or_else(|| (format!("{service}=NAMESPACE/SERVICE:PORT"), service));
        PodspecViolation {
            path: String::new(),
            why: format!("the service `{shown}` is not allowed by the policy of the cluster (`services`: {allowed})"),
            help: ask_operator(&format!("--service {wanted}"), name),
        }
    }
}

/// Returns the name and the namespace of a Service in its host `NAME.NAMESPACE.svc`.
pub fn service_of(host: &str) -> Option<(&str, &str)> {
    host.strip_suffix(".svc")?.split_once('.').filter(|(name, namespace)| is_dns_part(name) && is_dns_part(namespace))
}

/// Returns true for a header, in lower case, that a request to a Service may have. The API server obeys others, for example
/// `authorization` and `impersonate-user`.
pub fn is_service_header(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "accept",
        "accept-language",
        "api-key",
        "apikey",
        "content-type",
        "idempotency-key",
        "if-match",
        "if-none-match",
        "prefer",
        "traceparent",
        "user-agent",
    ];
    let begins = |prefixes: [&str; 3]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let is_free = begins(["ebb-", "webhook-", "x-"]) && !begins(["x-forwarded-", "x-remote-", "x-stream-"]);
    (is_free && name != "x-real-ip") || NAMES.contains(&name)
}

/// What pods of a namespace may have, and what pods of scripts get if their author sets nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NamespacePolicy {
    /// `None` means [`ClusterPolicy::pod_security_level`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<PodSecurityLevel>,
    /// The service accounts that pods may use. The API server rejects pods with other accounts. The default is the account `default`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub service_accounts: BTreeSet<String>,
    /// The Secrets with credentials of registries.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub image_pull_secrets: BTreeSet<String>,
}

/// Reads namespaces, each with a [`NamespacePolicy`] or with a list of service accounts.
fn namespaces<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, NamespacePolicy>, D::Error> {
    let entries = BTreeMap::<String, NamespaceEntry>::deserialize(deserializer)?;
    Ok(entries.into_iter().map(|(name, NamespaceEntry(entry))| (name, entry)).collect())
}

struct NamespaceEntry(NamespacePolicy);

impl<'de> Deserialize<'de> for NamespaceEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

/// The error of an untagged enum would not name the wrong key.
struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = NamespaceEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of service accounts, or a mapping with level, serviceAccounts and imagePullSecrets")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(NamespaceEntry(NamespacePolicy::default()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        let service_accounts = Deserialize::deserialize(SeqAccessDeserializer::new(items))?;
        Ok(NamespaceEntry(NamespacePolicy { service_accounts, ..NamespacePolicy::default() }))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        NamespacePolicy::deserialize(MapAccessDeserializer::new(entries)).map(NamespaceEntry)
    }
}

/// A Service that the control plane may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedService {
    pub namespace: String,
    pub name: String,
    pub port: u16,
    /// The path that all requests begin with, without a slash at its end. Empty: all paths.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
}

/// A level of Pod Security. One that permits more is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodSecurityLevel {
    /// No access outside of a container, and no root in it.
    #[default]
    Restricted,
    /// No access outside of a container.
    Baseline,
    /// All that the admission policy of the relay's chart permits, privileged containers among it.
    Privileged,
}

impl PodSecurityLevel {
    /// Returns the name in labels and messages of Kubernetes.
    pub fn name(self) -> &'static str {
        self.enforced()[0]
    }

    /// Returns the levels that a namespace may enforce: this one first, then those that admit less.
    pub fn enforced(self) -> &'static [&'static str] {
        match self {
            Self::Restricted => &["restricted"],
            Self::Baseline => &["baseline", "restricted"],
            Self::Privileged => &["privileged", "baseline", "restricted"],
        }
    }
}

/// Returns allowed values for a text: at most [`MAX_LISTED`], and the number of the others.
pub fn listed<'a>(values: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = values.len().saturating_sub(MAX_LISTED);
    let names: Vec<&str> = values.take(MAX_LISTED).map(String::as_str).collect();
    match (names.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => names.join(", "),
        (false, _) => format!("{}, and {more} more", names.join(", ")),
    }
}

/// Returns a rejected value for a text, without control characters and with a limited length.
pub fn shown(value: &str) -> String {
    value.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect()
}

/// Returns a kind as policies name it: `Kind` of the core group, or `Kind.group`.
pub fn full_kind(api_version: &str, kind: &str) -> String {
    api_version.rsplit_once('/').map_or_else(|| kind.to_owned(), |(group, _)| format!("{kind}.{group}"))
}

/// Returns the fix for a kind: the command that allows its objects in namespaces or outside of them, with the rights to them.
pub fn kind_fix(full_kind: &str, is_in_namespace: bool) -> String {
    let option = if is_in_namespace { "--kind" } else { "--cluster-kind" };
    ask_operator(&format!("{option} {full_kind}"), full_kind)
}

/// Returns the command that the operator runs. `value` is of a document: it is left out if it has a meaning in a shell.
pub fn ask_operator(option: &str, value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    match !value.is_empty() && value.len() <= MAX_SHOWN && !value.starts_with('-') && value.bytes().all(is_plain) {
        true => format!("ask its operator to run: ebb cluster connect NAME --apply {option}"),
        false => "ask its operator".to_owned(),
    }
}
