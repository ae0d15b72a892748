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

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use ebb_engine::{Attempt, Hook, RunPhase, TargetPhase, Unit};
use ebb_flow::QueueMessage;
use ebb_protocol::{ReasonCode, RunId};
use futures::channel::oneshot;
use serde::Deserialize;

use crate::simulation::{SimRuntime, SimTaskId, UnitAction, WriteFate, lock};
use cases::{CaseEntry, WHOLE};
pub use cases::{ModelCase, cases};
pub use choice::FaultBudget;
use choice::{PlatformState, StepChoice};
use environment::{
    ModelEnvironment, ModelTaskState, PendingDelivery, UnitRequest, callback, is_setup, outputs, tombstone,
};
use explore::shortest;
pub use explore::{ExploreReport, Violation, explore};
use gates::{GateKind, GatePoint, StepGates, digest};
use order::ActorOrder;
pub use rules::{RuleFinding, check_rule, rules};
use simulation::{InvocationEnd, MAX_IN_FLIGHT_MS, ModelDocuments, ModelInvocation, ModelSimulation};
pub use simulation::{ModelGraph, ModelUpdate};
