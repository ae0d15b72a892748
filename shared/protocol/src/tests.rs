//! Golden files of messages.

#[macro_use]
mod golden;

mod api;
mod entrypoint;
mod messages;
