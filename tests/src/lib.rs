//! Shared parts of the tests of the repository.

#[path = "../simulation/mod.rs"]
pub mod simulation;

pub mod fakes;
pub mod figures;
pub mod github;
pub mod infrakit_plugin;
pub mod invocations;
pub mod log_buffer;
pub mod markdown;
pub mod virtual_clock;
pub mod virtual_runtime;

// The test kit with real servers and programs. Its panics fail the test.
#[allow(clippy::unwrap_used, clippy::panic)]
pub mod api_client;
#[allow(clippy::unwrap_used)]
pub mod browser;
#[allow(clippy::unwrap_used)]
pub mod listed_source;
#[allow(clippy::unwrap_used)]
pub mod platform;
#[allow(clippy::unwrap_used, clippy::panic)]
pub mod preset_lives;
#[allow(clippy::unwrap_used, clippy::panic)]
pub mod program;
#[allow(clippy::unwrap_used)]
pub mod provider;
#[allow(clippy::unwrap_used)]
pub mod receiver;
pub mod stored_bytes;
pub mod wait;
#[allow(clippy::unwrap_used, clippy::panic, clippy::new_without_default)]
pub mod workdir;

#[cfg(feature = "verify")]
#[path = "../model/mod.rs"]
pub mod model;
