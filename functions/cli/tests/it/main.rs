//! `ebb` as it is typed, and the examples as a user runs them on one machine: real scripts, a real receiver of webhooks,
//! an interrupt, and `kill -9` at any moment. Here, because cargo names the program to tests of its own package alone.

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

#[path = "../../../../tests/tests/stories/interrupt.rs"]
mod interrupt;
#[path = "../../../../tests/tests/stories/kill.rs"]
#[allow(dead_code, reason = "stories have more of it")]
mod kill;
#[path = "../../../../tests/tests/stories/logs.rs"]
mod logs;
#[path = "../../../../tests/tests/stories/place.rs"]
#[allow(dead_code, reason = "stories have more of it")]
mod place;
#[path = "../../../../tests/tests/stories/platform.rs"]
mod platform;
#[path = "../../../../tests/tests/stories/receiver.rs"]
#[allow(dead_code, reason = "stories have more of it")]
mod receiver;
#[path = "../../../../tests/tests/stories/s3.rs"]
mod s3;
#[path = "../../../../tests/tests/stories/scene.rs"]
#[allow(dead_code, reason = "stories have more of it")]
mod scene;
#[path = "../../../../tests/tests/stories/server.rs"]
#[allow(dead_code, reason = "stories have more of it")]
mod server;
#[path = "../../../../tests/tests/stories/webhooks.rs"]
mod webhooks;
#[path = "../../../../tests/tests/stories/wired.rs"]
mod wired;
