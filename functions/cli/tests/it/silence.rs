//! Commands that wait while the server does not respond.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::json;

/// Requests without a response. With a pause of 0.2 s after each, they take 6 s.
const SILENT: usize = 30;

/// Responds to one request, closes the next connections without a response, and responds again.
fn serve(listener: &TcpListener) {
    for (number, connection) in listener.incoming().enumerate() {
        let mut connection = connection.unwrap();
        assert_ne!(connection.read(&mut [0; 4096]).unwrap(), 0, "a request is expected");
        if (1..=SILENT).contains(&number) {
            continue;
        }
        let now = "2026-11-21T09:00:00Z";
        let phase = if number == 0 { "starting" } else { "ready" };
        let body = json!({
            "kind": "sandbox", "name": "pr-1", "uid": "a", "generation": 1, "phase": phase, "since": now,
            "created": now, "plugins": [], "resources": {}, "runs": [],
        })
        .to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
        write!(connection, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    }
}

#[test]
fn a_command_waits_until_the_server_responds_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // The thread ends with the process.
    std::thread::spawn(move || serve(&listener));
    let mut command = crate::program::command();
    command.args(["wait", "pr-1", "--timeout", "1m"]);
    let ended = command.env("EBB_URL", &url).env("EBB_TOKEN", "t").output().unwrap();
    let text = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{text}");
    for note in ["the server does not respond; trying again", "the server responds again"] {
        assert_eq!(text.matches(note).count(), 1, "{text}");
    }
}
