//! Tools of agents at `/mcp`: tokens, scopes, origins, and changes that continue after the answer.

use super::api::SCRIPT;
use crate::harness::*;

/// The versions of the protocol: the one without sessions and handshake, and an earlier one.
const VERSIONS: [&str; 2] = ["2026-07-28", "2025-06-18"];

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

async fn listed(harness: &Harness, token: &str, version: &str) -> BTreeSet<String> {
    let reply = ApiReply::to(message(harness, token, version, "tools/list", json!({}))).await;
    let tools = reply.is(200).json::<Value>()["result"]["tools"].as_array().cloned().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Calls a tool. Returns its answer, and whether it is an error.
async fn call(harness: &Harness, token: &str, version: &str, tool: &str, arguments: Value) -> (String, bool) {
    let params = json!({"name": tool, "arguments": arguments});
    let reply = ApiReply::to(message(harness, token, version, "tools/call", params)).await;
    assert_eq!(reply.header("content-type"), "application/json", "{reply:?}");
    let result = reply.is(200).json::<Value>()["result"].clone();
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{reply:?}")).to_owned();
    assert!(text.len() <= 4 << 10, "{} bytes: {text}", text.len());
    (text, result["isError"] == true)
}

async fn token_with(harness: &Harness, scopes: &[&str]) -> String {
    harness.token(&scopes.join("-").replace(':', "-"), scopes).await
}

pub(crate) async fn agents_need_a_token_and_no_foreign_page() {
    let harness = Harness::new().await;
    let own = harness.stack().token().to_owned();
    for (caller, code) in [(harness.anonymous(), "missing-token"), (harness.caller("x"), "invalid-token")] {
        for method in [Method::POST, Method::GET] {
            let body = Some(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
            caller.request(method, "/mcp", body).await.is_problem(401, code);
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
    harness.run("a", "simple", SCRIPT, TargetPhase::Ready).await;
    harness.publish("simple@1.1.0", SCRIPT).await;
    let reader = token_with(&harness, &["read"]).await;
    let writer = token_with(&harness, &["read", "targets:write"]).await;
    let author = token_with(&harness, &["plugins:write:simple"]).await;
    let changes = ["apply_document", "delete_target", "retry_target", "upgrade_plugin"];
    let target = json!({"document": named("Sandbox", "a", "")});
    let plugin = json!({"document": named("Plugin", "other@1.0.0", SCRIPT)});
    for version in VERSIONS {
        let all = listed(&harness, harness.stack().token(), version).await;
        assert_eq!(all.len(), 17, "{all:?}");
        assert_eq!(listed(&harness, &writer, version).await, all);
        let reads = listed(&harness, &reader, version).await;
        assert_eq!(all.difference(&reads).collect::<Vec<_>>(), changes);
        let own = listed(&harness, &author, version).await;
        assert_eq!(own.difference(&reads).collect::<Vec<_>>(), ["apply_document"]);
        for (token, tool, arguments, text) in [
            (&reader, "apply_document", target.clone(), "ebb token create"),
            (&reader, "delete_target", json!({"targets": [{"name": "a"}]}), "403 forbidden"),
            (&reader, "retry_target", json!({"name": "a"}), "403 forbidden"),
            (&reader, "upgrade_plugin", json!({"plugin": "simple@1.1.0", "names": ["a"]}), "403 forbidden"),
            (&author, "get_target", json!({"name": "a"}), "needs the scope read"),
            (&author, "apply_document", plugin.clone(), "plugins:write"),
        ] {
            let (answer, is_error) = call(&harness, token, version, tool, arguments).await;
            assert!(is_error && answer.contains(text), "{tool}: {answer}");
        }
    }
    assert_eq!(harness.target("a").await.unwrap().info.phase, TargetPhase::Ready);
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
        harness.phase(name, TargetPhase::Ready).await;
    }
    // A sweep repeats a request that was dropped.
    assert_eq!(harness.receiver.count("POST /make-again"), 2);
}
