//! Documents as they were written. One struct per document is its parser, its JSON Schema and what `compile` reads.
//!
//! [`load`](crate::load) reads them from text, each part with its place. [`compile`](crate::compile) checks their meaning
//! and makes the plan. Signadot's documents are converted into these structs.

mod collection;
mod connection;
mod event_source;
mod param;
mod plugin;
mod sandbox;
mod subscription;
mod template_tree;
mod unit;
mod version_range;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

pub use crate::source::{LineColumn, SourceText};
pub use collection::{CollectionDoc, CollectionEntry, CollectionForm, CollectionTarget};
pub(crate) use collection::{ControllerCollection, KeyedResource, ListedResource, PluginCollection, PluginResources};
pub use connection::{AuthChoice, AuthDoc, BasicAuthDoc, ConnectionDoc, HeaderAuthDoc, OWN_UNITS};
pub(crate) use event_source::SUPPLIED_KEYS;
pub use event_source::{
    ApplyDoc, BasicDoc, DeleteDoc, EventAction, EventRule, FetchDoc, HmacDoc, SecretDoc, SourceDoc, SourceTarget,
    VerifyChoice, VerifyDoc,
};
pub use param::{ParamDoc, ParamKind};
pub use plugin::{DefaultsDoc, HookDoc, HookOwner, PluginDoc, PluginProfile, RunnerDoc};
pub use sandbox::{
    BindDoc, BoundName, BoundObjectDoc, ConsumerDoc, ResourceDoc, ResourceSpec, RouteGroupDoc, SandboxDoc, SandboxKind,
    TtlStart, VariableSpec,
};
pub use subscription::{
    CommentDoc, CommitStatusDoc, PostDoc, ReceiverChoice, ReceiverDoc, StandardDoc, SubscriptionDoc,
};
pub use template_tree::TemplateTree;
pub use unit::{
    ActionDoc, Cleanup, DescribeDoc, DurationMs, FailureClass, InfrakitDoc, InputDoc, InputSpec, NameList, ObjectDoc,
    OutputDoc, OutputFromDoc, OutputSpec, PodDoc, RetryDoc, SecretOutput, UnitDoc, UnitSpec, UntilDoc,
    VerificationAction, VerificationRequest, VerificationSpec, WebhookDoc, WebhookMethod,
};
pub use version_range::{InvalidRange, VersionRange, version};

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

pub(crate) use alternatives;

alternatives! {
    ActionDoc: "none of `pod`, `webhook`, `object` and `infrakit`\nadd one of them";
    VerificationAction: "none of `pod`, `webhook` and `object`\nadd a script, a request or objects that show it";
    OutputFromDoc: "none of `file`, `value` and `secret`\nadd `file: /PATH` for a pod, `value: ${…}` for a webhook, object or InfraKit plugin, or `secret: {name: …, key: …}` for an object";
    BoundObjectDoc: "none of `secret` and `configMap`\nadd `secret: {namespace: …, name: …}`, or `configMap` with the same keys";
    EventAction: "none of `apply`, `delete` and `ignore`\nadd one of them";
    VerifyDoc: "none of `github`, `gitlab`, `gitea`, `vercel`, `standard`, `hmac`, `e2b`, `bearer`, `basic` and `url`\nadd one of them, such as `standard: {secret: NAME}`";
    AuthDoc: "none of `bearer`, `basic`, `header` and `signed`\nadd one of them, such as `bearer: {secret: NAME}`";
    ReceiverDoc: "none of `standard`, `webhook`, `slack`, `github` and `comment`\nadd one of them, such as `slack: {secret: NAME}`";
}

written_as! {
    for<T> At<T> => T;
    for<T> Named<T> => T;
    for<T> Entries<T> => BTreeMap<String, T>;
    for<> TemplateTree => serde_json::Value;
    for<> NameList => unit::NamesSchema;
    for<> FailureClass => unit::FailureSchema;
}

/// A value with its place. The reader of documents supplies the place.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct At<T> {
    pub at: LineColumn,
    pub value: T,
}

/// A value with the key under which it stands. The reader of documents supplies the key.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Named<T> {
    pub name: At<String>,
    pub inner: T,
}

impl<T> Deref for Named<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Named<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// The entries of a mapping in the order of the document.
#[derive(Clone, Debug, PartialEq)]
pub struct Entries<T>(pub Vec<Named<T>>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for Entries<T> {
    type Target = Vec<Named<T>>;

    fn deref(&self) -> &Vec<Named<T>> {
        &self.0
    }
}

impl<T> DerefMut for Entries<T> {
    fn deref_mut(&mut self) -> &mut Vec<Named<T>> {
        &mut self.0
    }
}

impl<'a, T> IntoIterator for &'a Entries<T> {
    type Item = &'a Named<T>;
    type IntoIter = std::slice::Iter<'a, Named<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// The maximum number of entries of a mapping.
const MAX_ENTRIES: usize = 10_000;

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let count = map.size_hint().unwrap_or(0);
                if count > MAX_ENTRIES {
                    return Err(A::Error::custom(format_args!("has {count} entries; the limit is {MAX_ENTRIES}")));
                }
                // The largest entries have 2 KiB: a vector that grows would have up to twice as many of them.
                let mut entries = Vec::with_capacity(count);
                while map.next_key::<IgnoredAny>()?.is_some() {
                    // The reader has reported an entry that is wrong; the others are still read.
                    entries.extend(map.next_value());
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
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

/// The format of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Signadot's `ResourcePlugin` and `Sandbox`: `name` and `spec` at the top.
    Signadot,
    /// Ours: `apiVersion: ebb.dev/v1`.
    #[default]
    Ebb,
}
