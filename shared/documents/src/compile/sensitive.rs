//! The destinations of sensitive values.

use super::collector::{DiagnosticCollector, ExpressionRead, TextRole};
use crate::{ReferenceUsage, UnitPlan};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sensitivity {
    Open,
    /// The plugin that decides is not known.
    Unknown,
    /// The value is in a Secret of a cluster.
    InCluster,
    /// The same for an output of a Signadot plugin, which the document could open.
    InClusterByDefault,
    /// The control plane stores the value, encrypted.
    Sealed,
    /// One of the two, as the sandbox decides.
    Undecided,
}

/// The use that is not permitted, and the fix.
pub(super) type Refusal = (&'static str, &'static str);

impl Sensitivity {
    pub(super) fn of_output(unit: &UnitPlan, output: &str) -> Self {
        match unit.outputs.get(output) {
            Some(output) if output.sensitive_by_default => Self::InClusterByDefault,
            Some(output) if output.sensitive && unit.action.is_relayed() => Self::InCluster,
            Some(output) if output.sensitive => Self::Sealed,
            _ => Self::Open,
        }
    }

    pub(super) fn is_sensitive(self) -> bool {
        !matches!(self, Self::Open | Self::Unknown)
    }

    /// Returns the help for a use that is not permitted. It names the key that opens an output of a Signadot plugin.
    pub(super) fn help(self, help: &str) -> String {
        match self {
            Self::InClusterByDefault => {
                format!("{help}; if it is no secret, add `ebb: {{outputs: [STEP.OUTPUT]}}` to the plugin's document")
            }
            _ => help.to_owned(),
        }
    }

    /// Returns the reason why a use could expose the value. An undecided value may be used in the ways of both kinds.
    pub(super) fn refusal(self, found: &ExpressionRead) -> Option<Refusal> {
        match self {
            Self::Open | Self::Unknown => None,
            Self::InCluster | Self::InClusterByDefault => in_cluster(found),
            Self::Sealed => sealed(found),
            Self::Undecided if found.role == TextRole::Manifest => sealed(found).and(in_cluster(found)),
            Self::Undecided => in_cluster(found).and(sealed(found)),
        }
    }
}

/// Rejects a use that could expose a sensitive value, and `secretRef` of a value that is not sensitive.
pub(super) fn check(report: &mut DiagnosticCollector, found: &ExpressionRead, sensitivity: Sensitivity) {
    let source = &found.source;
    if sensitivity == Sensitivity::Open && found.usage == ReferenceUsage::SecretRef {
        let message = format!("`{source}` is not sensitive, and `secretRef` needs a sensitive value");
        report.push(report.error_in("sensitive", &found.spot, message).help("use it as it is, without `secretRef`"));
    }
    if let Some((place, help)) = sensitivity.refusal(found) {
        let message = format!("`{source}` is sensitive and cannot {place}");
        report.push(report.error_in("sensitive", &found.spot, message).help(sensitivity.help(help)));
    }
}

/// Returns the reason why a reference to a Secret cannot be used so.
fn in_cluster(found: &ExpressionRead) -> Option<Refusal> {
    Some(match (found.role, found.usage) {
        (_, ReferenceUsage::Presence)
        | (TextRole::PodInput | TextRole::Public, ReferenceUsage::Whole)
        | (TextRole::PodInput | TextRole::Manifest, ReferenceUsage::SecretRef) => return None,
        (TextRole::BoundSecret, _) if found.is_whole => return None,
        (TextRole::Webhook | TextRole::PlainWebhook | TextRole::Url, _) => {
            ("be sent in a webhook", "it stays in its cluster, where a pod can get it as an input")
        }
        (TextRole::Infrakit | TextRole::InfrakitText, _) => {
            ("be sent to a plugin", "it stays in its cluster, where a pod can get it as an input")
        }
        (TextRole::Manifest, _) => {
            ("stand in a manifest", "refer to its Secret: `${secretRef(…)}` gives `name` and `key`")
        }
        (role, _) => elsewhere(role),
    })
}

/// Returns the reason why an encrypted value cannot be used so.
fn sealed(found: &ExpressionRead) -> Option<Refusal> {
    Some(match (found.role, found.usage) {
        (_, ReferenceUsage::Presence) | (TextRole::PodInput | TextRole::Public, ReferenceUsage::Whole) => return None,
        (TextRole::Webhook | TextRole::Infrakit | TextRole::BoundSecret, _) if found.is_whole => return None,
        (_, ReferenceUsage::SecretRef) => {
            ("be named by `secretRef`", "it is in no Secret of a cluster; hand it on whole, as an input of a pod")
        }
        (TextRole::Webhook, _) => {
            ("be part of a text", "hand it on whole, as a header, an input, or a value of the body")
        }
        (TextRole::PlainWebhook, _) => ("be sent without encryption", "write `https://` in the URL of the webhook"),
        (TextRole::Url, _) => {
            ("be part of a URL", "URLs are stored and shown; hand it on whole, in a header or in the body")
        }
        (TextRole::Infrakit, _) => ("be part of a text", "hand it on whole, as a property"),
        (TextRole::InfrakitText, _) => ("be used here", "hand it on whole, in `properties`"),
        (TextRole::Manifest, _) => {
            ("stand in a manifest", "give it to a pod, or name a Secret of the cluster: `{secret: NAME, key: KEY}`")
        }
        (role, _) => elsewhere(role),
    })
}

/// Returns the refusal of a place that is the same for both kinds of values.
fn elsewhere(role: TextRole) -> Refusal {
    match role {
        TextRole::PodInput => {
            ("be part of a text", "hand it on whole, as an input of its own, and put the text together in the script")
        }
        TextRole::Answer => {
            ("be read beside a response", "an output has a value of the response; hand this on as a public output")
        }
        TextRole::Cluster => ("name a cluster", "write the name, or declare a param for it that is not sensitive"),
        TextRole::When => ("decide a `when`", "`has(…)` may ask whether it is there"),
        TextRole::List => ("decide which units exist", "declare a param for the list that is not sensitive"),
        TextRole::BoundSecret => ("be part of a text", "hand it on whole, as the value of a key of its own"),
        TextRole::BoundConfigMap => ("be in a ConfigMap", "bind it to a `secret`"),
        _ => ("be part of a text", "hand it on whole, as an output of its own"),
    }
}
