//! Units: actions, inputs and outputs.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Unexpected};
use serde_json::Value;

use super::{At, ConditionsSchema, Entries, InputSchema, ManifestSchema, Named, TemplateTree};
use crate::{PluginInterface, durations};

/// A unit with its name, which is unique over all hooks of the plugin.
pub type UnitDoc = Named<UnitSpec>;
/// An input with its name.
pub type InputDoc = Named<InputSpec>;
/// An output with its name.
pub type OutputDoc = Named<OutputSpec>;

/// A unit. It has exactly one of `pod`, `webhook`, `object` and `infrakit`.
#[serde_with::apply(Entries => #[serde(default)])]
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Unit", rename_all = "camelCase", deny_unknown_fields)]
pub struct UnitSpec {
    #[serde(rename = "pod", alias = "webhook", alias = "object", alias = "infrakit")]
    #[schemars(flatten)]
    pub action: ActionDoc,
    /// The cluster of its pod or objects, or the one whose relay sends its webhook: a name, or `${params.NAME}`. The default is
    /// the cluster of the target. Without it, Ebb sends a webhook itself.
    pub cluster: Option<At<String>>,
    /// A CEL expression. If it is false, the unit is skipped.
    pub when: Option<At<String>>,
    /// A CEL expression over `params` that gives a list. There is one unit for each entry, which its texts read as `item`.
    pub for_each: Option<At<String>>,
    /// Units of the same hook that have to succeed first.
    #[serde(default)]
    pub after: NameList,
    /// Units of earlier hooks that this unit reverses. The default is the setup units that it reads.
    pub undoes: Option<NameList>,
    /// Questions by which a webhook waits for a state, after the response to its request.
    pub until: Option<Box<UntilDoc>>,
    /// Sends the request of a webhook again until a condition is false.
    pub repeat: Option<Box<RepeatDoc>>,
    /// How to find out whether what the unit has undone is gone. Only for a unit of preStop or postStop that undoes something.
    pub verify: Option<Box<At<VerificationSpec>>>,
    /// The undo that the unit verifies. Loading sets it for the unit that it makes of `verify`.
    #[serde(skip)]
    pub verifies: Option<At<String>>,
    /// `none` if nothing that the unit makes has to be undone.
    pub cleanup: Option<Cleanup>,
    /// The longest time that one attempt may take.
    pub timeout: Option<DurationMs>,
    /// When and how often the unit is tried again.
    pub retry: Option<RetryDoc>,
    /// `continue` if the run goes on after a failure of the unit, and does not fail because of it. The default is `fail`.
    pub on_failure: Option<At<OnFailure>>,
    /// If `true`, a unit with objects fails as soon as one of them cannot become ready, instead of at its `timeout`.
    pub fail_fast: Option<At<bool>>,
    /// The values that the unit reads, by name.
    #[schemars(with = "std::collections::BTreeMap<String, InputSchema>")]
    pub inputs: Entries<InputSpec>,
    /// The values that the unit makes, by name.
    pub outputs: Entries<OutputSpec>,
}

/// The action of a unit.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub enum ActionDoc {
    /// A script in an image.
    Pod(PodDoc),
    /// A signed HTTP request.
    Webhook(Box<WebhookDoc>),
    /// Kubernetes objects.
    Object(ObjectDoc),
    /// A resource of an InfraKit plugin.
    Infrakit(InfrakitDoc),
}

impl Default for ActionDoc {
    fn default() -> Self {
        Self::Pod(PodDoc::default())
    }
}

/// A script in an image.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Pod", rename_all = "camelCase", deny_unknown_fields)]
pub struct PodDoc {
    /// One of the plugin's `runners`. The default is the runner `default`, or the only one.
    pub runner: Option<At<String>>,
    /// The script. Its first line begins with `#!`. It is never a template.
    pub script: At<String>,
}

