//! Commands that wait while the server does not respond.

use std::ops::RangeInclusive;

use serde_json::json;

use crate::receiver::{CannedReply, TestReceiver};
use crate::workdir::Workdir;

/// The requests without a response. With a pause of 0.2 s after each, they take 6 s.
const SILENT: RangeInclusive<usize> = 2..=31;

/// The server responds to one request, breaks the next connections, and responds again.
#[tokio::test]
async fn a_command_waits_until_the_server_responds_again() {
    let server = TestReceiver::start().await;
    server.on("*", |_, number| {
        let now = "2026-11-21T09:00:00Z";
        let phase = if number == 1 { "starting" } else { "ready" };
        let target = CannedReply::ok(json!({
            "kind": "sandbox", "name": "pr-1", "uid": "a", "generation": 1, "phase": phase, "since": now,
            "created": now, "plugins": [], "resources": {}, "runs": [],
        }));
        if SILENT.contains(&number) { CannedReply::lost() } else { target }
    });
    let workdir = Workdir::new().with_env(&[("EBB_URL", server.url().into()), ("EBB_TOKEN", "t".into())]);
    let waited = workdir.ebb(&["wait", "pr-1", "--timeout", "1m"]).await.done();
    for note in ["the server does not respond; trying again", "the server responds again"] {
        assert_eq!(waited.stderr.matches(note).count(), 1, "{waited:#?}");
    }
}
