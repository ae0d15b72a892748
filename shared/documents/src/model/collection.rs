//! Collections of InfraKit's resources.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};
use serde_json::Value;

use super::{ApiVersion, At, CollectionKind, Entries, Named, TemplateTree, TtlDoc, TtlSchema};

/// Named resources of InfraKit's plugins with dependencies. The texts hold references such as `@depend('A/ID')@`; they
/// are not templates of Ebb.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectionDoc {
    /// The ID of the collection, with its place.
    pub id: At<String>,
    pub form: CollectionForm,
    /// The resources in the order of the document. Names may be repeated.
    pub resources: Vec<Named<CollectionEntry>>,
    /// The collection as YAML. Its digest identifies it.
    pub text: String,
}

/// The form in which InfraKit wrote a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollectionForm {
    /// `Resources` of InfraKit's resource plugin: a mapping, or a list of resources with `ID`.
    #[default]
    Plugin,
    /// `properties` of InfraKit's resource controller, or Ebb's `kind: Collection`.
    Controller,
}

/// A resource of a collection in the form of InfraKit's resource controller.
#[serde_with::apply(Entries => #[serde(default)])]
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CollectionResource")]
pub struct CollectionEntry {
    /// `NAME` or `NAME/TYPE`.
    pub plugin: At<String>,
    /// Tags that the resource gets.
    pub select: Entries<At<String>>,
    /// The older name of `select`.
    pub labels: Entries<At<String>>,
    /// The configuration of the resource. Its texts may hold references.
    #[serde(rename = "Properties")]
    pub properties: Option<At<TemplateTree>>,
    /// The boot script. It may hold references.
    pub init: Option<At<String>>,
    /// Tags that the resource gets. They may hold references.
    pub tags: Entries<At<String>>,
    /// The logical ID of the instance.
    #[serde(rename = "LogicalID")]
    pub logical_id: Option<At<String>>,
    /// Things that are attached to the instance, each with `ID` and `Type`.
    #[serde(rename = "Attachments")]
    #[schemars(with = "Option<Vec<BTreeMap<String, Value>>>")]
    pub attachments: Option<At<TemplateTree>>,
    /// Ignored: Ebb observes a resource when it makes or destroys it.
    #[serde(rename = "ObserveInterval")]
    #[schemars(with = "Option<String>")]
    pub observe_interval: Option<At<Value>>,
    /// Ignored: Ebb finds a resource by its tags.
    #[serde(rename = "KeySelector")]
    #[schemars(with = "Option<String>")]
    pub key_selector: Option<At<Value>>,
    /// Ignored.
    #[serde(rename = "CacheDescribeInstances")]
    #[schemars(with = "Option<bool>")]
    pub cache_describe_instances: Option<At<Value>>,
}

/// A sandbox that consists of one collection of InfraKit's resources.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Collection", rename_all = "camelCase", deny_unknown_fields)]
pub struct CollectionTarget {
    pub api_version: ApiVersion,
    pub kind: CollectionKind,
    /// The name of the target and of the collection.
    pub name: At<String>,
    /// Free text.
    pub description: Option<String>,
    /// The cluster of the plugins.
    pub cluster: Option<String>,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The time after which it is deleted.
    #[schemars(with = "Option<TtlSchema>")]
    pub ttl: Option<TtlDoc>,
    /// The resources by name.
    pub resources: Entries<CollectionEntry>,
}

/// Accepts any value. The loader reads the collection itself, because its form depends on its keys.
pub(super) fn any_form<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<CollectionDoc>>, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| Some(Box::default()))
}

/// A collection in any of InfraKit's forms.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "InfrakitCollection")]
#[expect(dead_code, clippy::large_enum_variant, reason = "only its schema is used")]
pub(super) enum CollectionSchema {
    Controller(ControllerCollection),
    Keyed(PluginCollection<Entries<KeyedResource>>),
    Listed(PluginCollection<Vec<ListedResource>>),
    Bare(PluginResources<Entries<KeyedResource>>),
}

/// The document of InfraKit's resource controller.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[expect(dead_code, reason = "some keys have no effect, and are known")]
pub(crate) struct ControllerCollection {
    kind: ControllerKind,
    version: Option<Value>,
    pub(crate) metadata: CollectionMetadata,
    /// Ignored: the options of InfraKit's controller.
    pub(crate) options: Option<At<Value>>,
    /// The resources by name.
    pub(crate) properties: Entries<CollectionEntry>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum ControllerKind {
    Resource,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
#[expect(dead_code, reason = "some keys have no effect, and are known")]
pub(crate) struct CollectionMetadata {
    id: Option<Value>,
    /// The name of the collection.
    pub(crate) name: At<String>,
    tags: Option<Value>,
}

/// The document of InfraKit's resource plugin. `R` is a mapping or a list of resources.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct PluginCollection<R> {
    /// The ID of the collection.
    #[serde(rename = "ID")]
    pub(crate) id: At<String>,
    #[serde(rename = "Properties")]
    pub(crate) properties: PluginResources<R>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct PluginResources<R> {
    #[serde(rename = "Resources")]
    pub(crate) resources: Option<R>,
}

/// A resource of a mapping.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct KeyedResource {
    /// `NAME` or `NAME/TYPE`.
    #[serde(rename = "Plugin")]
    pub(crate) plugin: At<String>,
    /// The type of the resource within the plugin.
    #[serde(rename = "Type")]
    pub(crate) instance_type: Option<At<String>>,
    #[serde(rename = "Properties")]
    pub(crate) properties: Option<At<TemplateTree>>,
}

/// A resource of a list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct ListedResource {
    #[serde(rename = "ID")]
    pub(crate) id: At<String>,
    /// `NAME` or `NAME/TYPE`.
    #[serde(rename = "Plugin")]
    pub(crate) plugin: At<String>,
    #[serde(rename = "Properties")]
    pub(crate) properties: At<TemplateTree>,
}
