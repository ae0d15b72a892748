//! Tests of the program `ebb`: its commands, and the examples on one machine with scripts, interrupts and SIGKILL. They are
//! in this package because Cargo passes the path of the program only to tests of its package.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "a panic fails the test")]

mod ci_jobs;
mod commands;
mod sessions;
mod shown_responses;
mod wired;

mod program {
    use std::path::Path;

    pub(crate) fn ebb() -> &'static Path {
        Path::new(env!("CARGO_BIN_EXE_ebb"))
    }
}

#[path = "../../../../tests/src/api_client.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it and uses the rest")]
mod api_client;
#[path = "../../../../tests/tests/e2e/kill.rs"]
#[allow(dead_code, reason = "the end-to-end tests use the rest")]
mod kill;
#[path = "../../../../tests/tests/e2e/persistent_platform.rs"]
mod persistent_platform;
#[path = "../../../../tests/src/platform.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it and uses the rest")]
mod platform;
#[path = "../../../../tests/src/receiver.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it and uses the rest")]
mod receiver;
#[path = "../../../../tests/src/stored_bytes.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it and uses the rest")]
mod stored_bytes;
#[path = "../../../../tests/src/wait.rs"]
#[allow(unreachable_pub, reason = "the library of the tests exports it")]
mod wait;
#[path = "../../../../tests/src/workdir.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library of the tests exports it and uses the rest")]
mod workdir;
