//! Tests of the tools with an API of canned responses: their requests, their answers, and a client of the protocol.

mod canned;

use ebb_protocol::api::{ActOnTargets, TargetPhase};
use rmcp::model::{CallToolRequestParams, CallToolResult, ClientRequest, CustomRequest, ProtocolVersion};
use rmcp::{ClientLifecycleMode, ClientServiceExt as _, ServiceExt as _};
use serde_json::{Value, json};

use canned::{CannedApi, DOCUMENT, PLUGIN, STORED, detail, history, info, reply};

use crate::mcp::answer::MAX_ANSWER;
use crate::mcp::tool_table::{TOOLS, ToolEffect};
use crate::mcp::{EbbTools, ToolAccess};

/// Returns the outcome of an action on `pr-7`, with other members.
fn outcome(others: Value) -> Value {
    let mut outcome = json!({"kind": "sandbox", "name": "pr-7", "uid": "u", "phase": "ready", "dryRun": false});
    others.as_object().unwrap().iter().for_each(|(name, value)| outcome[name] = value.clone());
    outcome
}

/// Returns the outcome for a target that was refused.
fn refusal(name: &str, code: &str, error: &str) -> Value {
    json!({"kind": "sandbox", "name": name, "dryRun": false, "code": code, "error": error})
}

/// Returns the line of a request for an action.
fn acted(select: Value, action: Value, dry_run: bool) -> String {
    let request = json!({"select": select, "action": action, "dryRun": dry_run});
    let request: ActOnTargets = serde_json::from_value(request).unwrap();
    format!("POST /v1/targets/actions {}", json!(request))
}

async fn call(tools: &EbbTools, tool: &'static str, arguments: Value) -> CallToolResult {
    let arguments = arguments.as_object().cloned().unwrap();
    tools.call(CallToolRequestParams::new(tool).with_arguments(arguments)).await.unwrap()
}

fn text(result: &CallToolResult) -> &str {
    let [content] = &result.content[..] else { panic!("{result:?}") };
    &content.as_text().unwrap().text
}

/// Calls of tools with their requests: `TOOL ARGUMENTS => REQUEST => REQUEST`. `DOCUMENT`, `STORED` and `PLUGIN` stand for the
/// documents of these names, and `PR` for the kind and the name of a target.
const CALLS: &str = include_str!("../../tests/tool_calls.txt");

#[tokio::test]
async fn each_tool_sends_its_requests() {
    let documents = [("DOCUMENT", DOCUMENT), ("STORED", STORED), ("PLUGIN", PLUGIN)];
    let calls = CALLS.replace("PR", r#""kind":"sandbox","name":"pr-7""#);
    let calls = documents.iter().fold(calls, |calls, (name, text)| calls.replace(name, &json!(text).to_string()));
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
        let result = call(&tools, tool, serde_json::from_str(arguments).unwrap()).await;
        let text = text(&result);
        assert_eq!(result.is_error, Some(false), "{tool} {arguments}: {text}");
        assert_eq!(api.take_sent(), parts.collect::<Vec<&str>>(), "{tool} {arguments}");
        assert!(text.len() <= MAX_ANSWER && text.lines().last().unwrap().starts_with("Next: "), "{tool}: {text}");
    }
}

