//! The action of a unit: a script, a request, objects, or a resource of an InfraKit plugin.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Template;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(clippy::large_enum_variant, reason = "a plan has at most 1,000 units, and most of them are webhooks")]
pub enum Action {
    Pod(PodAction),
    Webhook(WebhookAction),
    Object(ObjectAction),
    /// Removes the objects of the unit that this one undoes. Only the compiler adds it.
    #[default]
    Removal,
    Infrakit(InfrakitAction),
    /// Destroys the resource of the InfraKit unit that this one undoes. Only the compiler adds it.
    Destroy,
}

impl Action {
    /// Returns true for a request that must not be repeated while its outcome is unknown.
    pub fn is_non_idempotent(&self) -> bool {
        match self {
            Self::Webhook(webhook) => webhook.non_idempotent,
            Self::Infrakit(_) => true,
            Self::Pod(_) | Self::Object(_) | Self::Removal | Self::Destroy => false,
        }
    }

    pub fn can_describe(&self) -> bool {
        self.is_non_idempotent() || matches!(self, Self::Webhook(webhook) if webhook.describe.is_some())
    }

    pub fn webhook(&self) -> Option<&WebhookAction> {
        if let Self::Webhook(webhook) = self { Some(webhook) } else { None }
    }

    pub fn connection(&self) -> Option<&BoundConnection> {
        self.webhook()?.connection.as_ref()
    }

    /// Returns true for a webhook with the method `GET`. Its request removes nothing.
    pub(super) fn is_get(&self) -> bool {
        matches!(self, Self::Webhook(webhook) if webhook.method == "GET")
    }

    /// Returns true for a unit that only the compiler adds. It undoes exactly one setup unit.
    pub fn is_added(&self) -> bool {
        matches!(self, Self::Removal | Self::Destroy)
    }

    /// Returns `pod`, `webhook`, `object`, `removal`, `infrakit` or `destroy`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Pod(_) => "pod",
            Self::Webhook(_) => "webhook",
            Self::Object(_) => "object",
            Self::Removal => "removal",
            Self::Infrakit(_) => "infrakit",
            Self::Destroy => "destroy",
        }
    }

    /// Returns true if a relay executes the action. The relay enforces its timeout and can cancel it at any time.
    pub fn is_relayed(&self) -> bool {
        match self {
            Self::Pod(_) | Self::Object(_) | Self::Removal => true,
            Self::Webhook(_) | Self::Infrakit(_) | Self::Destroy => false,
        }
    }
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodAction {
    pub image: String,
    pub namespace: Option<String>,
    /// A `PodTemplateSpec` as YAML text, which is merged onto the default one.
    pub pod_template: Option<String>,
    /// The unmodified script. Its first line begins with `#!`.
    pub script: String,
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookAction {
    /// The HTTP method. The default is `POST`.
    pub method: String,
    /// The connection that authorizes the request. Absent for a request that Ebb signs for the plugin.
    pub connection: Option<BoundConnection>,
    /// The URL. Its host is literal, and parts of path and query can be templates. With a connection, it is the path
    /// after the origin.
    pub url: Template,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Template>,
    /// The body as a tree whose strings are templates. If absent, the inputs are sent as an object.
    pub body: Option<serde_json::Value>,
    /// The longest time for which the receiver processes a request without a response. The default is the unit's
    /// timeout.
    pub max_processing_time_ms: Option<u64>,
    /// True if the request must not be repeated while its outcome is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub non_idempotent: bool,
    pub describe: Option<DescribePlan>,
    /// A CEL expression over an answer: true, or a reason, if it is a failure. Or [`GRAPHQL`].
    pub failed: Option<String>,
    /// The next page of an answer to a `GET`: a tree of templates that gives a URL, or parameters of the query.
    pub next: Option<serde_json::Value>,
    /// The state for which the unit waits after the response.
    pub until: Option<UntilPlan>,
    /// The condition under which the request is sent again.
    pub repeat: Option<RepeatPlan>,
    /// For a verification: a CEL condition over a response 2xx. True if the thing does not exist.
    pub absent: Option<String>,
}

/// The word in `failed` for the errors of an answer of GraphQL.
pub const GRAPHQL: &str = "graphql";

/// The maximum of the default of `maxProcessingTime` for a webhook with `until`, in milliseconds: 5 minutes.
const MAX_PROCESSING_MS: u64 = 5 * 60 * 1000;

impl WebhookAction {
    /// Returns the longest time for which the receiver processes a request of a unit without a response, in milliseconds.
    /// The timeout of a unit that waits for a state is longer than that of its request.
    pub fn processing_ms(&self, unit_timeout_ms: u64) -> u64 {
        let most = if self.until.is_some() { unit_timeout_ms.min(MAX_PROCESSING_MS) } else { unit_timeout_ms };
        self.max_processing_time_ms.unwrap_or(most)
    }
}

/// A question about the result of a request.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DescribePlan {
    /// The URL, as that of the webhook.
    pub url: Template,
    /// The body of a `POST`, as a tree whose strings are templates. Without one, the question is a `GET`.
    pub body: Option<serde_json::Value>,
    /// A CEL condition over the answer. False means that the request has made nothing.
    pub found: Option<String>,
}

