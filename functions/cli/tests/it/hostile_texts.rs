//! Texts of others, such as the title of a pull request, cannot control the terminal or forge lines.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

/// A command to the terminal's clipboard, an override of the direction of text, a return to the start of the line, and
/// a forged line.
const HOSTILE: &str = "a\u{1b}]52;c;aGk=\u{7}\u{9b}2J\u{202e}b\rc\nUID: forged";

/// Returns the body of a response. `hostile_texts.json` has it with `TEXT` for the hostile text.
fn response(path: &str) -> Value {
    let quoted = json!(HOSTILE).to_string();
    let bodies = include_str!("hostile_texts.json").replace("TEXT", &quoted[1..quoted.len() - 1]);
    let bodies: Value = serde_json::from_str(&bodies).unwrap();
    bodies[path.trim_start_matches("/v1/")].clone()
}

async fn respond(request: Request) -> Response {
    let path = request.uri().path();
    if path.ends_with("/logs") {
        return HOSTILE.into_response();
    }
    match response(path) {
        Value::Null => {
            let problem = json!({"status": 422, "code": "wrong", "detail": HOSTILE});
            (StatusCode::UNPROCESSABLE_ENTITY, axum::Json(problem)).into_response()
        }
        body => axum::Json(body).into_response(),
    }
}

/// The commands that print texts of a server. True if each text is one line: logs and errors can have several lines, and
/// the server checks the names and URLs of documents.
const COMMANDS: [(&[&str], bool); 21] = [
    (&["get", "sandboxes"], true),
    (&["get", "sandbox", "pr-1"], true),
    (&["history", "pr-1"], true),
    (&["why", "pr-1"], true),
    (&["logs", "pr-1"], false),
    (&["get", "sources"], true),
    (&["get", "source", "s"], false),
    (&["get", "connections"], true),
    (&["get", "connection", "c"], false),
    (&["get", "subscriptions"], true),
    (&["get", "subscription", "n"], false),
    (&["token", "list"], true),
    (&["cluster", "list"], true),
    (&["cluster", "get", "c"], true),
    (&["orphans"], true),
    (&["doctor"], true),
    (&["get", "plugins"], true),
    (&["retry", "pr-1"], false),
    (&["get", "plugin", "x"], false),
    (&["plugin", "diff", "x@1.0.0", "x"], false),
    (&["wait", "pr-1"], true),
];

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_others_do_not_control_the_terminal() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(axum::serve(listener, Router::new().fallback(respond)).into_future());
    let ran = tokio::task::spawn_blocking(move || {
        let ebb = |arguments: &[&str]| {
            let mut command = crate::program::command();
            command.args(arguments).env("EBB_URL", &url).env("EBB_TOKEN", "t");
            command.output().unwrap()
        };
        for (arguments, is_lines) in COMMANDS {
            let out = ebb(arguments);
            let text = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
            let wrong = text.chars().find(|&c| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}');
            assert_eq!(wrong, None, "{arguments:?}: {text:?}");
            assert!(text.contains("\u{fffd}") || text.contains("\\u001b"), "{arguments:?} prints no text: {text:?}");
            assert!(!is_lines || !text.lines().any(|line| line.starts_with("UID: forged")), "{arguments:?}: {text}");
        }
        let exact = ebb(&["get", "sandbox", "pr-1", "-o", "json"]);
        let data: Value = serde_json::from_slice(&exact.stdout).unwrap();
        assert_eq!(data["labels"]["title"], HOSTILE);
    });
    ran.await.unwrap();
    server.abort();
}
