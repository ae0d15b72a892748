//! The pure core: conditional writes and next steps as functions of state.
//!
//! The engine operates on the graph of a hook, the stored state of a run, and the lifecycle of a target. [`accept()`]
//! returns the write for an event, [`follow()`] the next steps after a write. The engine does not depend on tables,
//! HTTP or documents. Time and randomness are arguments.
//!
//! Its types are also those of messages, documents and stored items, so they have derived serialized forms and schemas.
//!
//! Architecture invariant: no async, no clock, no randomness.

pub mod accept;
mod change;
pub mod follow;
pub mod graph;
pub mod patch;
pub mod retry;
mod secret_ref;
mod signature;
pub mod state;
pub mod target;
pub mod time;

pub use accept::{PatchRefusal, RunEvent, accept, refusal};
pub use change::TargetChange;
pub use follow::{NextSteps, RunOutcome, follow, in_flight, lets_pass};
pub use graph::{Graph, GraphError, MAX_UNITS, Unit, topological_order};
pub use patch::{Patch, PatchChange, PatchCondition};
pub use retry::{Backoff, attempts_used, next_block};
pub use secret_ref::SecretRef;
pub use signature::{HmacAlgorithm, JwsAlgorithm, SignatureEncoding, SignedPiece};
pub use state::{Attempt, AttemptRef, Epoch, HeadState, LateMark, RunPhase, UnitProgress};
pub use target::{EventName, Hook, HookSet, PhaseChange, RequestSender, ResourceEffect, Target, TargetPhase};
pub use time::{Millis, Timestamp};
