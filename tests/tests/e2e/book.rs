//! Runs the commands and examples of the book and compares their output with the page.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ebb_tests::markdown::{self, CodeBlock};
use serde_json::{Value, json};

use crate::platform::named;
use crate::program;
use crate::receiver::TestReceiver;
use crate::workdir::{WAIT_TIMEOUT, Workdir};

/// A command of a page and its expected result.
struct Step {
    is_server: bool,
    command: String,
    exit_code: i32,
    /// `[..]` matches any text in a line. A line `...` matches any lines.
    output: Vec<String>,
}

impl Step {
    /// Returns the step of a block of a console.
    fn of(block: &CodeBlock) -> Self {
        let (command, printed) = block.text.split_once('\n').expect("a command");
        let (first, rest) = printed.split_once('\n').unwrap_or_default();
        let exit_code = first.strip_prefix("? ").and_then(|code| code.parse().ok());
        let output = if exit_code.is_some() { rest } else { printed };
        Self {
            is_server: block.mark == "terminal: server",
            command: command.strip_prefix("$ ").expect("a command").to_owned(),
            exit_code: exit_code.unwrap_or(0),
            output: output.trim_end_matches('\n').lines().map(str::to_owned).collect(),
        }
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("[..]");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for part in parts {
        last = Some(part);
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.is_empty() || last.is_some_and(|part| line.ends_with(part))
}

fn output_matches(patterns: &[String], lines: &[&str]) -> bool {
    match (patterns.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((pattern, rest)), _) if pattern == "..." => {
            (0..=lines.len()).any(|skipped| output_matches(rest, &lines[skipped..]))
        }
        (Some((pattern, rest)), Some((line, lines))) => line_matches(pattern, line) && output_matches(rest, lines),
        _ => false,
    }
}

/// Returns a shell command in a folder, with `ebb` in `PATH`. Its messages are part of its output. A redirection in the
/// command applies to its data only.
fn shell(command: &str, folder: &Path) -> Command {
    let path = format!("{}:{}", program::ebb().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec sh -c "$0" 2>&1"#, command]).current_dir(folder).env("PATH", path);
    shell.env_remove("EBB_URL").stdin(Stdio::null());
    shell
}

/// A server process. It is killed when this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server and waits until it has printed the output on the page. The output is closed then, as by `| head`. The
/// server must continue without it.
fn serve(step: &Step, folder: &Path) -> Server {
    // Without `exec`, a failed test would kill the shell, and the server would stay.
    let command = format!("exec {}", step.command);
    let mut server = Server(shell(&command, folder).stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(server.0.stdout.take().unwrap()).lines().take(step.output.len());
    let lines: Vec<String> = lines.map(Result::unwrap).collect();
    check(step, &lines.join("\n"));
    server
}

fn check(step: &Step, printed: &str) {
    let lines: Vec<&str> = printed.trim_end().lines().map(str::trim_end).collect();
    assert!(
        output_matches(&step.output, &lines),
        "$ {}\n-- the page shows\n{}\n-- the command prints\n{printed}",
        step.command,
        step.output.join("\n")
    );
}

/// Runs the blocks of a page in order, and begins in a folder with the examples of the repository: `ebb run` keeps its state
/// in the folder, and the repository must have none. The page has a folder of scripts, which have their own `/tmp`, and one of
/// commands. Both are replaced, as are the texts of `more`. The page has more than `least` commands.
fn follow(page: &str, folders: [&str; 2], more: &[(&str, &str)], least: usize) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut page = std::fs::read_to_string(root.join("docs/src").join(page)).unwrap();
    let (shared, temporary) = (tempfile::tempdir_in("/var/tmp").unwrap(), tempfile::tempdir().unwrap());
    let places = [shared.path().join("made"), temporary.path().to_owned()];
    let places = folders.into_iter().zip(places.iter().map(|place| place.to_str().unwrap()));
    for (from, to) in places.chain(more.iter().copied()) {
        assert!(page.contains(from), "{from}");
        page = page.replace(from, to);
    }
    let first = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root.join("tests"), first.path().join("tests")).unwrap();
    let (mut folder, mut servers, mut commands) = (first.path().to_owned(), Vec::new(), 0);
    for block in markdown::blocks("", &page) {
        if block.language == "console" {
            let step = Step::of(&block);
            commands += 1;
            if let Some(to) = step.command.strip_prefix("cd ") {
                folder = PathBuf::from(to);
            } else if step.is_server {
                servers.push(serve(&step, &folder));
            } else {
                let result = shell(&step.command, &folder).output().unwrap();
                check(&step, &String::from_utf8_lossy(&result.stdout));
                assert_eq!(result.status.code(), Some(step.exit_code), "{}", step.command);
            }
        } else if let Some(name) = block.mark.strip_prefix("file: ") {
            std::fs::write(folder.join(name), block.text).unwrap();
        }
    }
    assert!(commands > least, "{commands} commands");
}

#[test]
fn commands_of_the_first_hour() {
    follow("first-hour.md", ["/var/tmp/ebb-first-hour", "/tmp/first-hour"], &[], 30);
}

#[test]
fn commands_of_github_pull_requests() {
    // The server of the first hour can run at the same time. It has the default ports.
    let [port, s3] = program::free_addresses().map(|address| address.port());
    let command = format!("exec ebb dev --port {port} --s3-port {s3}");
    let more: [(&str, &str); 3] =
        [("exec ebb dev", &*command), (":7878", &format!(":{port}")), (":7879", &format!(":{s3}"))];
    follow("github.md", ["/var/tmp/ebb-github", "/tmp/github"], &more, 20);
}

/// Both senders create and delete a sandbox. The receiver verifies the notifications.
#[tokio::test]
async fn examples_of_a_platform() {
    let examples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/examples").canonicalize().unwrap();
    let examples = examples.to_str().unwrap();
    // `ebb dev` could get any free port of the range of the kernel, which begins at 32,768.
    let port = (20_000_u16..30_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap();
    let workdir = Workdir::with(&["--platform-url", &format!("http://127.0.0.1:{port}")]);
    let dev = workdir.dev().await;
    let settings: Value = serde_json::from_slice(&std::fs::read(workdir.state().join("server.json")).unwrap()).unwrap();
    let mut receiver = shell(&format!("exec python3 {examples}/verify.py {port}"), workdir.path());
    receiver.env("EBB_PLATFORM_SECRET", settings["platformSecret"].as_str().unwrap()).stdout(Stdio::piped());
    let mut receiver = Server(receiver.spawn().unwrap());
    let (sender, lines) = std::sync::mpsc::channel();
    let printed = BufReader::new(receiver.0.stdout.take().unwrap()).lines();
    std::thread::spawn(move || printed.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    // Waits for a notification of this type about each sandbox.
    let await_both = |kind: &str| {
        let mut missing = BTreeSet::from(["a", "b"]);
        while !missing.is_empty() {
            let line = lines.recv_timeout(WAIT_TIMEOUT).unwrap_or_else(|_| panic!("no {kind} of {missing:?}"));
            let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
            if event["type"].as_str().unwrap().contains(kind) {
                missing.remove(event["name"].as_str().unwrap());
            }
        }
    };
    let run = |command: &str| {
        let mut command = shell(command, workdir.path());
        command.env("EBB_URL", &dev.url).env("EBB_WEBHOOK_SECRET", &dev.secret).env("EBB_TOKEN", &dev.token);
        let result = command.output().unwrap();
        assert!(result.status.success(), "{command:?}: {}", String::from_utf8_lossy(&result.stdout));
    };
    workdir.publish("p@1.0.0", include_str!("documents/created-name.yaml")).await;
    for name in ["a", "b"] {
        workdir.write_sandbox(name, "resources: {r: {plugin: p@1.0.0}}\n");
    }
    run(&format!("{examples}/send.sh created a uid-a 1 a.yaml"));
    run(&format!("python3 {examples}/send.py created b uid-b --file b.yaml"));
    await_both("ready");
    run(&format!("{examples}/send.sh deleted a uid-a"));
    run(&format!("python3 {examples}/send.py deleted b uid-b"));
    await_both("gone");
    dev.stop().await;
}

/// The page about connections, with a server in place of the provider.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_connections() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/src/connections.md")).unwrap();
    let examples = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let [connection, plugin] = examples.take(2).collect::<Vec<_>>().try_into().unwrap();
    let provider = TestReceiver::start().await;
    let branches = "/api/v2/projects/quiet-sea-1/branches";
    let dsn = "postgresql://owner:password-canary@ep-1.example.com/neondb";
    let connection_uris = json!([{"connection_uri": dsn}]);
    let endpoints = json!([{"host": "ep-1.example.com"}]);
    let made = json!({"branch": {"id": "br-1"}, "endpoints": endpoints, "connection_uris": connection_uris});
    provider.always(&format!("POST {branches}"), made);
    let workdir = Workdir::new();
    let dev = workdir.dev().await;
    let origin = "https://console.neon.tech";
    let new = ["connection", "new", "neon", "--origin", origin, "--plugin", "neon-branch"];
    assert_eq!(workdir.ebb(&new).await.done().stdout, connection);
    workdir.apply("connection", connection).await;
    let list = || async { workdir.ebb(&["get", "connections"]).await.done().stdout };
    assert!(list().await.contains("NEON_TOKEN (missing)"), "{}", list().await);
    workdir.write_secrets(&json!({"NEON_TOKEN": "napi-canary"}));
    let shown = page.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(list().await, shown);

    workdir.apply("connection", &connection.replace(origin, provider.url())).await;
    workdir.apply("plugin", plugin).await;
    let resources = "resources: {db: {plugin: neon-branch, params: {project: quiet-sea-1}}}\n";
    let applied = workdir.apply("sandbox", &named("Sandbox", "a", resources)).await;
    assert!(applied.stdout.contains("ep-1.example.com"), "{applied:?}");
    let revealed = workdir.ebb(&["get", "sandbox", "a", "--reveal"]).await.done();
    assert!(revealed.stdout.contains(dsn), "{revealed:?}");
    let deleted = workdir.ebb(&["delete", "sandbox", "a"]).await.done();
    let got = workdir.ebb(&["get", "connection", "neon", "-o", "json"]).await.done();
    assert_eq!(provider.order(), [format!("POST {branches}"), format!("DELETE {branches}/br-1")]);
    assert!(provider.all().iter().all(|call| call.header("authorization") == "Bearer napi-canary"));
    for text in [&applied.stdout, &applied.stderr, &deleted.stderr, &got.stdout, &got.stderr, &workdir.log()] {
        assert!(!text.contains("napi-canary") && !text.contains("password-canary"), "{text}");
    }
    workdir.ebb(&["delete", "connection", "neon"]).await.done();
    assert_eq!(workdir.ebb(&["get", "connection", "neon"]).await.code, Some(1));
    dev.stop().await;
}
