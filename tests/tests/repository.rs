//! Compares the declarations of the repository with the code: its layout, the table of threats, `template.yaml`,
//! documented costs and spans.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod bench;
#[path = "deployment/dashboard.rs"]
mod dashboard;
#[path = "deployment/functions.rs"]
mod functions;
mod import_cycles;
mod layout;
#[path = "deployment/outside.rs"]
mod outside;
#[path = "deployment/policies.rs"]
mod policies;
mod protocol_rules;
#[path = "deployment/record.rs"]
mod record;
#[path = "deployment/run.rs"]
mod run;
#[path = "deployment/template.rs"]
mod template;
mod threats;
#[path = "deployment/traces.rs"]
mod traces;
mod tree;
#[path = "deployment/updates.rs"]
mod updates;
