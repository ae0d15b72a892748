//! `kind: Plugin`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_engine::{EventName, Hook};
use schemars::JsonSchema;
use semver::Version;
use serde::Deserialize;

use super::{
    ApiVersion, At, Dialect, DurationMs, Entries, Named, ParamDoc, PluginKind, PublicOutputSchema, RetryDoc,
    SourceText, UnitSpec,
};
use crate::cel::Scope;
use crate::plan::{PLUGIN_UPDATE, RequiredEvidence};

/// A plugin: a versioned, immutable definition of units.
#[serde_with::apply(Entries => #[serde(default)])]
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Plugin", rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginDoc {
    pub api_version: ApiVersion,
    pub kind: PluginKind,
    /// `name` or `name@1.2.3`. A plugin without a version is published as `0.0.0`.
    pub name: At<String>,
    /// Free text.
    pub description: Option<String>,
    /// `resource` if the plugin creates something before or after the target is ready, and undoes all of it.
    pub profile: Option<At<PluginProfile>>,
    /// The least evidence that the undos have to give: `reported` or `confirmed`. With less, the teardown is stuck. By
    /// default, none is required.
    pub evidence: Option<At<RequiredEvidence>>,
    /// If `true`, its resources are neither replaced nor removed until an update of the target sets `protect: false`.
    #[serde(default)]
    pub protect: bool,
    /// The attempts of its units that run at once, over all targets. By default, there is no limit.
    #[schemars(range(min = 1, max = 1000))]
    pub max_concurrent: Option<At<u32>>,
    /// The values that a sandbox sets, by name.
    pub params: Entries<ParamDoc>,
    /// Images and pod templates for scripts, by name.
    pub runners: Entries<RunnerDoc>,
    /// `timeout` and `retry` of units that set none.
    #[serde(default)]
    pub defaults: DefaultsDoc,
    /// Units that run before the target is ready; it waits for them.
    pub pre_start: Option<HookDoc>,
    /// Units that run after the target is ready.
    pub post_start: Option<HookDoc>,
    /// Units that run when a resource of the plugin changes in a living target. Without them, the resource is replaced.
    pub update: Option<HookDoc>,
    /// Units that run before the target stops, while it is still there.
    pub pre_stop: Option<HookDoc>,
    /// Units that run after the target stopped; its removal waits for them.
    pub post_stop: Option<HookDoc>,
    /// Units that run when the platform sends an event, by the name of the event.
    pub hooks: Entries<Entries<UnitSpec>>,
    /// Units that list what the plugin has made, for `ebb inventory`. One has the output `things`, a list of texts: for each
    /// thing its name or tag, which contains the key.
    pub inventory: Option<HookDoc>,
    /// The values that a sandbox reads, by name: templates such as `${units.database.outputs.dsn}`.
    #[schemars(with = "BTreeMap<String, PublicOutputSchema>")]
    pub outputs: Entries<PublicOutputDoc>,
    /// The version in `name`.
    #[serde(skip)]
    pub version: Option<Version>,
    #[serde(skip)]
    pub owner: HookOwner,
    /// The units of `inventory`, as the setup of a plugin. Loading moves them here.
    #[serde(skip)]
    pub lister: Option<Box<PluginDoc>>,
    #[serde(skip)]
    pub dialect: Dialect,
    #[serde(skip)]
    pub source: Arc<SourceText>,
    /// The document as YAML with all `@{…}` expanded. It is stored and digested, and loads to the same document.
    #[serde(skip)]
    pub expanded: String,
}

/// A public output.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "FullPublicOutput", deny_unknown_fields)]
pub struct PublicOutputDoc {
    /// The value: a template.
    pub value: At<String>,
    /// What people see of the value beside its name.
    pub show: Option<At<OutputPresentation>>,
}

/// What people see of a public output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OutputPresentation {
    /// The value is an `http` or `https` URL. Commit statuses and deployments link to the first one of a target.
    Link,
}

