//! Documents as they were written. One struct per document is its parser, its JSON Schema and what `compile` reads.
//!
//! [`load`](crate::load) reads them from text, each part with its place. [`compile`](crate::compile) checks their meaning
//! and makes the plan. Signadot's documents are converted into these structs.

mod collection;
mod connection;
mod event_source;
mod param;
mod placed;
mod plugin;
mod sandbox;
mod subscription;
mod template_tree;
mod ttl;
mod unit;
mod version_range;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub use crate::source::{LineColumn, SourceText};
pub use collection::{CollectionDoc, CollectionEntry, CollectionForm, CollectionTarget};
pub(crate) use collection::{ControllerCollection, KeyedResource, ListedResource, PluginCollection, PluginResources};
pub use connection::{
    AuthDoc, BasicAuthDoc, ClientAuthMethod, ClusterSecretDoc, ConnectionDoc, GithubAppDoc, HeaderAuthDoc, OWN_UNITS,
    OauthDoc, SignedAuthDoc, Sigv4Doc,
};
pub(crate) use event_source::SUPPLIED_KEYS;
pub use event_source::{
    ApplyDoc, BasicDoc, DeleteDoc, EventAction, EventRule, ExistsDoc, FetchDoc, HmacDoc, JwsDoc, LimitAction, LimitDoc,
    ReplayDoc, SecretDoc, SourceDoc, SourceTarget, TimestampDoc, VerifyDoc,
};
pub use param::{ParamDoc, ParamKind};
pub use placed::{At, Entries, Named};
pub use plugin::{DefaultsDoc, HookDoc, HookOwner, PluginDoc, PluginProfile, PublicOutputDoc, RunnerDoc};
pub use sandbox::{
    BindDoc, BoundName, BoundObjectDoc, ConsumerDoc, ResourceDoc, ResourceSpec, RouteGroupDoc, SandboxDoc, SandboxKind,
    TtlStart, VariableSpec,
};
pub use subscription::{
    CommentDoc, CommitStatusDoc, DeploymentDoc, PipelineStatusDoc, PostDoc, ReceiverDoc, StandardDoc, SubscriptionDoc,
};
pub use template_tree::TemplateTree;
pub use ttl::{TtlDoc, TtlFrom};
pub use unit::{
    ActionDoc, Cleanup, DescribeDoc, DurationMs, FailureClass, InfrakitDoc, InputDoc, InputSpec, NameList, ObjectDoc,
    OnFailure, OutputDoc, OutputFromDoc, OutputSpec, PodDoc, RepeatDoc, RetryDoc, SecretOutput, UnitDoc, UnitSpec,
    UntilDoc, VerificationAction, VerificationRequest, VerificationSpec, WebhookDoc, WebhookMethod,
};
pub use version_range::{VersionRange, version};

/// Gives a type the JSON Schema of another one, in whose form its values are written.
macro_rules! written_as {
    ($(for<$($parameter:ident)?> $type:ty => $written:ty;)+) => {$(
        impl<$($parameter: schemars::JsonSchema)?> schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                <$written>::inline_schema()
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$written>::schema_name()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                <$written>::schema_id()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$written>::json_schema(generator)
            }
        }
    )+};
}

/// Deserializes enums whose variant is the key under which a value stands. The text is the rest of the error of a struct
/// that has none of the keys, and the help.
macro_rules! alternatives {
    ($($type:ident: $missing:literal;)+) => {$(
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                /// The value of a key.
                struct Given($type);

                impl<'de> serde::Deserialize<'de> for Given {
                    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                        // This is the function that `remote = "Self"` derives.
                        $type::deserialize(deserializer).map(Self)
                    }
                }

                match Option::<Given>::deserialize(deserializer)? {
                    Some(Given(value)) => Ok(value),
                    None => Err(serde::de::Error::invalid_length(0, &$missing)),
                }
            }
        }
    )+};
}

alternatives! {
    ActionDoc: "none of `pod`, `webhook`, `object` and `infrakit`\nadd one of them";
    VerificationAction: "none of `pod`, `webhook` and `object`\nadd a script, a request or objects that show it";
    OutputFromDoc: "none of `file`, `value` and `secret`\nadd `file: /PATH` for a pod, `value: ${…}` for a webhook, object or InfraKit plugin, or `secret: {name: …, key: …}` for an object";
    BoundObjectDoc: "none of `secret` and `configMap`\nadd `secret: {namespace: …, name: …}`, or `configMap` with the same keys";
    EventAction: "none of `apply`, `delete` and `ignore`\nadd one of them";
}

written_as! {
    for<T> At<T> => T;
    for<T> Named<T> => T;
    for<T> Entries<T> => BTreeMap<String, T>;
    for<> TemplateTree => Value;
    for<> NameList => NamesSchema;
    for<> FailureClass => FailureSchema;
}

/// Defines the JSON Schemas of values that can be written in several forms.
macro_rules! forms {
    ($($(#[$doc:meta])? $type:ident = $name:tt: $($form:ident($(#[$rule:meta])? $inner:ty)),+;)+) => {$(
        $(#[$doc])?
        #[derive(JsonSchema)]
        #[schemars(untagged, rename = $name)]
        #[expect(dead_code, reason = "only its schema is used")]
        pub(crate) enum $type {
            $($form($(#[$rule])? $inner)),+
        }
    )+};
}

forms! {
    /// A public output: a template, or one with `show`.
    PublicOutputSchema = "PublicOutput": Text(String), Full(PublicOutputDoc);
    /// A variable of the environment: a template, or one that may be missing.
    VariableSchema = "Variable": Text(String), Full(VariableSpec);
    /// The time after the creation at which a target is deleted, or the lifetime from another start.
    TtlSchema = "Ttl": AfterCreation(DurationMs), Full(TtlDoc);
    /// A manifest, a list of manifests, or what embeds one.
    ManifestSchema = "Manifest":
        Inline(BTreeMap<String, Value>),
        Several(#[schemars(length(min = 1))] Vec<BTreeMap<String, Value>>),
        Embedded(#[schemars(regex(pattern = r"^@\{ *embed *\[ *yaml *\] *:.+\}$"))] String);
    /// The condition of the first object, or a list with one for each object. `null` means the contract of its kind.
    ConditionsSchema = "Conditions": First(String), Each(#[schemars(length(min = 1))] Vec<Option<String>>);
    /// An input: a value, or a value with its destination.
    InputSchema = "Input": Text(String), Number(f64), Boolean(bool), Full(InputSpec);
    FailureSchema = "FailureClass": Name(String), Number(#[schemars(range(min = 1, max = 599))] u16);
    /// One name or several.
    NamesSchema = "NameList": One(String), Several(Vec<String>);
}

/// Defines the types of a `kind` with one value.
macro_rules! kinds {
    ($($type:ident: $kind:ident;)+) => {$(
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
        pub enum $type {
            #[default]
            $kind,
        }
    )+};
}

kinds! {
    CollectionKind: Collection;
    ConnectionKind: Connection;
    PluginKind: Plugin;
    SourceKind: Source;
    SubscriptionKind: Subscription;
}

/// The version of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum ApiVersion {
    #[default]
    #[serde(rename = "ebb.dev/v1")]
    V1,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Signadot's `ResourcePlugin` and `Sandbox`: `name` and `spec` at the top.
    Signadot,
    /// Ours: `apiVersion: ebb.dev/v1`.
    #[default]
    Ebb,
}
