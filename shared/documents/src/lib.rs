//! Loads documents with positions, checks them, compiles them to a frozen plan, and renders its units.
//!
//! The functions are pure. Embedded files are read only through the [`load::FileSource`] of the caller. The crate does
//! not use the table or the network.
mod body;
mod canonical;
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

pub use ebb_cel as cel;

pub use compile::{ClusterPolicy, PolicyRequest};
pub use diagnostic::{Diagnostic, DiagnosticStyle, Diagnostics};
pub use event::EventSource;
pub use load::{Document, DocumentVars, NoFiles};
pub use model::{At, ConnectionDoc, PluginDoc, RouteGroupDoc, SandboxDoc, SourceDoc, SourceText, SubscriptionDoc};
pub use plan::{Action, Plan, UnitPlan, UnitRef, cluster_name};
pub use presets::preset;
pub use render::{KnownOutputs, RenderedUnit, TargetFacts, UnitContext};

pub(crate) use self::cel::{EvaluationError, Expression, ReferenceSource, ReferenceUsage, Scope, TextPattern};
pub(crate) use load::PluginReference;
pub(crate) use load::lines::EmbeddedLines;
pub(crate) use load::reader::{DocumentReader, NodePath, Strictness};
pub(crate) use load::yaml::{YamlNode, YamlValue};
pub(crate) use model::{ActionDoc, BindDoc, BoundName, BoundObjectDoc, ConsumerDoc, DefaultsDoc, Dialect, DurationMs};
pub(crate) use model::{Entries, EventRule, HookDoc, HookOwner, InfrakitDoc, Named, ObjectDoc, ParamDoc, ParamKind};
pub(crate) use model::{ReceiverDoc, RepeatDoc, ResourceDoc, ResourceSpec, RunnerDoc, SandboxKind, TemplateTree};
pub(crate) use model::{TtlDoc, TtlFrom, TtlStart, UnitDoc, UnitSpec, UntilDoc, VerifyDoc, WebhookDoc, WebhookMethod};
pub(crate) use plan::{BoundConnection, ListEntry, ObjectAction, OutputFrom, OutputRead, PlainLiteral};
pub(crate) use plan::{PluginInterface, RequiredEvidence, ResourceOrigin, Template, WebhookAction};
pub(crate) use template::{ParsedText, TemplatePiece, TextPart};

#[cfg(test)]
mod tests;
