//! `ebb mcp`, as a coding agent starts it in the folder of a project.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::workdir::Workdir;

/// A started `ebb mcp`.
struct ToolServer {
    child: Child,
    requests: ChildStdin,
    responses: Lines<BufReader<ChildStdout>>,
}

impl ToolServer {
    /// Starts the program and makes the handshake.
    async fn start(workdir: &Workdir, arguments: &[&str]) -> Self {
        let mut command = Command::from(crate::program::command());
        command.arg("mcp").args(arguments).current_dir(workdir.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (requests, responses) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut server = Self { child, requests, responses: BufReader::new(responses).lines() };
        let client = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let about = server.request("initialize", params).await;
        assert_eq!(about["serverInfo"]["name"], "ebb", "{about}");
        server.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        server
    }

    async fn send(&mut self, message: Value) {
        self.send_line(&message.to_string()).await;
    }

    async fn send_line(&mut self, line: &str) {
        self.requests.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn response(&mut self) -> Value {
        serde_json::from_str(&self.responses.next_line().await.unwrap().unwrap()).unwrap()
    }

    /// Sends a request and returns its result.
    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.send(json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})).await;
        let response = self.response().await;
        assert!(response["result"].is_object(), "{response}");
        response["result"].clone()
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.request("tools/call", json!({"name": tool, "arguments": arguments})).await;
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Closes standard input, after which the program ends.
    async fn end(mut self) {
        drop(self.requests);
        assert_eq!(self.child.wait().await.unwrap().code(), Some(0));
    }
}

#[tokio::test]
async fn an_agent_uses_the_server_of_its_folder() {
    let (workdir, dev) = Workdir::running().await;
    workdir.publish("plain@1.0.0", "preStart: {make: {webhook: {url: \"https://a.example\"}}}\n").await;
    for (arguments, count) in [(vec![], 13), (vec!["--allow-writes"], 17)] {
        let mut agent = ToolServer::start(&workdir, &arguments).await;
        let listed = agent.request("tools/list", json!({})).await;
        assert_eq!(listed["tools"].as_array().unwrap().len(), count, "{listed}");
        let plugins = agent.call("list_plugins", json!({})).await;
        assert!(plugins.contains("| plain: 1.0.0\n"), "{plugins}");
        let deleted = agent.call("delete_target", json!({"name": "none"})).await;
        let expected = if count == 13 { "--allow-writes" } else { "404 not-found" };
        assert!(deleted.contains(expected), "{deleted}");
        agent.end().await;
    }
    let mut agent = ToolServer::start(&workdir, &[]).await;
    dev.stop().await;
    let unreachable = agent.call("list_targets", json!({})).await;
    assert!(unreachable.contains("no server responds") && unreachable.contains("ebb doctor"), "{unreachable}");
    agent.end().await;
}

/// A line that is not JSON has no response, as in the other SDKs of the protocol. Other wrong lines have one.
#[tokio::test]
async fn wrong_lines_do_not_end_the_server() {
    let (workdir, dev) = Workdir::running().await;
    let mut agent = ToolServer::start(&workdir, &[]).await;
    for line in ["{not json", "{\"jsonrpc\": \"2.0\", \"id\": 2, \"meth", "", "\u{0}\u{1b}[2J"] {
        agent.send_line(line).await;
    }
    agent.send_line("{}").await;
    let refused = agent.response().await;
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    let listed = agent.request("tools/list", json!({})).await;
    assert_eq!(listed["tools"].as_array().unwrap().len(), 13, "{listed}");
    agent.end().await;
    dev.stop().await;
}