/// An HTTP request: to a `url`, signed, or to a `path` of a `connection`, with its credential.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Webhook", rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookDoc {
    /// The URL. Its host is literal, other parts may hold `${…}`.
    pub url: Option<At<String>>,
    /// A connection, instead of `url`. It has the origin and the credential.
    pub connection: Option<At<String>>,
    /// The path and query at the connection. Parts may hold `${…}`.
    pub path: Option<At<String>>,
    /// The default is `POST`.
    #[serde(default)]
    pub method: WebhookMethod,
    /// Headers by name.
    #[serde(default)]
    pub headers: Entries<At<String>>,
    /// The body: JSON, or the format of the `content-type` in `headers`. The default is an object of the inputs.
    pub body: Option<At<TemplateTree>>,
    /// The longest time for which the receiver processes a request without an answer. The default is the `timeout` of
    /// the unit.
    pub max_processing_time: Option<DurationMs>,
    /// If `false`, the request is not sent again while its outcome is unknown. The default is `true`.
    pub idempotent: Option<bool>,
    /// The request that finds out the outcome of a request with an unknown outcome. It needs a `maxProcessingTime` below the
    /// `timeout`.
    pub describe: Option<DescribeDoc>,
    /// A CEL expression over `response` that tells whether an answer is a failure, also one with the status 200: `true`, a text
    /// that is not empty, or an object with `message`, `status`, `code` and `retryAfter`. `graphql` stands for the errors of
    /// GraphQL.
    pub failed: Option<At<String>>,
    /// The next page of an answer to a `GET`, over `response`: a URL at the same origin, or the parameters of its query.
    pub next: Option<At<TemplateTree>>,
    /// The condition of a verification, see [`VerificationRequest`].
    #[serde(skip)]
    pub absent: Option<At<String>>,
}

/// A script, a request or objects that show whether an undone thing is gone. It has exactly one of `pod`, `webhook` and
/// `object`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Verification", rename_all = "camelCase", deny_unknown_fields)]
pub struct VerificationSpec {
    #[serde(rename = "pod", alias = "webhook", alias = "object")]
    #[schemars(flatten)]
    pub action: VerificationAction,
    /// A CEL expression. If it is false, nothing is verified. The default is that of the undo.
    pub when: Option<At<String>>,
    /// The longest time that one attempt may take.
    pub timeout: Option<DurationMs>,
    /// When and how often it is tried again.
    pub retry: Option<RetryDoc>,
    /// The values that it reads, by name.
    #[serde(default)]
    #[schemars(with = "std::collections::BTreeMap<String, InputSchema>")]
    pub inputs: Entries<InputSpec>,
}

/// The action of a verification.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub enum VerificationAction {
    /// A script that succeeds if the thing is gone.
    Pod(PodDoc),
    /// A request. 404 and 410 mean that the thing is gone.
    Webhook(VerificationRequest),
    /// Kubernetes objects that are ready if the thing is gone. They are deleted afterwards.
    Object(ObjectDoc),
}

/// A request of a verification: to a `url`, signed, or to a `path` of a `connection`, with its credential.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "VerificationRequest", rename_all = "camelCase", deny_unknown_fields)]
pub struct VerificationRequest {
    /// The URL. Its host is literal, other parts may hold `${…}`.
    pub url: Option<At<String>>,
    /// A connection, instead of `url`. It has the origin and the credential.
    pub connection: Option<At<String>>,
    /// The path and query at the connection. Parts may hold `${…}`.
    pub path: Option<At<String>>,
    /// The default is `GET`.
    pub method: Option<WebhookMethod>,
    /// Headers by name.
    #[serde(default)]
    pub headers: Entries<At<String>>,
    /// The body: JSON, or the format of the `content-type` in `headers`. The default is an object of the inputs.
    pub body: Option<At<TemplateTree>>,
    /// A CEL expression over `response` that is true when the thing is gone. Without it, a response 2xx means that the
    /// thing exists.
    pub absent: Option<At<String>>,
    /// As in a webhook.
    pub failed: Option<At<String>>,
    /// As in a webhook.
    pub next: Option<At<TemplateTree>>,
}

