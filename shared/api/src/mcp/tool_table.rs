//! The table of tools: names, purposes, effects, arguments and handlers. The purpose also documents the handler.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rmcp::handler::server::common::schema_for_input;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::mcp::change_tools::{DeleteTarget, UpgradePlugin};
use crate::mcp::docs_search::SearchDocs;
use crate::mcp::document_tools::{ApplyDocument, GetPlugin, ListClusters, ListPlugins, PlanDocument, ValidatePlugin};
use crate::mcp::target_tools::{
    GetTarget, History, ListTargets, Logs, RetryArguments, StuckAndWaiting, TargetArguments, WhatExists,
};
use crate::mcp::{Answer, ApiCalls, ToolError, arguments, change_tools, docs_search, document_tools, target_tools};

use ToolEffect::{Destroys, Reads};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolEffect {
    Reads,
    /// Changes or removes resources.
    Destroys {
        /// True if a repetition changes nothing more.
        idempotent: bool,
        /// The scopes that permit it, each with its limited forms. One is enough.
        scopes: &'static [&'static str],
    },
}

impl ToolEffect {
    /// Returns true if a caller with these scopes may have the effect, on all targets and plugins or on some.
    pub(crate) fn is_permitted(self, scopes: &[String]) -> bool {
        let Destroys { scopes: needed, .. } = self else { return true };
        let permits = |scope: &String| scope == "operate" || needed.iter().any(|needed| scope.starts_with(needed));
        scopes.iter().any(permits)
    }
}

const TARGETS: &[&str] = &["targets:write"];
const TARGETS_OR_PLUGINS: &[&str] = &["targets:write", "plugins:write"];

pub(crate) struct ToolSpec {
    pub(crate) name: &'static str,
    /// The purpose, for the model that selects a tool.
    about: &'static str,
    pub(crate) effect: ToolEffect,
    schema: fn() -> Result<Arc<JsonObject>, String>,
    pub(crate) run: for<'a> fn(&'a ApiCalls, JsonObject) -> BoxFuture<'a, Result<Answer, ToolError>>,
}

impl ToolSpec {
    /// Returns the description for clients.
    pub(crate) fn tool(&self) -> Tool {
        let schema = (self.schema)().expect("the arguments of each tool are a struct");
        let annotations = match self.effect {
            ToolEffect::Reads => ToolAnnotations::new().read_only(true),
            ToolEffect::Destroys { idempotent, .. } => {
                ToolAnnotations::new().read_only(false).destructive(true).idempotent(idempotent)
            }
        };
        Tool::new(self.name, self.about, schema).with_annotations(annotations.open_world(false))
    }
}

/// Returns arguments of the type that a tool has, or an error in the terms of its schema.
fn parse<T: DeserializeOwned + JsonSchema + 'static>(mut arguments: JsonObject) -> Result<T, ToolError> {
    let schema = schema_for_input::<T>().map_err(ToolError::Arguments)?;
    arguments::fit(&mut arguments, &schema).map_err(ToolError::Arguments)?;
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| ToolError::Arguments(error.to_string()))
}

/// Defines the table. The purpose of a tool follows its effect, its handler and the type of its arguments.
macro_rules! tools {
    ($($effect:expr => $module:ident::$name:ident($arguments:ty): $about:literal;)*) => {
        [$(ToolSpec {
            name: stringify!($name),
            about: $about,
            effect: $effect,
            schema: schema_for_input::<$arguments>,
            run: |api, arguments| async move { $module::$name(api, parse::<$arguments>(arguments)?).await }.boxed(),
        }),*]
    };
}

pub(crate) static TOOLS: [ToolSpec; 17] = tools! {
    Reads => target_tools::list_targets(ListTargets):
        "List sandboxes and other targets, with filters for phase, label, owner, plugin and text.";
    Reads => target_tools::get_target(GetTarget):
        "Show one target: its phase, resources, outputs, runs and the units that are not done. Sensitive values are \
         masked.";
    Reads => target_tools::why_not_ready(TargetArguments):
        "Explain why a target is not ready, failed or stuck: the first cause, what it waits for, and the next steps.";
    Reads => target_tools::what_exists(WhatExists):
        "Show which resources of a target exist or were removed, with the evidence. Without a name: leftovers of all \
         targets, and orphans in clusters.";
    Reads => target_tools::stuck_and_waiting(StuckAndWaiting):
        "List everything that needs help: failed, stuck and waiting targets, and clusters that do not respond.";
    Reads => target_tools::logs(Logs):
        "Show the end of the log of a unit, by default of the one that failed first.";
    Reads => target_tools::history(History):
        "Show who changed a target, when and why, with its runs and the decisions of operators, also of earlier \
         instances of the name. With an entry: the document that it applied.";
    Reads => document_tools::plan_document(PlanDocument):
        "Check the document of a target and show the units that it would run, in order. Changes nothing.";
    Reads => document_tools::validate_plugin(ValidatePlugin):
        "Check the document of a plugin, with the position and the fix of each error. Publishes nothing.";
    Reads => document_tools::list_plugins(ListPlugins):
        "List the published plugins with their versions.";
    Reads => document_tools::get_plugin(GetPlugin):
        "Show the document of a published plugin: parameters, units, scripts and outputs.";
    Reads => document_tools::list_clusters(ListClusters):
        "List the connected clusters with the state of their relays, or show what the policy of one cluster allows.";
    Reads => docs_search::search_docs(SearchDocs):
        "Search the documentation of Ebb, or show one section of it: formats of documents, commands, errors, \
         operations. The section `plugins.md#A complete example` has a plugin and a sandbox.";
    Destroys { idempotent: true, scopes: TARGETS_OR_PLUGINS } => document_tools::apply_document(ApplyDocument):
        "Create or update the target of a document, also of an earlier one of its history, or publish the version of \
         a plugin. An update can replace resources and lose their data: use dry_run first.";
    Destroys { idempotent: true, scopes: TARGETS } => change_tools::upgrade_plugin(UpgradePlugin):
        "Give targets, by name, another version of a plugin. It can replace resources and lose their data: use \
         dry_run first.";
    Destroys { idempotent: true, scopes: TARGETS } => change_tools::delete_target(DeleteTarget):
        "Delete targets and all their resources, with their data. For one name it begins at once; filters and several \
         targets are a dry run first.";
    Destroys { idempotent: false, scopes: TARGETS } => target_tools::retry_target(RetryArguments):
        "Run the failed units of a failed or stuck target again, or start units that wait for a time. In a teardown they \
         delete resources. With a plugin: continue the teardown of a stuck target with the units of another version; \
         dry_run shows the difference.";
};