#[tokio::test]
async fn answers_have_the_cause_and_the_next_step() {
    let tools = CannedApi::new(reply).tools();
    let why = call(&tools, "why_not_ready", json!({"name": "pr-7"})).await;
    let shown = text(&why);
    for expected in ["| summary: db/make failed", "- ebb retry pr-7", "- no space", "retry_target {\"name\":\"pr-7\"}"]
    {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let waiting = call(&tools, "stuck_and_waiting", json!({})).await;
    let shown = text(&waiting);
    assert!(shown.contains("sandbox/pr-6") && !shown.contains("sandbox/pr-7"), "{shown}");
    assert!(shown.contains("\"waiting\":[\"update 4 since 2026-11-21T09:00:10.000Z\"]"), "{shown}");
}

/// One target of two gets the version. The other one does not exist.
#[tokio::test]
async fn an_upgrade_shows_its_effect_and_its_refusals() {
    let receipt = json!({
        "target": "sandbox/pr-7", "uid": "u", "generation": 2, "result": "updating", "url": "http://x",
        "resources": {"db": "replaced"},
    });
    let none = refusal("none", "not-found", "sandbox \"none\" does not exist");
    let mixed = json!({"outcomes": [outcome(json!({"update": receipt})), none], "plugin": "db@1.0.0"});
    let tools = CannedApi::with("", 200, mixed).tools();
    for (dry_run, title) in [(true, "This would be changed by db@1.0.0"), (false, "The targets get db@1.0.0")] {
        let arguments = json!({"plugin": "db", "names": ["pr-7", "none"], "dry_run": dry_run});
        let result = call(&tools, "upgrade_plugin", arguments).await;
        let shown = text(&result);
        assert_eq!(result.is_error, Some(false), "{shown}");
        assert!(shown.starts_with(&format!("{title}; refused for 1:\n")), "{shown}");
        for expected in [r#""resources":{"db":"replaced"}"#, r#"sandbox \"none\" does not exist"#] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
    }
    let none = json!({"outcomes": [refusal("none", "not-found", "no such target")]});
    let arguments = json!({"plugin": "db@1.0.0", "names": ["none"]});
    let refused = call(&CannedApi::with("", 200, none).tools(), "upgrade_plugin", arguments).await;
    assert!(refused.is_error == Some(true) && text(&refused).contains("404 not-found"), "{refused:?}");
    let gone = ["gone-1", "gone-2"].map(|name| refusal(name, "stale", "the target is gone"));
    let others = [refusal("none", "not-found", "no such target"), refusal("pr-7", "internal", "it failed")];
    let outcomes = [gone, others].concat();
    let all = json!({"outcomes": outcomes});
    let arguments = json!({"plugin": "db@1.0.0", "names": ["gone-1", "gone-2", "none", "pr-7"]});
    let refused = call(&CannedApi::with("", 200, all).tools(), "upgrade_plugin", arguments).await;
    insta::assert_snapshot!(text(&refused), @r#"
    Every target was refused:
    | {"target":"sandbox/gone-1","error":"the target is gone"}
    | {"target":"sandbox/gone-2","error":"the target is gone"}
    | {"target":"sandbox/none","error":"no such target"}
    | {"target":"sandbox/pr-7","error":"it failed"}
    Next: remove each cause or leave the target out, then call the tool again
    "#);
    for names in [json!([]), json!((0..21).map(|number| format!("pr-{number}")).collect::<Vec<_>>())] {
        let refused = call(&tools, "upgrade_plugin", json!({"plugin": "db", "names": names})).await;
        assert!(text(&refused).contains("expected 1 to 20"), "{refused:?}");
    }
}

/// The target has the version already, so there is nothing to repeat or to wait for.
#[tokio::test]
async fn an_upgrade_without_a_change_says_so() {
    let receipt =
        json!({"target": "sandbox/pr-7", "uid": "u", "generation": 1, "result": "unchanged", "url": "http://x"});
    let unchanged = json!({"outcomes": [outcome(json!({"update": receipt}))], "plugin": "db@1.0.0"});
    let tools = CannedApi::with("", 200, unchanged).tools();
    for dry_run in [true, false] {
        let arguments = json!({"plugin": "db@1.0.0", "names": ["pr-7"], "dry_run": dry_run});
        let result = call(&tools, "upgrade_plugin", arguments).await;
        let shown = text(&result);
        assert!(shown.contains("it has this version already") && shown.contains("\nNext: nothing changes"), "{shown}");
    }
}

/// Targets of a filter are shown. A call deletes those that it names.
#[tokio::test]
async fn a_filter_deletes_nothing_by_itself() {
    let shown = |number: u32| {
        let (name, uid) = (format!("pr-{number}-{}", "x".repeat(60)), format!("u-{number}"));
        json!({"kind": "sandbox", "name": name, "uid": uid, "phase": "ready", "dryRun": true})
    };
    let outcomes: Vec<Value> = (100..200).map(shown).collect();
    let next = json!({"filter": {"label": ["team=x"], "nextToken": "sandbox/pr-199"}});
    let api = CannedApi::with("", 200, json!({"outcomes": outcomes, "next": next}));
    let tools = api.tools();
    let arguments = json!({"filters": {"label": "team=x"}, "kind": "sandbox"});
    let result = call(&tools, "delete_target", arguments).await;
    let shown = text(&result);
    assert!(shown.starts_with("These targets would be deleted with all their resources:\n| {\"kind\":"), "{shown}");
    assert!(shown.contains("\"uid\":\"u-100\"") && shown.contains("More targets follow: delete these"), "{shown}");
    assert_eq!(shown.matches("\"uid\"").count(), 20, "{shown}");
    assert!(shown.contains("\nNext: ask a person") && shown.len() <= MAX_ANSWER, "{shown}");
    let living = ["starting", "ready", "updating", "failed"];
    let filter = json!({"filter": {"kind": "sandbox", "phase": living, "label": ["team=x"]}});
    assert_eq!(api.take_sent(), [acted(filter, json!({"delete": {}}), true)]);
    // A page of the list can be empty although more follow.
    let empty = json!({"outcomes": [], "next": {"filter": {"nextToken": "sandbox/pr-199"}}});
    let result = call(&CannedApi::with("", 200, empty).tools(), "delete_target", json!({"filters": {"q": "x"}})).await;
    assert!(text(&result).contains(r#"add {"after":"sandbox/pr-199"} to the filters"#), "{result:?}");
    let none = json!({"outcomes": []});
    let result = call(&CannedApi::with("", 200, none).tools(), "delete_target", json!({"filters": {"q": "x"}})).await;
    assert!(text(&result).starts_with("No target fits.\n"), "{result:?}");
}

/// The next step of an empty list names no element of it.
#[tokio::test]
async fn an_empty_list_has_a_step_of_its_own() {
    let tools = CannedApi::with("", 200, json!({"targets": [], "plugins": [], "clusters": []})).tools();
    for (tool, expected) in [
        ("list_targets", "No target fits.\nNext: list_targets with other filters"),
        ("stuck_and_waiting", "0 of 0 targets are failed, stuck or waiting:\nNext: list_targets shows the others"),
        ("list_plugins", "No plugin is published.\nNext: apply_document publishes one"),
        ("list_clusters", "No cluster is connected.\nNext: ask a person to connect one"),
    ] {
        let result = call(&tools, tool, json!({})).await;
        assert!(text(&result).starts_with(expected), "{}", text(&result));
    }
}

/// A script can print nothing.
#[tokio::test]
async fn an_empty_log_is_called_empty() {
    let result = call(&CannedApi::with("/logs", 200, json!("")).tools(), "logs", json!({"name": "pr-7"})).await;
    let expected = "The log of db/make in run r-1-pre-start is empty.\nNext: why_not_ready {\"name\":\"pr-7\"}\n";
    assert_eq!(text(&result), expected);
}

#[tokio::test]
async fn a_long_log_is_read_from_its_end() {
    let long: String = (1..=1_000).map(|line| format!("line {line}\n")).collect();
    let tools = CannedApi::with("/logs", 200, json!(long)).tools();
    let (mut skip, mut first) = (0, usize::MAX);
    for _ in 0..3 {
        let result = call(&tools, "logs", json!({"name": "pr-7", "skip": skip})).await;
        let text = text(&result);
        let shown: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| line ")).collect();
        assert_eq!(shown.last().unwrap().parse::<usize>().unwrap(), first.min(1_001) - 1, "{text}");
        first = shown[0].parse().unwrap();
        skip += shown.len();
        assert_eq!(text.contains(&format!("\"skip\": {skip}.")), first > 1, "{text}");
    }
    assert_eq!(first, 1, "three answers have all lines");
}

#[tokio::test]
async fn a_long_list_continues_after_its_last_row() {
    fn long(request: &str) -> (u16, Value) {
        let first = if request.contains("nextToken=x") { 200 } else { 100 };
        let next = if first == 100 { json!("x") } else { Value::Null };
        let targets = (first..first + 100).map(|number| info(&format!("pr-{number}"), TargetPhase::Ready));
        (200, json!({"targets": targets.collect::<Vec<_>>(), "nextToken": next}))
    }
    let tools = CannedApi::new(long).tools();
    let (mut arguments, mut expected) = (json!({}), 100);
    while expected < 300 {
        let result = call(&tools, "list_targets", arguments.clone()).await;
        let text = text(&result);
        for row in text.lines().filter_map(|line| line.strip_prefix("| ")) {
            assert!(row.contains(&format!("\"sandbox/pr-{expected}\"")), "{expected}: {row}");
            expected += 1;
        }
        let place = text.split_once("the same arguments and ").map(|(_, rest)| rest.split_once(".\n").unwrap().0);
        assert_eq!(place.is_some(), expected < 300, "{text}");
        arguments = place.map_or(Value::Null, |place| serde_json::from_str(place).unwrap());
    }
}

#[tokio::test]
async fn errors_have_detail_and_fix() {
    let forbidden = json!({"status": 403, "code": "forbidden", "detail": "the request needs the scope read"});
    let tools = CannedApi::with("", 403, forbidden).tools();
    let result = call(&tools, "get_target", json!({"name": "a"})).await;
    assert_eq!(result.is_error, Some(true));
    insta::assert_snapshot!(text(&result), @r"
    The API refused the request: 403 forbidden.
    | the request needs the scope read
    Next: ask a person with the scope `operate` for a token with that scope: ebb token create NAME --scope SCOPE
    ");
    let result = call(&tools, "get_target", json!({"nam": "a"})).await;
    assert!(text(&result).contains("unknown field `nam`"), "{}", text(&result));
    for (arguments, expected) in [
        (json!({"plugin": "db", "names": "pr-7"}), "| names: invalid type: string \"pr-7\""),
        (json!({"plugin": "db", "names": ["pr-7", 4]}), "| names[1]: invalid type: integer `4`"),
        (json!({"names": ["pr-7"]}), "| missing field `plugin`"),
    ] {
        let result = call(&tools, "upgrade_plugin", arguments).await;
        assert!(text(&result).contains(expected), "{expected}: {}", text(&result));
    }
    let result = call(&tools, "get_target", json!({"name": ".."})).await;
    assert!(text(&result).contains("is not a name"), "{}", text(&result));
    let result = call(&tools, "validate_plugin", json!({"document": "kind: Plugin\nname: 1\n"})).await;
    assert!(result.is_error == Some(true) && text(&result).contains("| document:"), "{}", text(&result));
    let unknown = tools.call(CallToolRequestParams::new("drop_all")).await.unwrap_err();
    assert!(unknown.message.contains("drop_all"), "{unknown:?}");
    let long = tools.call(CallToolRequestParams::new("x".repeat(9_000))).await.unwrap_err();
    assert!(long.message.len() < 200, "{long:?}");
}

/// The next step of an error says what to change.
#[tokio::test]
async fn a_refusal_has_a_step_for_its_status() {
    for (status, expected) in [
        (400, "correct the document or the argument"),
        (404, "correct the argument"),
        (409, "why_not_ready"),
        (413, "correct the document or the argument"),
        (429, "wait"),
        (503, "call the tool again"),
    ] {
        let refused = CannedApi::with("", status, json!({"status": status, "code": "x", "detail": "no"}));
        let result = call(&refused.tools(), "get_target", json!({"name": "pr-7"})).await;
        let shown = text(&result);
        assert!(shown.contains(&format!("\nNext: {expected}")), "{shown}");
    }
    // A gateway before the API has its own text.
    let busy = CannedApi::with("", 429, json!("Too Many Requests"));
    let result = call(&busy.tools(), "list_targets", json!({})).await;
    let shown = text(&result);
    assert!(shown.contains("429 busy") && shown.contains("\nNext: wait for some seconds"), "{shown}");
}

/// A request for more has another argument than the call.
#[tokio::test]
async fn a_long_answer_names_another_way_to_the_rest() {
    let mut detail = json!(detail());
    let unit = detail["runs"][0]["units"][0].clone();
    detail["runs"][0]["units"] = json!(vec![unit; 90]);
    let tools = CannedApi::with("", 200, detail).tools();
    let result = call(&tools, "get_target", json!({"name": "pr-7"})).await;
    assert!(text(&result).contains("call get_target with \"resource\", or run `ebb get sandbox pr-7"), "{result:?}");
    let result = call(&tools, "get_target", json!({"name": "pr-7", "resource": "db"})).await;
    assert!(text(&result).contains("\nMore was left out: run `ebb get sandbox pr-7"), "{result:?}");
    let unit = |number: u32| json!({"unit": format!("db/u-{number}"), "kind": "pod", "after": [], "rendered": {}});
    let units: Vec<Value> = (0..90).map(unit).collect();
    let plan = json!({"digest": "d", "hooks": [{"hook": "preStart", "units": units}]});
    let tools = CannedApi::with("", 200, plan).tools();
    let result = call(&tools, "plan_document", json!({"document": DOCUMENT, "unit": "db/none"})).await;
    let shown = text(&result);
    assert!(shown.contains("the first of its 90 units: db/u-0, ") && shown.contains("db/u-19\n"), "{shown}");
}

/// Such an argument would otherwise give an answer about nothing.
#[tokio::test]
async fn an_argument_that_fits_nothing_is_an_error() {
    let tools = CannedApi::new(reply).tools();
    let rows: Vec<(String, Value, String)> =
        serde_saphyr::from_str(include_str!("../../tests/refused_arguments.yaml")).unwrap();
    for (name, arguments, expected) in rows {
        let tool = TOOLS.iter().find(|tool| tool.name == name).unwrap().name;
        let result = call(&tools, tool, arguments.clone()).await;
        let shown = text(&result);
        assert!(result.is_error == Some(true) && shown.contains(&expected), "{tool} {arguments}: {shown}");
        assert!(shown.ends_with("Next: correct the arguments, then call the tool again\n"), "{tool}: {shown}");
    }
}

/// A document that is longer than an answer is read in parts, and applied again without being copied.
#[tokio::test]
async fn a_long_document_of_the_history_is_read_in_parts() {
    let mut detail = history()["detail"].clone();
    detail["text"] = (1..=400).map(|line| format!("# line {line} of a document\n")).collect::<String>().into();
    let tools = CannedApi::with("", 200, detail).tools();
    let (mut from_line, mut answers) = (1, 0);
    while from_line <= 400 {
        let arguments = json!({"name": "pr-7", "entry": "2-a", "from_line": from_line});
        let result = call(&tools, "history", arguments).await;
        let shown = text(&result);
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
        let result = call(&tools, tool.name, json!({"name": "pr-7", "document": DOCUMENT})).await;
        assert_eq!(result.is_error, Some(true), "{}", text(&result));
        let [head, reason, next] = text(&result).lines().collect::<Vec<_>>()[..] else { panic!("{}", text(&result)) };
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