impl VerificationSpec {
    /// Returns the unit `name` that verifies `undo`. It runs after the undo, in the same cluster.
    pub(crate) fn unit(&self, name: At<String>, undo: &UnitDoc) -> UnitDoc {
        let (action, cluster) = match &self.action {
            VerificationAction::Pod(pod) => (ActionDoc::Pod(pod.clone()), undo.cluster.clone()),
            VerificationAction::Webhook(request) => {
                let VerificationRequest { url, connection, path, method, headers, body, absent, failed, next } =
                    request.clone();
                let method = method.unwrap_or(WebhookMethod::Get);
                let is_beside = connection.is_none() && matches!(undo.action, ActionDoc::Webhook(_));
                let of_webhook = WebhookDoc { url, connection, path, method, headers, ..WebhookDoc::default() };
                let webhook = WebhookDoc { body, absent, failed, next, ..of_webhook };
                (ActionDoc::Webhook(Box::new(webhook)), undo.cluster.clone().filter(|_| is_beside))
            }
            VerificationAction::Object(object) => (ActionDoc::Object(object.clone()), undo.cluster.clone()),
        };
        let undone = At { value: undo.name.value.clone(), at: name.at };
        let inner = UnitSpec {
            action,
            cluster,
            when: self.when.clone().or_else(|| undo.when.clone()),
            after: NameList(vec![undone.clone()]),
            verifies: Some(undone),
            timeout: self.timeout,
            retry: self.retry.clone(),
            inputs: self.inputs.clone(),
            ..UnitSpec::default()
        };
        Named { name, inner }
    }
}

/// The method of a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename = "Method", rename_all = "UPPERCASE")]
pub enum WebhookMethod {
    #[default]
    Post,
    Put,
    Patch,
    Delete,
    Get,
}

impl WebhookMethod {
    /// Returns the method as HTTP names it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Get => "GET",
        }
    }
}

/// A request, authorized like the webhook: 2xx with the outputs if the thing exists, 404 if it does not. With a `body` it is a
/// `POST`, otherwise a `GET`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Describe", deny_unknown_fields)]
pub struct DescribeDoc {
    /// The URL. Its host is literal, other parts may hold `${…}`.
    pub url: Option<At<String>>,
    /// The path and query at the connection of the webhook. Parts may hold `${…}`.
    pub path: Option<At<String>>,
    /// The body, such as a query of GraphQL.
    pub body: Option<At<TemplateTree>>,
    /// A CEL expression over `response`, for the answer of an API that only lists things. If it is false, the thing does
    /// not exist.
    pub found: Option<At<String>>,
}

/// Requests, authorized like the webhook, that are repeated until the provider reports a state. With a `body` they are `POST`,
/// otherwise `GET`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Until", rename_all = "camelCase", deny_unknown_fields)]
pub struct UntilDoc {
    /// The URL. Its host is literal, other parts may hold `${…}`, also of `response`.
    pub url: Option<At<String>>,
    /// The path and query at the connection of the webhook. Parts may hold `${…}`, also of `response`.
    pub path: Option<At<String>>,
    /// The domain that holds the host of `url`, such as `db.example.org`. The host may then hold `${…}` of `response`, and the
    /// question has no credential. Only for a unit that undoes nothing.
    pub within: Option<At<String>>,
    /// The body, such as a query of GraphQL. Parts may hold `${…}`, also of `response`.
    pub body: Option<At<TemplateTree>>,
    /// A CEL expression over `poll`, the answer with `status`, `headers` and `body`, and over `response`. The wait ends when
    /// it is true.
    pub ready: Option<At<String>>,
    /// A CEL expression over `poll` and `response`. The unit fails if it is true, or a text that is not empty, which is the
    /// reason.
    pub failed: Option<At<String>>,
    /// In an undo: the wait ends also when the answer is 404 or 410.
    pub gone: Option<bool>,
    /// The wait before the first question. It doubles with each question. The default is 2 s.
    pub every: Option<At<DurationMs>>,
    /// The bound of every wait. The default is 1 m.
    pub max_every: Option<At<DurationMs>>,
}

