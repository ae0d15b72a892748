//! Texts of others, such as the title of a pull request, cannot control the terminal or forge lines.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

/// A command to the terminal's clipboard, an override of the direction of text, a return to the start of the line, and
/// a forged line.
const HOSTILE: &str = "a\u{1b}]52;c;aGk=\u{7}\u{9b}2J\u{202e}b\rc\nUID: forged";

fn response(path: &str) -> Value {
    let now = "2026-11-21T09:00:00Z";
    let reason = json!({"code": "exit", "message": HOSTILE});
    let outcome = json!({"result": "rejected", "detail": HOSTILE});
    let event = json!({"source": "s", "delivery": HOSTILE, "time": now, "outcome": outcome});
    let target = json!({
        "kind": "sandbox", "name": "pr-1", "uid": "a", "generation": 1, "phase": "failed", "since": now, "created": now,
        "plugins": [HOSTILE], "waitsFor": HOSTILE,
    });
    let unit = json!({
        "unit": "r/u", "kind": "pod", "state": "failed", "attempt": 1, "maxAttempts": 1, "attemptInSeries": 1,
        "after": [], "reason": reason, "log": true,
    });
    let wait = json!({"object": HOSTILE, "code": "timeout", "message": HOSTILE, "since": now, "resolves": "never"});
    let outage = json!({"cluster": HOSTILE, "since": now, "reason": HOSTILE, "units": []});
    let connection = json!({
        "name": HOSTILE, "origin": HOSTILE, "auth": HOSTILE, "secret": HOSTILE, "hasSecret": true, "plugins": [HOSTILE],
        "sources": [], "subscriptions": [], "changed": now,
    });
    let subscription = json!({"name": HOSTILE, "on": [HOSTILE], "to": HOSTILE, "waiting": 1, "undelivered": 1, "changed": now, "document": "",
        "failures": [{"target": HOSTILE, "phase": HOSTILE, "at": now, "reason": HOSTILE}]});
    match path.trim_start_matches("/v1/") {
        "targets" => json!({"targets": [target], "damaged": [HOSTILE], "outages": [outage]}),
        "targets/sandbox/pr-1" => {
            let mut detail = target;
            detail["labels"] = json!({"title": HOSTILE});
            detail["resources"] =
                json!({"r": {"plugin": HOSTILE, "params": {"p": HOSTILE}, "outputs": {"o": {"value": HOSTILE}}}});
            detail["env"] = json!({"E": {"value": HOSTILE}});
            detail["decidedBy"] = event;
            let mut waiting = unit.clone();
            (waiting["state"], waiting["waits"]) = (json!("running"), json!([wait]));
            detail["runs"] =
                json!([{"id": "k", "hook": "preStart", "state": "failed", "started": now, "units": [unit, waiting]}]);
            detail
        }
        "targets/sandbox/pr-1/why" => json!({
            "target": "sandbox/pr-1", "phase": "failed", "summary": HOSTILE, "decidedBy": event, "notes": [HOSTILE],
            "cause": {"run": "k", "unit": "r/u", "attempt": 1, "attemptInSeries": 1, "reason": reason, "file": HOSTILE, "line": 1, "column": 1,
                "inputs": {"i": HOSTILE}, "log": [HOSTILE],
                "evidence": {"method": "POST", "url": HOSTILE, "status": 500, "body": HOSTILE}},
            "failed": [], "remaining": [{"unit": "r/u", "certainty": "exists", "outputs": {"o": {"value": HOSTILE}}}],
            "nextSteps": [HOSTILE], "waits": {"r/u": [wait]},
        }),
        "targets/sandbox/pr-1/history" => json!({"entries": [{
            "id": "1", "time": now, "change": "retried", "by": HOSTILE, "uid": "u", "generation": 1, "reason": HOSTILE, "units": [HOSTILE],
        }], "notifications": [{"time": now, "phase": HOSTILE, "to": HOSTILE, "reason": HOSTILE}]}),
        "sources" => json!({"sources": [{"name": HOSTILE, "changed": now}]}),
        "sources/s" => json!({
            "name": HOSTILE, "changed": now, "document": "", "path": HOSTILE,
            "rejected": [{"delivery": HOSTILE, "time": now, "target": HOSTILE, "detail": HOSTILE}],
        }),
        "connections" => json!({"connections": [connection]}),
        "connections/c" => {
            let mut detail = connection;
            detail["document"] = json!("");
            detail
        }
        "subscriptions" => json!({"subscriptions": [subscription]}),
        "subscriptions/n" => subscription,
        "tokens" => {
            json!({"tokens": [{"name": HOSTILE, "scopes": [HOSTILE], "created": now, "expires": now, "createdBy": HOSTILE}]})
        }
        "clusters" => json!({"clusters": [{"name": HOSTILE, "transport": "push", "error": HOSTILE}]}),
        "clusters/c" => json!({
            "name": HOSTILE, "transport": "push", "error": HOSTILE, "uid": HOSTILE, "version": HOSTILE,
            "policy": {"digest": "d", "error": HOSTILE, "kinds": [HOSTILE], "services": [HOSTILE],
                "namespaces": {HOSTILE: {"level": HOSTILE, "serviceAccounts": [HOSTILE], "imagePullSecrets": []}}},
            "registration": {"entrypointImage": "i", "runAsNonRoot": false, "options": {}, "created": now,
                "createdBy": HOSTILE},
        }),
        "orphans" => json!({
            "orphans": [{"cluster": HOSTILE, "kind": HOSTILE, "name": HOSTILE, "uid": HOSTILE, "instance": "k",
                "ageSeconds": 1, "reason": HOSTILE, "owned": true}],
            "errors": [{"cluster": HOSTILE, "reason": HOSTILE}],
        }),
        "checks" => json!({
            "version": HOSTILE, "nowMs": 1, "callbackUrl": HOSTILE,
            "checks": [{"name": HOSTILE, "passed": false, "detail": HOSTILE, "durationMs": 1}],
        }),
        "plugins" => {
            json!({"plugins": [{"name": HOSTILE, "version": HOSTILE, "dialect": "ebb", "digest": "", "created": now}]})
        }
        "plugins/x/versions/1.0.0" | "plugins/x/versions/latest" => json!({
            "name": HOSTILE, "version": HOSTILE, "dialect": "ebb", "digest": "", "created": now,
            "document": if path.ends_with("latest") { HOSTILE } else { "" },
        }),
        _ => Value::Null,
    }
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
