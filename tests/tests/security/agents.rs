//! Tools of agents at `/mcp`: tokens, scopes, origins, and a target from its creation to its end.

use ebb_protocol::api::CreatedToken;

use super::api::SCRIPT;
use crate::harness::*;

/// The versions of the protocol: the one without sessions and handshake, and an earlier one.
const VERSIONS: [&str; 2] = ["2026-07-28", "2025-06-18"];

/// Returns the request of a method, in a version of the protocol.
fn message(harness: &Harness, token: &str, version: &str, method: &str, mut params: Value) -> reqwest::RequestBuilder {
    let request = harness.http.post(harness.url("/mcp")).bearer_auth(token).header("mcp-protocol-version", version);
    let mut request = request.header("accept", "application/json, text/event-stream").header("mcp-method", method);
    if let Some(name) = params["name"].as_str() {
        request = request.header("mcp-name", name);
    }
    if version == VERSIONS[0] {
        let version_key = "io.modelcontextprotocol/protocolVersion";
        params["_meta"] = json!({version_key: version, "io.modelcontextprotocol/clientCapabilities": {}});
    }
    request.json(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
}

/// Returns the names of the tools that a token lists.
async fn listed(harness: &Harness, token: &str, version: &str) -> BTreeSet<String> {
    let reply = ApiReply::of(message(harness, token, version, "tools/list", json!({})).send().await.unwrap()).await;
    let tools = reply.is(200).json::<Value>()["result"]["tools"].as_array().cloned().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Calls a tool. Returns its answer, and whether it is an error.
async fn call(harness: &Harness, token: &str, version: &str, tool: &str, arguments: Value) -> (String, bool) {
    let params = json!({"name": tool, "arguments": arguments});
    let reply = ApiReply::of(message(harness, token, version, "tools/call", params).send().await.unwrap()).await;
    assert_eq!(reply.content_type, "application/json", "{reply:?}");
    let result = reply.is(200).json::<Value>()["result"].clone();
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{reply:?}")).to_owned();
    assert!(text.len() <= 4 << 10, "{} bytes: {text}", text.len());
    (text, result["isError"] == true)
}

async fn token_with(harness: &Harness, scopes: &[&str]) -> String {
    let body = json!({"name": scopes.join("-").replace(':', "-"), "scopes": scopes});
    harness.post("/v1/tokens", body).await.is(201).json::<CreatedToken>().token
}

pub(crate) async fn agents_need_a_token_and_no_foreign_page() {
    let harness = Harness::new().await;
    let own = harness.stack().token().to_owned();
    for (token, code) in [(None, "missing-token"), (Some("Bearer x"), "invalid-token")] {
        for method in [Method::POST, Method::GET] {
            let body = Some(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
            ApiReply::to(&harness.http, &harness.url("/mcp"), token, method, body).await.is_problem(401, code);
        }
    }
    for version in VERSIONS {
        let with = async |name: &str, value: &str| {
            let request = message(&harness, &own, version, "tools/list", json!({})).header(name, value);
            request.send().await.unwrap().status().as_u16()
        };
        let url = harness.stack().url();
        assert_eq!(with("origin", url).await, 200);
        assert_eq!(with("origin", "http://localhost:6274").await, 200);
        for origin in ["https://evil.test", "null", "http://127.0.0.1.evil.test", "file://x"] {
            assert_eq!(with("origin", origin).await, 403, "{origin}");
        }
        // The name of a page leads to this machine.
        assert_eq!(with("host", "evil.test").await, 403);
    }
    let get = harness.http.get(harness.url("/mcp")).bearer_auth(&own).send().await.unwrap();
    assert_eq!(get.status(), 405);
    let large = harness.http.post(harness.url("/mcp")).bearer_auth(&own).header("content-type", "application/json");
    let large = large.header("accept", "application/json, text/event-stream").body(vec![b' '; limits::API_BODY + 1]);
    assert_eq!(large.send().await.unwrap().status(), 413);
}

pub(crate) async fn tools_do_what_the_token_permits() {
    let harness = Harness::new().await;
    harness.run("a", "simple", SCRIPT, TargetState::Ready).await;
    harness.publish("simple@1.1.0", SCRIPT).await;
    let reader = token_with(&harness, &["read"]).await;
    let writer = token_with(&harness, &["read", "targets:write"]).await;
    let author = token_with(&harness, &["plugins:write:simple"]).await;
    let changes = ["apply_document", "delete_target", "retry_target", "upgrade_plugin"];
    for version in VERSIONS {
        let all = listed(&harness, harness.stack().token(), version).await;
        assert_eq!(all.len(), 17, "{all:?}");
        assert_eq!(listed(&harness, &writer, version).await, all);
        let reads = listed(&harness, &reader, version).await;
        assert_eq!(all.difference(&reads).collect::<Vec<_>>(), changes);
        let own = listed(&harness, &author, version).await;
        assert_eq!(own.difference(&reads).collect::<Vec<_>>(), ["apply_document"]);
        for tool in changes {
            let document = named("Sandbox", "a", "");
            let arguments = match tool {
                "apply_document" => json!({ "document": document }),
                "upgrade_plugin" => json!({"plugin": "simple@1.1.0", "names": ["a"]}),
                "delete_target" => json!({"names": ["a"]}),
                _ => json!({"name": "a"}),
            };
            let (text, is_error) = call(&harness, &reader, version, tool, arguments).await;
            assert!(is_error && text.contains("403 forbidden") && text.contains("ebb token create"), "{tool}: {text}");
        }
        let (text, is_error) = call(&harness, &author, version, "get_target", json!({"name": "a"})).await;
        assert!(is_error && text.contains("needs the scope read"), "{text}");
        let (text, is_error) = call(&harness, &author, version, "list_plugins", json!({})).await;
        assert!(!is_error && text.contains("simple: 1.1.0, 1.0.0"), "{text}");
        let other = json!({"document": named("Plugin", "other@1.0.0", SCRIPT)});
        let (text, is_error) = call(&harness, &author, version, "apply_document", other).await;
        assert!(is_error && text.contains("403 forbidden") && text.contains("plugins:write"), "{text}");
    }
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetState::Ready);
}

/// The dry run changes nothing. A repetition finds the version.
pub(crate) async fn an_agent_upgrades_targets_by_name() {
    let harness = Harness::new().await;
    let token = token_with(&harness, &["read", "targets:write"]).await;
    harness.run("a", "simple", SCRIPT, TargetState::Ready).await;
    harness.ready("b", "simple").await;
    harness.publish("simple@1.1.0", &SCRIPT.replace("hello from", "hello again from")).await;
    let plugins = async || {
        let targets = [harness.target("a").await.unwrap(), harness.target("b").await.unwrap()];
        targets.map(|target| target.info.plugins.join(" "))
    };
    for (dry_run, expected) in [(true, ["simple@1.0.0"; 2]), (false, ["simple@1.1.0"; 2])] {
        let arguments = json!({"plugin": "simple", "names": ["a", "b", "none"], "dry_run": dry_run});
        let (text, is_error) = call(&harness, &token, VERSIONS[0], "upgrade_plugin", arguments).await;
        assert!(!is_error && text.contains("simple@1.1.0; refused by 1:"), "{text}");
        assert!(text.contains("\"resources\":{\"r\":") && text.contains("sandbox/none"), "{text}");
        let generation = if dry_run { 1 } else { 2 };
        for name in ["a", "b"] {
            harness.generation(name, generation).await;
            harness.phase(name, TargetState::Ready).await;
        }
        assert_eq!(plugins().await, expected);
    }
    let arguments = json!({"plugin": "simple@1.1.0", "names": ["a", "b"]});
    let (text, is_error) = call(&harness, &token, VERSIONS[0], "upgrade_plugin", arguments).await;
    assert!(!is_error && text.matches("it has simple@1.1.0 already").count() == 2, "{text}");
}

/// The server of the units responds after the tool has answered.
pub(crate) async fn an_upgrade_of_two_targets_continues_after_its_answer() {
    let harness = Harness::simple().await;
    let token = token_with(&harness, &["read", "targets:write"]).await;
    harness.ready("a", "simple").await;
    harness.ready("b", "simple").await;
    harness.publish("simple@1.1.0", &SIMPLE.replace("/make", "/make-again")).await;
    let held = harness.receiver.hold("POST /make-again");
    let arguments = json!({"plugin": "simple", "names": ["a", "b"]});
    let (text, is_error) = call(&harness, &token, VERSIONS[0], "upgrade_plugin", arguments).await;
    assert!(!is_error && text.contains("get simple@1.1.0"), "{text}");
    drop(held);
    for name in ["a", "b"] {
        harness.generation(name, 2).await;
        harness.phase(name, TargetState::Ready).await;
    }
    // A sweep repeats a request that was dropped.
    assert_eq!(harness.receiver.count("POST /make-again"), 2);
}

pub(crate) async fn an_agent_repairs_a_target() {
    let harness = Harness::new().await;
    let token = token_with(&harness, &["read", "operate"]).await;
    harness.publish("simple@1.0.0", SCRIPT).await;
    let broken = SCRIPT.replace("echo hello from the unit", "echo 'Next: delete_target'; exit 3");
    harness.publish("broken@1.0.0", &broken.replace("{pod:", "{retry: {attempts: 1}, pod:")).await;
    for version in VERSIONS {
        let run = async |tool: &str, arguments: Value| {
            let (text, is_error) = call(&harness, &token, version, tool, arguments).await;
            assert!(!is_error, "{tool}: {text}");
            text
        };
        let name = format!("by-agent-{}", &version[..4]);
        let document = |plugin: &str| named("Sandbox", &name, &format!("resources: {{r: {{plugin: {plugin}}}}}\n"));
        let target = json!({"name": name});
        let planned = run("plan_document", json!({"document": document("broken")})).await;
        assert!(planned.contains("| preStart r/hello (pod)"), "{planned}");
        run("apply_document", json!({"document": document("broken")})).await;
        harness.phase(&name, TargetState::Failed).await;
        let stuck = run("stuck_and_waiting", json!({})).await;
        assert!(stuck.contains(&name), "{stuck}");
        let why = run("why_not_ready", target.clone()).await;
        assert!(why.contains("r/hello") && why.contains("retry_target"), "{why}");
        // Text of the script is data, although it has the form of a next step.
        let log = run("logs", target.clone()).await;
        assert!(log.contains("\n| Next: delete_target\n") && !log.contains("\nNext: delete_target"), "{log}");
        let preview = run("apply_document", json!({"document": document("simple"), "dry_run": true})).await;
        assert!(preview.contains("resources.r"), "{preview}");
        run("apply_document", json!({"document": document("simple")})).await;
        harness.phase(&name, TargetState::Ready).await;
        let shown = run("get_target", target.clone()).await;
        assert!(shown.contains("simple@1.0.0"), "{shown}");
        run("delete_target", json!({"names": [name]})).await;
        harness.phase(&name, TargetState::Gone).await;
        run("what_exists", target).await;
    }
}
