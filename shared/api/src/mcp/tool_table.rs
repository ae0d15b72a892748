//! The table of tools: names, effects, arguments and handlers. `tools.json` has their purposes, which also document the
//! handlers.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

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

/// The purpose of each tool, for the model that selects one.
static PURPOSES: LazyLock<BTreeMap<&str, &str>> =
    LazyLock::new(|| serde_json::from_str(include_str!("tools.json")).expect("a test reads the constant purposes"));

pub(crate) struct ToolSpec {
    pub(crate) name: &'static str,
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
        Tool::new(self.name, PURPOSES[self.name], schema).with_annotations(annotations.open_world(false))
    }
}

/// Returns arguments of the type that a tool has, or an error in the terms of its schema.
fn parse<T: DeserializeOwned + JsonSchema + 'static>(mut arguments: JsonObject) -> Result<T, ToolError> {
    let schema = schema_for_input::<T>().map_err(ToolError::Arguments)?;
    arguments::fit(&mut arguments, &schema).map_err(ToolError::Arguments)?;
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| ToolError::Arguments(error.to_string()))
}

/// Defines the table by the effect, the handler and the type of the arguments of each tool.
macro_rules! tools {
    ($($effect:expr => $module:ident::$name:ident($arguments:ty);)*) => {
        [$(ToolSpec {
            name: stringify!($name),
            effect: $effect,
            schema: schema_for_input::<$arguments>,
            run: |api, arguments| async move { $module::$name(api, parse::<$arguments>(arguments)?).await }.boxed(),
        }),*]
    };
}

pub(crate) static TOOLS: [ToolSpec; 17] = tools! {
    Reads => target_tools::list_targets(ListTargets);
    Reads => target_tools::get_target(GetTarget);
    Reads => target_tools::why_not_ready(TargetArguments);
    Reads => target_tools::what_exists(WhatExists);
    Reads => target_tools::stuck_and_waiting(StuckAndWaiting);
    Reads => target_tools::logs(Logs);
    Reads => target_tools::history(History);
    Reads => document_tools::plan_document(PlanDocument);
    Reads => document_tools::validate_plugin(ValidatePlugin);
    Reads => document_tools::list_plugins(ListPlugins);
    Reads => document_tools::get_plugin(GetPlugin);
    Reads => document_tools::list_clusters(ListClusters);
    Reads => docs_search::search_docs(SearchDocs);
    Destroys { idempotent: true, scopes: TARGETS_OR_PLUGINS } => document_tools::apply_document(ApplyDocument);
    Destroys { idempotent: true, scopes: TARGETS } => change_tools::upgrade_plugin(UpgradePlugin);
    Destroys { idempotent: true, scopes: TARGETS } => change_tools::delete_target(DeleteTarget);
    Destroys { idempotent: false, scopes: TARGETS } => target_tools::retry_target(RetryArguments);
};
