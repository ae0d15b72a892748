//! What follows from what, and nothing else.
//!
//! The engine knows the graph of one hook's units, the state that the table holds of a run, and the life of a
//! target. It says which conditional write an event asks for ([`accept()`]) and what follows from the state after
//! that write ([`follow()`]). It has no idea of a table, of HTTP, of documents: it is given the time and the
//! randomness that it needs, does no input or output, and cannot fail for a reason outside its arguments.
//!
//! Architecture invariant: no async, no clock, no randomness, no serde, no dependency but `thiserror`.

pub mod accept;
pub mod follow;
pub mod graph;
pub mod patch;
pub mod retry;
pub mod state;
pub mod target;
pub mod time;

pub use accept::{PatchRefusal, RunEvent, accept, refusal};
pub use follow::{FollowCause, FollowResult, NextSteps, RunOutcome, follow};
pub use graph::{Graph, GraphError, MAX_UNITS, Unit};
pub use patch::{Patch, PatchChange, PatchCondition};
pub use retry::{Backoff, Millis};
pub use state::{Attempt, Epoch, HeadState, LateMark, RunPhase, RunView, SHARD, Shard, UnitProgress};
pub use target::{Hook, HookSet, Target, TargetPhase};
pub use time::Timestamp;
