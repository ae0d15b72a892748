//! The model: the real functions on small graphs, in every order of their steps.
//!
//! A step is one operation on the table, one request to the outside, or one thing that the outside does: a request
//! arrives, work ends, a callback or a message is delivered, time passes, the target is deleted, an invocation
//! dies. The explorer goes through all orders of steps within a [`FaultBudget`] of faults, depth first, and leaves a path
//! where it comes to a state that was seen. A state is what the table, the outside and the queue hold, and of each
//! invocation what it has learnt: invocations are deterministic, so that says where they stand.
//!
//! Every path ends with the whole instance over: what was promised is checked there, and what shows earlier, at every
//! step. Without one of the [`rules`] of the state protocol, a path has to break a promise.

mod cases;
mod check;
mod choice;
mod describe;
mod environment;
mod explore;
mod gates;
mod order;
mod rules;
mod simulation;

pub use cases::{ModelCase, cases, large_cases};
pub use choice::FaultBudget;
pub use explore::{ExploreReport, Violation, explore};
pub use rules::{RuleFinding, check_rule, rules};
pub use simulation::{ModelAction, ModelGraph};
