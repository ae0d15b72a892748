//! A small world in which the functions run: a table, a clock, a queue, servers, a cluster and a platform, all in
//! memory, on one thread, in virtual time.
//!
//! The functions are the real ones; only what surrounds them is made here. Everything happens in an order that follows
//! from the scenario and its seed alone, so that a failing case fails again. Faults are put in by hooks on the numbered
//! writes of the [`Table`], and by the plans of [`Queue`] and [`Outside`].

pub mod crowd;
pub mod fleet;
mod functions;
mod gate;
mod ledger;
mod mishaps;
mod operations;
mod outside;
mod queue;
mod random;
mod relay;
mod runtime;
mod scenario;
mod settings;
mod table;
mod turns;
mod work;
mod world;

pub use functions::{Died, Functions};
pub use gate::{Access, Gate};
pub use ledger::{Finished, Ledger, Sent};
pub use mishaps::{Mishap, Mishaps, Spared};
pub use outside::{Outside, Platform};
pub use queue::{Queue, QueueFaults};
pub use random::Random;
pub use relay::Relay;
pub use runtime::{Clock, Runtime, Task, TaskId};
pub use scenario::{Fate, Kind, Makes, Scenario, SetupUnit, Stage, UndoUnit, scenarios};
pub use settings::settings;
pub use table::{Blow, Hook, Side, Table};
pub use turns::Turns;
pub use work::CallbackFaults;
pub use world::{End, Faults, World};
