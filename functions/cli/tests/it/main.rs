//! `ebb` as it is typed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails here fails the test")]

mod commands;
mod new;
mod run;
