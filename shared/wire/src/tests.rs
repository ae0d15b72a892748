//! What crosses a boundary, as it is written.

#[macro_use]
mod golden;

mod api;
mod messages;
mod runner;