/// A request that is sent again until a condition is false, such as one for each page of a list.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Repeat", rename_all = "camelCase", deny_unknown_fields)]
pub struct RepeatDoc {
    /// A CEL expression over `response`, the answer to the request, or with `url` or `path` over `poll`. The unit ends when it
    /// is false.
    #[serde(rename = "while")]
    pub condition: At<String>,
    /// The URL of a `GET` before each request. URL, headers and body of the request may read its answer `poll`.
    pub url: Option<At<String>>,
    /// The same at the connection of the webhook.
    pub path: Option<At<String>>,
    /// The wait between two requests. The default is 1 s.
    pub every: Option<At<DurationMs>>,
    /// The maximum of requests of one attempt. The default is 100.
    #[schemars(range(min = 2, max = 10000))]
    pub max: Option<At<u32>>,
}

/// Kubernetes objects.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Object", deny_unknown_fields)]
pub struct ObjectDoc {
    /// A manifest whose texts may hold `${…}`, or a list of manifests, which are applied in their order.
    #[schemars(with = "ManifestSchema")]
    pub manifest: At<TemplateTree>,
    /// A CEL expression over `object`, the first one, that is true when it is ready. A list has one for each object.
    #[schemars(with = "Option<ConditionsSchema>")]
    pub ready: Option<At<TemplateTree>>,
    /// A CEL expression over `object`, the first one, that is true when it has failed. A list has one for each object.
    #[schemars(with = "Option<ConditionsSchema>")]
    pub fail: Option<At<TemplateTree>>,
    /// The `data` of an object of `bind`.
    #[serde(skip)]
    pub data: Option<At<TemplateTree>>,
}

/// A resource of an InfraKit plugin. Only preStart and postStart have such units. Ebb destroys the resource in postStop.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Infrakit", rename_all = "camelCase", deny_unknown_fields)]
pub struct InfrakitDoc {
    /// `NAME` or `NAME/TYPE`. `NAME` is a Service that the policy of the cluster allows, or a socket of the machine.
    pub plugin: At<String>,
    /// The default is `instance`.
    #[serde(default)]
    pub interface: PluginInterface,
    /// The configuration of the resource. Its texts may hold `${…}`. For `controller`, it is the `Spec` with `kind`,
    /// `metadata`, `properties` and `options`.
    pub properties: Option<At<TemplateTree>>,
    /// The boot script of the instance. It may hold `${…}`.
    pub init: Option<At<String>>,
    /// Tags of the instance. Their values may hold `${…}`.
    #[serde(default)]
    pub tags: Entries<At<String>>,
    /// The logical ID of the instance. It may hold `${…}`.
    #[serde(rename = "logicalID")]
    pub logical_id: Option<At<String>>,
    /// Things that are attached to the instance, each with `ID` and `Type`. Their texts may hold `${…}`.
    #[schemars(with = "Option<Vec<std::collections::BTreeMap<String, Value>>>")]
    pub attachments: Option<At<TemplateTree>>,
    /// The longest time for which the plugin processes a request without an answer. The default is 60 s, or half of
    /// the `timeout` if that is less.
    pub max_processing_time: Option<DurationMs>,
}

/// An input with its destination: a variable, a file, or both. The default is the variable of its name.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "FullInput", deny_unknown_fields)]
pub struct InputSpec {
    /// The value. Its texts may hold `${…}`.
    pub value: At<TemplateTree>,
    /// The environment variable.
    pub env: Option<At<String>>,
    /// The absolute path of the file.
    pub path: Option<At<String>>,
    /// If true, a missing value leaves the input unset (Signadot's `valueFromSandbox`).
    #[serde(skip)]
    pub optional: bool,
}

/// An output. It has exactly one of `file`, `value` and `secret`.
#[serde_with::apply(bool => #[serde(default)])]
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Output", deny_unknown_fields)]
pub struct OutputSpec {
    #[serde(rename = "file", alias = "value", alias = "secret")]
    #[schemars(flatten)]
    pub from: OutputFromDoc,
    /// If `true`, the value stays in the cluster, or is stored encrypted if a webhook or InfraKit plugin made it. The
    /// default is `true` for a `secret` and `false` otherwise.
    pub sensitive: Option<bool>,
    /// If `true`, a `value` may be `null` or missing.
    pub optional: bool,
    /// If `true`, the `file` has JSON, and the output is its value.
    pub json: bool,
    /// If `true`, white space at both ends of the `file` is removed.
    pub trim: bool,
    /// Free text.
    pub description: Option<String>,
}

