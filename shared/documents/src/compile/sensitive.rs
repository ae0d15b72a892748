//! The destinations of sensitive values.

use super::collector::{DiagnosticCollector, ExpressionRead};
use crate::expr::ReferenceUsage;

/// The role of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextRole {
    PodInput,
    /// The URL, a header, the body or an input of a request.
    Webhook,
    /// A part of the request to a plugin of InfraKit.
    Infrakit,
    Manifest,
    /// An output or `until` of a webhook.
    Answer,
    /// The condition `when`.
    When,
    Cluster,
    /// A public output of a plugin, or the environment of a sandbox.
    Public,
}

/// Rejects a use that could expose a sensitive value, and `secretRef` of a value that is not sensitive.
pub(super) fn check(
    report: &mut DiagnosticCollector,
    role: TextRole,
    found: &ExpressionRead<'_>,
    sensitivity: Sensitivity,
) {
    let source = &found.source;
    if sensitivity == Sensitivity::Open {
        if found.usage == ReferenceUsage::SecretRef {
            let message = format!("`{source}` is not sensitive, so there is no Secret to refer to");
            report
                .push(report.error_in("sensitive", &found.spot, message).help("use it as it is, without `secretRef`"));
        }
        return;
    }
    let (place, help) = match (role, found.usage) {
        (_, ReferenceUsage::Presence)
        | (TextRole::PodInput | TextRole::Public, ReferenceUsage::Whole)
        | (TextRole::PodInput | TextRole::Manifest, ReferenceUsage::SecretRef) => return,
        (TextRole::PodInput, _) => {
            ("be part of a text", "hand it on whole, as an input of its own, and put the text together in the script")
        }
        (TextRole::Webhook, _) => {
            ("be sent in a webhook", "a webhook can only get what is not sensitive; a pod can get this as an input")
        }
        (TextRole::Infrakit, _) => {
            ("be sent to a plugin", "a plugin can only get what is not sensitive; a pod can get this as an input")
        }
        (TextRole::Answer, _) => {
            ("be read beside a response", "an output has a value of the response; hand this on as a public output")
        }
        (TextRole::Manifest, _) => {
            ("stand in a manifest", "refer to its Secret: `${secretRef(…)}` gives `name` and `key`")
        }
        (TextRole::Cluster, _) => ("name a cluster", "write the name, or declare a param for it that is not sensitive"),
        (TextRole::When, _) => ("decide a `when`", "`has(…)` may ask whether it is there"),
        (TextRole::Public, _) => ("be part of a text", "hand it on whole, as an output of its own"),
    };
    let message = format!("`{source}` is sensitive and cannot {place}");
    report.push(report.error_in("sensitive", &found.spot, message).help(help));
}

/// The sensitivity of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sensitivity {
    Open,
    Sensitive,
}

impl Sensitivity {
    pub(super) fn of(sensitive: bool) -> Self {
        if sensitive { Self::Sensitive } else { Self::Open }
    }
}