/// Questions that are repeated until a provider reports a state.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UntilPlan {
    /// The URL of the question, as that of the webhook. It may read `response`.
    pub url: Template,
    /// The domain of its host, which may read `response`. The question then has no credential.
    pub within: Option<String>,
    /// The body of a `POST`, as that of [`DescribePlan`]. It may read `response`.
    pub body: Option<serde_json::Value>,
    /// A CEL condition over `poll` and `response`. Absent if only the answer 404 or 410 ends the wait.
    pub ready: Option<String>,
    /// True if the answer 404 or 410 ends the wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// A CEL expression over `poll` and `response`: true, or the reason of a failure.
    pub failed: Option<String>,
    /// The wait before the first question, in milliseconds.
    pub every_ms: u64,
    /// The maximum of every wait, in milliseconds.
    pub max_every_ms: u64,
}

/// A request that is sent again while a condition holds.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RepeatPlan {
    /// A CEL condition over `response`, or over `poll` with a question.
    #[serde(rename = "while")]
    pub condition: String,
    /// The URL of a question before each request, as that of the webhook.
    pub url: Option<Template>,
    /// The wait between two requests, in milliseconds.
    pub every_ms: u64,
    /// The maximum of requests of one attempt.
    pub max: u32,
}

/// A connection with the origin that it had when the plan was made. Its credential is read for each request, and the number of
/// its slots for each dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BoundConnection {
    pub name: String,
    /// Empty until [`connections::bind`](crate::compile::connection::bind).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// True if the connection had `maxConcurrent`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_capped: bool,
}

#[serde_with::skip_serializing_none]
#[serde_with::apply(bool => #[serde(default, skip_serializing_if = "std::ops::Not::not")])]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectAction {
    /// The manifest as a tree whose strings are templates, or a list of manifests. They are applied in this order.
    pub manifest: serde_json::Value,
    pub ready: Option<ManifestConditions>,
    pub fail: Option<ManifestConditions>,
    /// True for an object of `bind`. The strings in its `data` are templates of texts, also in a Secret.
    pub bound: bool,
    /// True if the unit fails as soon as an object cannot become ready, instead of at its timeout.
    pub fail_fast: bool,
}

impl ObjectAction {
    /// Returns the manifests in the order in which they are applied.
    pub fn manifests(&self) -> &[serde_json::Value] {
        self.manifest.as_array().map_or(std::slice::from_ref(&self.manifest), Vec::as_slice)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ManifestConditions {
    /// The condition of the first manifest.
    First(String),
    /// The condition of each manifest. `None` means the contract of its kind.
    Each(Vec<Option<String>>),
}

impl ManifestConditions {
    pub fn of(&self, manifest: usize) -> Option<&str> {
        match self {
            Self::First(text) => Some(text.as_str()).filter(|_| manifest == 0),
            Self::Each(texts) => texts.get(manifest)?.as_deref(),
        }
    }
}

#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InfrakitAction {
    /// The name of the plugin: a Service of the cluster's policy, or a socket of the machine.
    pub plugin: String,
    /// The type of the resource within the plugin: the `TYPE` of `NAME/TYPE`. Empty without one.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub instance_type: String,
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub interface: PluginInterface,
    /// The configuration as a tree whose strings are templates. For a controller, it is the whole `Spec`.
    pub properties: serde_json::Value,
    pub init: Option<Template>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, Template>,
    #[serde(rename = "logicalID", default, skip_serializing_if = "Option::is_none")]
    pub logical_id: Option<Template>,
    /// The `Attachments` of the instance as a tree whose strings are templates.
    pub attachments: Option<serde_json::Value>,
    /// The longest time for which the plugin processes a request to provision without a response, in milliseconds.
    pub max_processing_time_ms: u64,
}

/// The interface of an InfraKit plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PluginInterface {
    /// `Instance/0.6.1`: Validate, Provision, DescribeInstances and Destroy.
    #[default]
    Instance,
    /// `Resource/0.1.1`: Commit, DescribeResources and Destroy of a whole collection.
    Resource,
    /// `Controller/0.1.1`: Plan, Commit and Describe of a whole `Spec`.
    Controller,
}
