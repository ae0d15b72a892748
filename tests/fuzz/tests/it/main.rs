//! What no input may break, and what no input may take.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod bounds;
mod promises;
