//! Loads documents with positions, checks them, compiles them to a frozen plan, and renders its units.
//!
//! The functions are pure. Embedded files are read only through the [`load::FileSource`] of the caller. The crate does
//! not use the table or the network.
mod body;
mod canonical;
pub mod cel;
pub mod compile;
pub mod diagnostic;
pub mod durations;
mod escaping;
pub mod event;
pub mod load;
pub mod model;
pub mod notification;
pub mod pinned_version;
pub mod plan;
pub mod presets;
pub mod render;
pub mod schema;
mod source;
pub mod starters;
pub mod template;

pub use compile::{ClusterPolicy, PolicyRequest};
pub use diagnostic::{Diagnostic, DiagnosticStyle, Diagnostics};
pub use event::EventSource;
pub use load::{Document, DocumentVars, NoFiles};
pub use model::{At, ConnectionDoc, PluginDoc, RouteGroupDoc, SandboxDoc, SourceDoc, SourceText, SubscriptionDoc};
pub use plan::{Action, Plan, UnitPlan, UnitRef, cluster_name};
pub use presets::preset;
pub use render::{KnownOutputs, RenderedUnit, TargetFacts, UnitContext};

#[cfg(test)]
mod tests;
