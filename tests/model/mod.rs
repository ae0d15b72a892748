//! The model: the real functions on small graphs, in every order of their steps.
//!
//! A step is one operation on the table, one request to the environment, or one event of the environment: a request
//! arrives, a task ends, a callback or message is delivered, time passes, the target is updated or deleted, or an
//! invocation dies.
//! The explorer searches all orders of steps within a [`FaultBudget`], depth first. It leaves a path at a known state.
//! A state consists of the table, the environment, the queue, and the values that each invocation received. Invocations
//! are deterministic, so these values identify their states.
//!
//! Every path ends when the instance is gone. Checks run at each step and at the end. Without one of the [`rules`] of
//! the state protocol, a path must violate a check.

mod cases;
mod check;
mod choice;
mod environment;
mod explore;
mod gates;
mod order;
mod ports;
mod rules;
mod simulation;

pub use cases::{ModelCase, cases};
pub use choice::FaultBudget;
pub use explore::{ExploreReport, Violation, explore};
pub use rules::{RuleFinding, check_rule, rules};
pub use simulation::{ModelGraph, ModelUpdate};
