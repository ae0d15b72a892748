//! Compares the declarations of the repository with the code: its layout, the table of threats, `template.yaml`,
//! documented costs and spans.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod bench;
mod deployment {
    mod dashboard;
    mod functions;
    mod outside;
    mod policies;
    mod record;
    mod run;
    mod template;
    mod traces;
    mod updates;
}
mod import_cycles;
mod layout;
mod protocol_rules;
mod threats;
mod tree;
