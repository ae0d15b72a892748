//! `ebb` as it is typed, and the examples as a user runs them on one machine: real scripts, an interrupt,
//! and `kill -9` at any moment. Here, because cargo names the program to tests of its own package alone.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "what fails here fails the test")]

mod commands;
mod new;
mod run;

mod program {
    use std::path::Path;

    pub(crate) fn ebb() -> &'static Path {
        Path::new(env!("CARGO_BIN_EXE_ebb"))
    }
}

#[path = "../../../../tests/tests/e2e/example_service.rs"]
#[allow(dead_code, reason = "the end-to-end tests use more of it")]
mod example_service;
#[path = "../../../../tests/tests/e2e/interrupt.rs"]
mod interrupt;
#[path = "../../../../tests/tests/e2e/kill.rs"]
#[allow(dead_code, reason = "the end-to-end tests use more of it")]
mod kill;
#[path = "../../../../tests/tests/e2e/logs.rs"]
mod logs;
#[path = "../../../../tests/tests/e2e/persistent_platform.rs"]
mod persistent_platform;
#[path = "../../../../tests/src/platform.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it, and uses more of it")]
mod platform;
#[path = "../../../../tests/src/receiver.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it, and uses more of it")]
mod receiver;
#[path = "../../../../tests/tests/e2e/s3.rs"]
mod s3;
#[path = "../../../../tests/tests/e2e/scene.rs"]
#[allow(dead_code, reason = "the end-to-end tests use more of it")]
mod scene;
#[path = "../../../../tests/tests/e2e/server.rs"]
#[allow(dead_code, reason = "the end-to-end tests use more of it")]
mod server;
#[path = "../../../../tests/src/wait.rs"]
#[allow(unreachable_pub, reason = "the library of the tests exports it")]
mod wait;
#[path = "../../../../tests/tests/e2e/wired.rs"]
mod wired;
#[path = "../../../../tests/src/workdir.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it, and uses more of it")]
mod workdir;