impl OutputSpec {
    pub(crate) fn of(from: OutputFromDoc) -> Self {
        Self { from, sensitive: None, optional: false, json: false, trim: false, description: None }
    }

    /// Returns true if the value is sensitive.
    pub fn is_sensitive(&self) -> bool {
        self.sensitive.unwrap_or(matches!(self.from, OutputFromDoc::Secret(_)))
    }
}

/// The source of an output.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub enum OutputFromDoc {
    /// An absolute path in the pod. The bytes of the file are taken as they are.
    File(At<String>),
    /// A CEL expression over `response` of a webhook, over `object`, the first one, and `objects`, or over `instance` of
    /// an InfraKit plugin.
    Value(At<String>),
    /// A key of a Secret in the namespace of the first object.
    Secret(SecretOutput),
}

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretOutput {
    /// The name of the Secret, or `${…}` over `object` and `objects` that returns it.
    pub name: At<String>,
    /// The key in it.
    pub key: At<String>,
}

/// When and how often a unit is tried again.
#[serde_with::apply(Vec => #[serde(default)])]
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Retry", rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryDoc {
    /// Attempts in all.
    #[schemars(range(min = 1, max = 100))]
    pub attempts: Option<At<u32>>,
    /// The bound of the first wait. It doubles with each attempt.
    pub backoff: Option<At<DurationMs>>,
    /// The bound of every wait.
    pub max_backoff: Option<At<DurationMs>>,
    /// The failures that are tried again: `timeout`, `5xx`, `4xx`, `connect`, `exit`, `lost`, `failed`, `imagePull`,
    /// `unschedulable`, `evicted`, `quota`, `outOfMemory`, the exit code of a script, or an HTTP status from 400.
    pub on: Vec<At<FailureClass>>,
    /// The failures that are never tried again, as in `on`.
    pub never: Vec<At<FailureClass>>,
}

impl RetryDoc {
    /// Returns its own parts, and those of `defaults` that it does not set.
    pub(crate) fn or(self, defaults: &Self) -> Self {
        Self {
            attempts: self.attempts.or(defaults.attempts.clone()),
            backoff: self.backoff.or(defaults.backoff.clone()),
            max_backoff: self.max_backoff.or(defaults.max_backoff.clone()),
            on: if self.on.is_empty() { defaults.on.clone() } else { self.on },
            never: if self.never.is_empty() { defaults.never.clone() } else { self.never },
        }
    }
}

/// A failure that `retry` names. An exit code and a status may be written as a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureClass(pub String);

impl<'de> Deserialize<'de> for FailureClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            Value::Number(number) => Ok(Self(number.to_string())),
            _ => Err(D::Error::invalid_type(Unexpected::Other("no text"), &"a failure class")),
        }
    }
}

/// A number with its unit: `500ms`, `5s`, `5m`, `2h`, `1d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(rename = "Duration")]
pub struct DurationMs(#[schemars(with = "String", regex(pattern = r"^([0-9]+(ms|s|m|h|d)|.*@\{.+\}.*)$"))] pub u64);

impl<'de> Deserialize<'de> for DurationMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let help = "a number with its unit: 500ms, 5s, 5m, 2h or 1d";
        durations::deserialize(deserializer, &durations::UNITS, help).map(Self)
    }
}

/// The names of units, written as one name or as a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NameList(pub Vec<At<String>>);

impl<'de> Deserialize<'de> for NameList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let At { at, value } = At::<TemplateTree>::deserialize(deserializer)?;
        let written = match value {
            TemplateTree::List(items) => items,
            value => vec![At { at, value }],
        };
        let name = |item: At<TemplateTree>| match item.value {
            TemplateTree::Text(value) => Ok(At { at: item.at, value }),
            _ => Err(D::Error::invalid_type(Unexpected::Other("no text"), &"a name or a list of names")),
        };
        written.into_iter().map(name).collect::<Result<_, _>>().map(Self)
    }
}

/// What the failure of a unit does to its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnFailure {
    Fail,
    Continue,
}

/// `none`: nothing that the unit makes has to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Cleanup {
    None,
}
