//! Tests of the tools with an API of canned responses: their requests, their answers, and a client of the protocol.

mod canned;

use rmcp::model::{CallToolRequestParams, CallToolResult, ClientRequest, CustomRequest, ProtocolVersion};
use rmcp::{ClientLifecycleMode, ClientServiceExt as _, ServiceExt as _};
use serde::Deserialize;
use serde_json::{Value, json};

use canned::{CannedApi, DOCUMENT, PLUGIN, canned, reply};

use crate::mcp::tool_table::{TOOLS, ToolEffect};
use crate::mcp::{EbbTools, MAX_ANSWER, ToolAccess};

/// Returns true for an error, and the text of the answer.
async fn call(tools: &EbbTools, tool: &'static str, arguments: Value) -> (bool, String) {
    let arguments = arguments.as_object().cloned().unwrap();
    let result = tools.call(CallToolRequestParams::new(tool).with_arguments(arguments)).await.unwrap();
    (result.is_error.unwrap(), text(&result).to_owned())
}

fn text(result: &CallToolResult) -> &str {
    let [content] = &result.content[..] else { panic!("{result:?}") };
    &content.as_text().unwrap().text
}

const ENTRY: &str = "GET /v1/targets/sandbox/pr-7/history/2-a";
/// Calls of tools with their requests: `TOOL ARGUMENTS => REQUEST => REQUEST`. `DOCUMENT`, `STORED` and `PLUGIN` stand for the
/// documents of these names, and `PR` for the kind and the name of a target.
const CALLS: &str = include_str!("../../tests/tool_calls.txt");

#[tokio::test]
async fn each_tool_sends_its_requests() {
    let stored = canned(ENTRY)["text"].clone();
    let documents = [("DOCUMENT", json!(DOCUMENT)), ("STORED", stored), ("PLUGIN", json!(PLUGIN))];
    let calls = CALLS.replace("PR", r#""kind":"sandbox","name":"pr-7""#);
    let calls = documents.iter().fold(calls, |calls, (name, text)| calls.replace(name, &text.to_string()));
    let rows: Vec<(&str, &str)> = calls.lines().map(|row| row.split_once(' ').unwrap()).collect();
    for tool in &TOOLS {
        assert!(rows.iter().any(|(name, _)| *name == tool.name), "{} has no row", tool.name);
    }
    let api = CannedApi::new(reply);
    let tools = api.tools();
    for (name, row) in rows {
        let tool = TOOLS.iter().find(|tool| tool.name == name).unwrap().name;
        let mut parts = row.split(" => ");
        let arguments = parts.next().unwrap();
        let (is_error, text) = call(&tools, tool, serde_json::from_str(arguments).unwrap()).await;
        assert!(!is_error, "{tool} {arguments}: {text}");
        assert_eq!(api.take_sent(), parts.collect::<Vec<&str>>(), "{tool} {arguments}");
        assert!(text.len() <= MAX_ANSWER && text.lines().last().unwrap().starts_with("Next: "), "{tool}: {text}");
    }
}

/// Calls of tools with their answers, which `tests/tool_answers.yaml` describes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnsweredCalls {
    reply: Option<(String, u16, Value)>,
    #[serde(default)]
    all: Vec<String>,
    calls: Vec<(String, Value, bool, Vec<String>)>,
}

#[tokio::test]
async fn answers_say_what_is_the_case_and_what_to_do() {
    let groups: Vec<AnsweredCalls> = serde_saphyr::from_str(include_str!("../../tests/tool_answers.yaml")).unwrap();
    for AnsweredCalls { reply: of_group, all, calls } in groups {
        let api = match of_group {
            Some((part, status, body)) => CannedApi::with(part, status, body),
            None => CannedApi::new(reply),
        };
        for (name, arguments, is_error, texts) in calls {
            let tool = TOOLS.iter().find(|tool| tool.name == name).unwrap().name;
            let (failed, shown) = call(&api.tools(), tool, arguments.clone()).await;
            let shown = format!("\n{shown}");
            assert_eq!(failed, is_error, "{tool} {arguments}: {shown}");
            for expected in texts.iter().chain(&all) {
                let absent = expected.strip_prefix("NOT ");
                let is_right = shown.contains(absent.unwrap_or(expected)) == absent.is_none();
                assert!(is_right, "{expected}: {tool} {arguments}: {shown}");
            }
        }
    }
}

#[tokio::test]
async fn an_unknown_tool_is_named() {
    let tools = CannedApi::new(reply).tools();
    let unknown = tools.call(CallToolRequestParams::new("drop_all")).await.unwrap_err();
    assert!(unknown.message.contains("drop_all"), "{unknown:?}");
    let long = tools.call(CallToolRequestParams::new("x".repeat(9_000))).await.unwrap_err();
    assert!(long.message.len() < 200, "{long:?}");
}

