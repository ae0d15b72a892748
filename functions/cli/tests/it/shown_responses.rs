//! What commands print for the responses of a server.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::receiver::{CannedReply, TestReceiver};
use crate::workdir::Workdir;

/// A command with the responses to its requests. The file describes its keys.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ShownResponses {
    command: String,
    files: BTreeMap<String, String>,
    responses: BTreeMap<String, Value>,
    sent: BTreeMap<String, Value>,
    output: String,
    shows: Vec<String>,
    code: i32,
    error: String,
    notes: Vec<String>,
}

/// Starts a server with these responses, and another one for other paths. Returns it with a folder for its commands.
async fn serving(responses: BTreeMap<String, Value>, other: Value) -> (TestReceiver, Workdir) {
    let server = TestReceiver::start().await;
    server.on("*", move |call, number| {
        let path = call.path().trim_start_matches("/v1/");
        let found = responses.get(&format!("{path}?{}", call.query)).or_else(|| responses.get(path)).unwrap_or(&other);
        match found.as_array().map_or(found, |all| &all[number.min(all.len()) - 1]) {
            Value::Null => CannedReply::lost(),
            Value::String(text) => CannedReply::text(200, "text/html", text),
            // A problem has its status.
            body => {
                let status = body["status"].as_u64().unwrap_or(200);
                CannedReply::status(u16::try_from(status).unwrap()).with(body.clone())
            }
        }
    });
    let workdir = Workdir::new().with_env(&[("EBB_URL", server.url().into()), ("EBB_TOKEN", "t".into())]);
    (server, workdir)
}

#[tokio::test]
async fn commands_print_the_responses_of_a_server() {
    let shown: Vec<ShownResponses> = serde_saphyr::from_str(include_str!("shown_responses.yaml")).unwrap();
    for ShownResponses { command, files, responses, sent, output, shows, code, error, notes } in shown {
        let (server, workdir) = serving(responses, json!({"status": 404})).await;
        files.iter().for_each(|(name, text)| drop(workdir.write(name, text)));
        let result = workdir.ebb(&command.split(' ').collect::<Vec<_>>()).await.ends_with(code, &error);
        assert!(notes.iter().all(|note| result.stderr.matches(note).count() == 1), "{command}: {}", result.stderr);
        assert!(shows.iter().all(|text| result.stdout.contains(text)), "{command}: {}", result.stdout);
        let printed = if shows.is_empty() { result.stdout } else { String::new() };
        assert_eq!(printed, output, "{command}");
        let changes = server.all().into_iter().filter(|call| !call.line.starts_with("GET "));
        assert_eq!(changes.map(|call| (call.line, call.body)).collect::<BTreeMap<_, _>>(), sent, "{command}");
    }
}

/// A command to the terminal's clipboard, an override of the direction of text, a return to the start of the line, and
/// a forged line.
const HOSTILE: &str = "a\u{1b}]52;c;aGk=\u{7}\u{9b}2J\u{202e}b\rc\nUID: forged";

/// Texts of others, such as the title of a pull request, cannot control the terminal or forge lines. `hostile_texts.json`
/// has the bodies with `TEXT` for the hostile text.
#[tokio::test]
async fn texts_of_others_do_not_control_the_terminal() {
    let quoted = json!(HOSTILE).to_string();
    let bodies = include_str!("hostile_texts.json").replace("TEXT", &quoted[1..quoted.len() - 1]);
    let other = json!({"status": 422, "code": "wrong", "detail": HOSTILE});
    let (_server, workdir) = serving(serde_json::from_str(&bodies).unwrap(), other).await;
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
