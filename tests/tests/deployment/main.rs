//! What `template.yaml` says against what the code does: the table, the routes, and what each function may do.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod functions;
#[allow(dead_code, reason = "traces have more of it")]
mod outside;
mod policies;
mod record;
mod run;
mod template;
#[path = "../tree/mod.rs"]
#[allow(dead_code)]
mod tree;
