//! Promises about every input, and bounds of its memory and time.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod bounds;
mod promises;
