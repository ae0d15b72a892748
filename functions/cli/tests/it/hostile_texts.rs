//! Texts of others, such as the title of a pull request, cannot control the terminal or forge lines.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::receiver::{CannedReply, TestReceiver};
use crate::workdir::Workdir;

/// A command to the terminal's clipboard, an override of the direction of text, a return to the start of the line, and
/// a forged line.
const HOSTILE: &str = "a\u{1b}]52;c;aGk=\u{7}\u{9b}2J\u{202e}b\rc\nUID: forged";

/// Returns the reply to a request. `hostile_texts.json` has the bodies with `TEXT` for the hostile text.
fn reply(path: &str) -> CannedReply {
    if path.ends_with("/logs") {
        return CannedReply::text(200, "text/html", HOSTILE);
    }
    let quoted = json!(HOSTILE).to_string();
    let bodies = include_str!("hostile_texts.json").replace("TEXT", &quoted[1..quoted.len() - 1]);
    let bodies: Value = serde_json::from_str(&bodies).unwrap();
    match bodies.get(path.trim_start_matches("/v1/")) {
        Some(body) => CannedReply::ok(body.clone()),
        None => CannedReply::status(422).with(json!({"status": 422, "code": "wrong", "detail": HOSTILE})),
    }
}

#[tokio::test]
async fn texts_of_others_do_not_control_the_terminal() {
    let server = TestReceiver::start().await;
    server.on("*", |call, _| reply(call.path()));
    let workdir = Workdir::new().with_env(&[("EBB_URL", server.url().into()), ("EBB_TOKEN", "t".into())]);
    let commands: BTreeMap<String, bool> = serde_saphyr::from_str(include_str!("hostile_commands.yaml")).unwrap();
    for (arguments, is_lines) in commands {
        let result = workdir.ebb(&arguments.split(' ').collect::<Vec<_>>()).await;
        let text = result.stdout + &result.stderr;
        let wrong = text.chars().find(|&c| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}');
        assert_eq!(wrong, None, "{arguments:?}: {text:?}");
        assert!(text.contains("\u{fffd}") || text.contains("\\u001b"), "{arguments:?} prints no text: {text:?}");
        assert!(!is_lines || !text.lines().any(|line| line.starts_with("UID: forged")), "{arguments:?}: {text}");
    }
    let exact = workdir.ebb(&["get", "sandbox", "pr-1", "-o", "json"]).await;
    assert_eq!(exact.json::<Value>()["labels"]["title"], HOSTILE);
}
