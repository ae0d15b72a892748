//! The examples as a user runs them on one machine: the real program, real scripts, a real receiver of webhooks, an
//! interrupt, and `kill -9` at any moment.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod program {
    use std::path::Path;

    pub(crate) fn ebb() -> &'static Path {
        Path::new(env!("CARGO_BIN_EXE_ebb"))
    }
}

#[path = "../stories/interrupt.rs"]
mod interrupt;
#[path = "../stories/kill.rs"]
#[allow(dead_code, reason = "stories have more of it")]
mod kill;
#[path = "../stories/logs.rs"]
mod logs;
#[path = "../stories/place.rs"]
#[allow(dead_code, reason = "stories have more of it")]
mod place;
#[path = "../stories/platform.rs"]
mod platform;
#[path = "../stories/receiver.rs"]
#[allow(dead_code, reason = "stories have more of it")]
mod receiver;
#[path = "../stories/s3.rs"]
mod s3;
#[path = "../stories/scene.rs"]
#[allow(dead_code, reason = "stories have more of it")]
mod scene;
#[path = "../stories/server.rs"]
#[allow(dead_code, reason = "stories have more of it")]
mod server;
#[path = "../stories/webhooks.rs"]
mod webhooks;
#[path = "../stories/wired.rs"]
mod wired;