#[tokio::test]
async fn a_long_log_is_read_from_its_end() {
    let long: String = (1..=1_000).map(|line| format!("line {line}\n")).collect();
    let tools = CannedApi::with("/logs", 200, json!(long)).tools();
    let (mut skip, mut first) = (0, usize::MAX);
    for _ in 0..3 {
        let (_, text) = call(&tools, "logs", json!({"name": "pr-7", "skip": skip})).await;
        let shown: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| line ")).collect();
        assert_eq!(shown.last().unwrap().parse::<usize>().unwrap(), first.min(1_001) - 1, "{text}");
        first = shown[0].parse().unwrap();
        skip += shown.len();
        assert_eq!(text.contains(&format!("\"skip\": {skip}.\nNext: ")), first > 1, "{text}");
        assert!(text.len() <= MAX_ANSWER && (text.len() > MAX_ANSWER - 100 || first == 1), "{} bytes", text.len());
    }
    assert_eq!(first, 1, "three answers have all lines");
}

#[tokio::test]
async fn a_long_list_continues_after_its_last_row() {
    fn long(request: &str) -> (u16, Value) {
        let first = if request.contains("nextToken=x") { 200 } else { 100 };
        let next = if first == 100 { json!("x") } else { Value::Null };
        let targets = (first..first + 100).map(|number| {
            let mut target = canned("GET /v1/targets")["targets"][1].clone();
            target["name"] = format!("pr-{number}").into();
            target
        });
        (200, json!({"targets": targets.collect::<Vec<_>>(), "nextToken": next}))
    }
    let tools = CannedApi::new(long).tools();
    let (mut arguments, mut expected) = (json!({}), 100);
    while expected < 300 {
        let (_, text) = call(&tools, "list_targets", arguments.clone()).await;
        for row in text.lines().filter_map(|line| line.strip_prefix("| ")) {
            assert!(row.contains(&format!("\"sandbox/pr-{expected}\"")), "{expected}: {row}");
            expected += 1;
        }
        let place = text.split_once("the same arguments and ").map(|(_, rest)| rest.split_once(".\n").unwrap().0);
        assert_eq!(place.is_some(), expected < 300, "{text}");
        arguments = place.map_or(Value::Null, |place| serde_json::from_str(place).unwrap());
    }
}

/// A request for more has another argument than the call.
#[tokio::test]
async fn a_long_answer_names_another_way_to_the_rest() {
    let mut detail = canned("GET /v1/targets/sandbox/pr-7");
    let unit = detail["runs"][0]["units"][0].clone();
    detail["runs"][0]["units"] = json!(vec![unit; 90]);
    let tools = CannedApi::with("", 200, detail).tools();
    let (_, text) = call(&tools, "get_target", json!({"name": "pr-7"})).await;
    assert!(text.contains("call get_target with \"resource\", or run `ebb get sandbox pr-7"), "{text}");
    let (_, text) = call(&tools, "get_target", json!({"name": "pr-7", "resource": "db"})).await;
    assert!(text.contains("\nMore was left out: run `ebb get sandbox pr-7"), "{text}");
    let unit = |number: u32| json!({"unit": format!("db/u-{number}"), "kind": "pod", "after": [], "rendered": {}});
    let units: Vec<Value> = (0..90).map(unit).collect();
    let plan = json!({"digest": "d", "hooks": [{"hook": "preStart", "units": units}]});
    let tools = CannedApi::with("", 200, plan).tools();
    let (_, shown) = call(&tools, "plan_document", json!({"document": DOCUMENT, "unit": "db/none"})).await;
    assert!(shown.contains("the first of its 90 units: db/u-0, ") && shown.contains("db/u-19\n"), "{shown}");
}

/// A document that is longer than an answer is read in parts, and applied again without being copied.
#[tokio::test]
async fn a_long_document_of_the_history_is_read_in_parts() {
    let mut detail = canned(ENTRY);
    detail["text"] = (1..=400).map(|line| format!("# line {line} of a document\n")).collect::<String>().into();
    let tools = CannedApi::with("", 200, detail).tools();
    let (mut from_line, mut answers) = (1, 0);
    while from_line <= 400 {
        let (_, shown) = call(&tools, "history", json!({"name": "pr-7", "entry": "2-a", "from_line": from_line})).await;
        for line in shown.lines().filter_map(|line| line.strip_prefix("| # line ")) {
            assert!(line.starts_with(&format!("{from_line} ")), "{shown}");
            from_line += 1;
        }
        answers += 1;
        assert_eq!(shown.contains(&format!("\"from_line\":{from_line}}}.")), from_line <= 400, "{shown}");
        let next = r#"Next: apply_document {"name":"pr-7","kind":"sandbox","entry":"2-a","dry_run":true} shows"#;
        assert!(shown.contains(next), "{shown}");
    }
    assert!(answers > 2, "{answers} answers");
}

