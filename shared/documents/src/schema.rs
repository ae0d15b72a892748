//! JSON Schemas of the documents, for editors.
//!
//! A schema describes a document before `@{…}` is expanded. Loading and compiling check more than a schema can express.

use schemars::schema_for;
use serde_json::Value;

use crate::load::signadot::{ResourcePlugin, SignadotSandbox};
use crate::model::{CollectionTarget, ConnectionDoc, PluginDoc, SandboxDoc, SourceDoc, SubscriptionDoc};

/// Returns the schema of Ebb's `kind: Plugin`.
pub fn plugin() -> Value {
    schema_for!(PluginDoc).to_value()
}

/// Returns the schema of Ebb's `kind: Sandbox`.
pub fn sandbox() -> Value {
    schema_for!(SandboxDoc).to_value()
}

/// Returns the schema of Ebb's `kind: Collection`.
pub fn collection() -> Value {
    schema_for!(CollectionTarget).to_value()
}

/// Returns the schema of Ebb's `kind: Source`.
pub fn event_source() -> Value {
    schema_for!(SourceDoc).to_value()
}

/// Returns the schema of Ebb's `kind: Connection`.
pub fn connection() -> Value {
    schema_for!(ConnectionDoc).to_value()
}

/// Returns the schema of Ebb's `kind: Subscription`.
pub fn subscription() -> Value {
    schema_for!(SubscriptionDoc).to_value()
}

/// Returns the schema of Signadot's ResourcePlugin.
pub fn signadot_plugin() -> Value {
    schema_for!(ResourcePlugin).to_value()
}

/// Returns the schema of Signadot's Sandbox. It covers only the parts that concern resources.
pub fn signadot_sandbox() -> Value {
    schema_for!(SignadotSandbox).to_value()
}
