//! No code: this package gives each dependency of the workspace one set of features.
//!
//! Cargo builds a dependency again for each set of features. With this package among the dependencies, `cargo run --bin ebb`,
//! `cargo test` and `cargo test -p CRATE` have the same sets, and each uses what another has built. A test of the
//! repository (`layout`) prints what is missing here.
