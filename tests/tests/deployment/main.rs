//! What `template.yaml` says against what the code does: the table, the routes, and what each function may do.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod collector;
mod functions;
mod outside;
mod policies;
mod record;
mod run;
mod template;
mod traces;
#[path = "../tree/mod.rs"]
#[allow(dead_code)]
mod tree;
