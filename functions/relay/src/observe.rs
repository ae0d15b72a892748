//! Evaluates observed objects: the state of pods, the reasons of a slow start, rules of documents. All functions are pure.
pub(crate) mod blockers;
pub(crate) mod pod;
pub(crate) mod ready_rules;