/// A rule for the hooks of a plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PluginProfile {
    #[default]
    Resource,
}

/// The document that has the hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookOwner {
    #[default]
    Plugin,
    /// The document of a target. The hooks are its own hooks, and the plugin is a form of them that is never shown.
    Target,
    /// The `inventory` of a plugin.
    Inventory,
}

impl HookOwner {
    /// The first part of the keys of own units, in the place of the name of a resource.
    pub const TARGET: &str = "target";
    /// The same for the units of `bind`.
    pub const BIND: &str = "bind";

    /// Returns the names that the units can use.
    pub(crate) fn scope(self) -> Scope {
        match self {
            Self::Plugin | Self::Inventory => Scope::Plugin,
            Self::Target => Scope::Own,
        }
    }
}

/// The units of a hook, by name.
pub type HookDoc = Named<Entries<UnitSpec>>;

impl PluginDoc {
    /// The kind of the targets whose resources run the `inventory` of their plugins, and nothing else.
    pub const INVENTORY: &str = "inventory";
    /// The output of `inventory`, and the public output of such a resource.
    pub const THINGS: &str = "things";

    /// Returns a plugin of Signadot whose document opens all outputs.
    #[must_use]
    pub fn with_open_outputs(&self) -> Self {
        let mut plugin = self.clone();
        let hooks = [&mut plugin.pre_start, &mut plugin.post_stop].into_iter().flatten();
        for output in hooks.flat_map(|hook| hook.iter_mut()).flat_map(|unit| unit.outputs.iter_mut()) {
            output.sensitive = Some(false);
        }
        plugin
    }

    /// Returns the hooks that the document has, in the order in which they run.
    pub fn hooks(&self) -> impl Iterator<Item = (Hook, &HookDoc)> {
        let hooks = [
            (Hook::PreStart, &self.pre_start),
            (Hook::PostStart, &self.post_start),
            (PLUGIN_UPDATE, &self.update),
            (Hook::PreStop, &self.pre_stop),
            (Hook::PostStop, &self.post_stop),
        ];
        let lifecycle = hooks.into_iter().filter_map(|(hook, units)| Some((hook, units.as_ref()?)));
        // Loading has rejected other names.
        let events = self.hooks.iter().filter_map(|event| Some((EventName::new(&event.name.value)?, event)));
        let mut all: Vec<_> = lifecycle.chain(events.map(|(name, event)| (Hook::Event(name), event))).collect();
        all.sort_by_key(|(hook, _)| *hook);
        all.into_iter()
    }

    /// Gives each unit the `defaults` that it does not set itself.
    pub(crate) fn apply_defaults(&mut self) {
        let hooks =
            [&mut self.pre_start, &mut self.post_start, &mut self.update, &mut self.pre_stop, &mut self.post_stop];
        let hooks = hooks.into_iter().flatten().chain(self.hooks.iter_mut());
        for unit in hooks.flat_map(|hook| hook.iter_mut()) {
            unit.timeout = unit.timeout.or(self.defaults.timeout);
            unit.retry = match (unit.retry.take(), &self.defaults.retry) {
                (Some(own), Some(defaults)) => Some(own.or(defaults)),
                (own, defaults) => own.or_else(|| defaults.clone()),
            };
        }
    }
}

/// An image and a pod template for scripts.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Runner", rename_all = "camelCase", deny_unknown_fields)]
pub struct RunnerDoc {
    /// The image of the container `main`.
    pub image: At<String>,
    /// The namespace of the pods.
    pub namespace: Option<At<String>>,
    /// A Kubernetes PodTemplateSpec as YAML text. It is merged onto the default pod.
    pub pod_template: Option<At<String>>,
}

/// `timeout` and `retry` of units that set none.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename = "Defaults", deny_unknown_fields)]
pub struct DefaultsDoc {
    pub timeout: Option<DurationMs>,
    pub retry: Option<RetryDoc>,
}
