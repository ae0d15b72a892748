//! Tasks: their records, their slots, what is kept of them in memory, and the decision about the next step.
pub(crate) mod decide;
pub(crate) mod fair_queue;
pub(crate) mod record;
pub(crate) mod store;
pub(crate) mod task_registry;
pub(crate) mod task_waits;
