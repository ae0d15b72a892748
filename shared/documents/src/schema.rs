//! JSON Schemas of the documents, for editors.
//!
//! They describe documents as they are written, with `@{…}` in them. Loading and compiling check more than they can say.

use schemars::schema_for;
use serde_json::Value;

use crate::load::signadot::{ResourcePlugin, SignadotSandbox};
use crate::model::{PluginDoc, SandboxDoc};

/// Our `kind: Plugin`.
pub fn plugin() -> Value {
    schema_for!(PluginDoc).to_value()
}

/// Our `kind: Sandbox`.
pub fn sandbox() -> Value {
    schema_for!(SandboxDoc).to_value()
}

/// Signadot's ResourcePlugin.
pub fn signadot_plugin() -> Value {
    schema_for!(ResourcePlugin).to_value()
}

/// Signadot's Sandbox, as far as its resources are concerned.
pub fn signadot_sandbox() -> Value {
    schema_for!(SignadotSandbox).to_value()
}
