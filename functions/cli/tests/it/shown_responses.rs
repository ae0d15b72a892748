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
}

#[tokio::test]
async fn commands_print_the_responses_of_a_server() {
    let shown: Vec<ShownResponses> = serde_saphyr::from_str(include_str!("shown_responses.yaml")).unwrap();
    for ShownResponses { command, files, responses, sent, output, shows, code, error } in shown {
        let server = TestReceiver::start().await;
        server.on("*", move |call, _| {
            let path = call.path().trim_start_matches("/v1/");
            let body = responses.get(&format!("{path}?{}", call.query)).or_else(|| responses.get(path)).cloned();
            let body = body.unwrap_or_else(|| json!({"status": 404}));
            if let Some(text) = body.as_str() {
                return CannedReply::text(200, "text/html", text);
            }
            // A problem has its status.
            let status = body["status"].as_u64().unwrap_or(200);
            CannedReply::status(u16::try_from(status).unwrap()).with(body)
        });
        let workdir = Workdir::new().with_env(&[("EBB_URL", server.url().into()), ("EBB_TOKEN", "t".into())]);
        files.iter().for_each(|(name, text)| drop(workdir.write(name, text)));
        let result = workdir.ebb(&command.split(' ').collect::<Vec<_>>()).await.ends_with(code, &error);
        assert!(shows.iter().all(|text| result.stdout.contains(text)), "{command}: {}", result.stdout);
        let printed = if shows.is_empty() { result.stdout } else { String::new() };
        assert_eq!(printed, output, "{command}");
        let changes = server.all().into_iter().filter(|call| !call.line.starts_with("GET "));
        assert_eq!(changes.map(|call| (call.line, call.body)).collect::<BTreeMap<_, _>>(), sent, "{command}");
    }
}
