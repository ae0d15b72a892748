//! JSON Schemas of the documents, for editors.
//!
//! A schema describes a document before `@{…}` is expanded. Loading and compiling check more than a schema can express.

use schemars::schema_for;
use serde_json::Value;

use crate::load::signadot::{ResourcePlugin, SignadotSandbox};
use crate::model::{CollectionTarget, ConnectionDoc, PluginDoc, SandboxDoc, SourceDoc, SubscriptionDoc};

macro_rules! schemas {
    ($(#[$doc:meta] $name:ident: $type:ty;)+) => {$(
        #[$doc]
        pub fn $name() -> Value {
            schema_for!($type).to_value()
        }
    )+};
}

schemas! {
    /// Returns the schema of Ebb's `kind: Plugin`.
    plugin: PluginDoc;
    /// Returns the schema of Ebb's `kind: Sandbox`.
    sandbox: SandboxDoc;
    /// Returns the schema of Ebb's `kind: Collection`.
    collection: CollectionTarget;
    /// Returns the schema of Ebb's `kind: Source`.
    event_source: SourceDoc;
    /// Returns the schema of Ebb's `kind: Connection`.
    connection: ConnectionDoc;
    /// Returns the schema of Ebb's `kind: Subscription`.
    subscription: SubscriptionDoc;
    /// Returns the schema of Signadot's ResourcePlugin.
    signadot_plugin: ResourcePlugin;
    /// Returns the schema of Signadot's Sandbox. It covers only the parts that concern resources.
    signadot_sandbox: SignadotSandbox;
}