#[tokio::test]
async fn a_read_only_server_changes_nothing() {
    let api = CannedApi::new(reply);
    let tools = EbbTools::new(api.clone(), ToolAccess::ReadOnly);
    for tool in TOOLS.iter().filter(|tool| tool.effect != ToolEffect::Reads) {
        let (is_error, text) = call(&tools, tool.name, json!({"name": "pr-7", "document": DOCUMENT})).await;
        assert!(is_error, "{text}");
        let [head, reason, next] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert_eq!(head, "This server is read-only.");
        let expected = format!("| {} changes targets, and `ebb mcp` was started without --allow-writes.", tool.name);
        assert!(reason.starts_with(&expected), "{reason}");
        assert!(next.starts_with("Next: ask a person to start this server as `ebb mcp --allow-writes`"), "{next}");
    }
    assert_eq!(api.take_sent(), Vec::<String>::new());
}

#[test]
fn each_tool_is_described() {
    for spec in &TOOLS {
        let tool = serde_json::to_value(spec.tool()).unwrap();
        let is_read = spec.effect == ToolEffect::Reads;
        assert_eq!(tool["annotations"]["readOnlyHint"], json!(is_read), "{tool}");
        assert_eq!(tool["annotations"]["destructiveHint"], if is_read { Value::Null } else { json!(true) }, "{tool}");
        assert_eq!(tool["annotations"]["idempotentHint"].is_boolean(), !is_read, "{tool}");
        assert_eq!(tool["inputSchema"]["additionalProperties"], json!(false), "{tool}");
        for (name, schema) in tool["inputSchema"]["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{}: {name} has no description", spec.name);
        }
        assert!(tool["description"].as_str().unwrap().ends_with('.'), "{tool}");
    }
}

/// A method that exists is not called unknown if its parameters are wrong.
#[tokio::test]
async fn parameters_of_another_form_are_the_error() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let server = CannedApi::new(reply).tools();
    let server = tokio::spawn(async move { server.serve(far).await.unwrap().waiting().await.unwrap() });
    let client = ().serve_with_lifecycle(near, ClientLifecycleMode::Initialize).await.unwrap();
    let wrong = Some(json!({"name": "logs", "arguments": []}));
    let cursor = Some(json!({"cursor": "x"}));
    for (method, params, code) in
        [("tools/call", wrong, "-32602"), ("tools/list", cursor, "-32602"), ("tools/drop", None, "-32601")]
    {
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, params));
        let error = client.send_request(request).await.unwrap_err().to_string();
        assert!(error.contains(code) && error.contains(method), "{error}");
    }
    // Some clients send all arguments as one text.
    let text = json!({"name": "why_not_ready", "arguments": "{\"name\": \"pr-7\"}"});
    let request = ClientRequest::CustomRequest(CustomRequest::new("tools/call", Some(text)));
    let result = client.send_request(request).await.unwrap();
    assert!(format!("{result:?}").contains("db/make failed"), "{result:?}");
    client.cancel().await.unwrap();
    server.await.unwrap();
}

/// A client of each version of the protocol discovers, lists and calls, also if the API does not know or say its scopes.
#[tokio::test]
async fn a_client_lists_and_calls_tools() {
    let newest = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let caller = |status: u16, body: Value| CannedApi::with("GET /v1/caller", status, body);
    let unknown = caller(401, json!({"status": 401, "code": "invalid-token", "detail": "the token is unknown"}));
    let silent = caller(502, json!("Bad Gateway"));
    for lifecycle in [ClientLifecycleMode::Initialize, newest] {
        for (api, access, expected) in [
            (&CannedApi::new(reply), ToolAccess::ByScopes, 17),
            (&CannedApi::new(reply), ToolAccess::ReadOnly, 13),
            (&unknown, ToolAccess::ByScopes, 13),
            (&silent, ToolAccess::ByScopes, 17),
            (&silent, ToolAccess::ReadOnly, 13),
        ] {
            let (near, far) = tokio::io::duplex(64 << 10);
            let server = EbbTools::new(api.clone(), access);
            let server = tokio::spawn(async move { server.serve(far).await.unwrap().waiting().await.unwrap() });
            let client = ().serve_with_lifecycle(near, lifecycle.clone()).await.unwrap();
            let listed = client.list_all_tools().await.unwrap();
            assert_eq!(listed.len(), expected, "{lifecycle:?} {access:?}");
            let arguments = json!({"name": "pr-7"}).as_object().cloned().unwrap();
            let request = CallToolRequestParams::new("why_not_ready").with_arguments(arguments);
            let result = client.call_tool(request).await.unwrap();
            assert!(text(&result).contains("db/make failed"), "{result:?}");
            client.cancel().await.unwrap();
            server.await.unwrap();
        }
    }
}
