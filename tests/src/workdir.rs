//! A working directory, commands in it, and `ebb dev` with its state.

use std::env::var_os;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use ebb_protocol::api::{TargetDetail, TargetPhase};
use ebb_protocol::lifecycle::{GONE, READY};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::platform::named;
use crate::program;
use crate::stored_bytes::contains;
pub use crate::wait::{WAIT_TIMEOUT, until};

pub fn example(path: &str) -> String {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = above.into_iter().find(|folder| folder.join("template.yaml").is_file());
    let example = root.expect("tests are in the repository").join("tests/examples").join(path);
    example.to_str().unwrap().to_owned()
}

/// Returns the variables of programs in tests. A variable that selects a server, a cluster or an account is not one of them.
pub fn environment() -> Vec<(&'static str, OsString)> {
    ["HOME", "PATH", "TMPDIR", "XDG_RUNTIME_DIR"].into_iter().filter_map(|name| Some((name, var_os(name)?))).collect()
}

/// Creates a folder outside of `/tmp`, because scripts have a private `/tmp`.
pub fn shared_folder() -> TempDir {
    tempfile::Builder::new().prefix("ebb-e2e-").tempdir_in("/var/tmp").unwrap()
}

/// The working directory of a user; the state is in `.ebb`.
pub struct Workdir {
    folder: TempDir,
    /// Arguments of `ebb dev`, for example the table or the cluster.
    arguments: Vec<String>,
    variables: Vec<(&'static str, PathBuf)>,
    /// Locks of resources that several working directories share.
    _locks: Option<Box<dyn std::any::Any + Send + Sync>>,
}

/// The number of the next table in a DynamoDB.
static TABLES: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub struct CommandResult {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl CommandResult {
    pub fn done(self) -> Self {
        self.ends_with(0, "")
    }

    /// Checks the exit code, and that standard error contains a text.
    pub fn ends_with(self, code: i32, text: &str) -> Self {
        assert!(self.code == Some(code) && self.stderr.contains(text), "expected {code} and {text:?}: {self:#?}");
        self
    }

    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

impl Workdir {
    pub fn with(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { folder: shared_folder(), arguments, variables: vec![], _locks: None }
    }

    pub fn and(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    pub fn with_env(mut self, variables: &[(&'static str, PathBuf)]) -> Self {
        self.variables.extend_from_slice(variables);
        self
    }

    /// Holds locks until it is dropped.
    pub fn holding(mut self, locks: impl Send + Sync + 'static) -> Self {
        self._locks = Some(Box::new(locks));
        self
    }

    pub fn new() -> Self {
        Self::with(&[])
    }

    /// Creates a working directory whose table is in the DynamoDB at `endpoint`.
    pub fn on(endpoint: &str) -> Self {
        let table = format!("ebb-{}", TABLES.fetch_add(1, Ordering::Relaxed));
        Self::with(&["--dynamodb", endpoint, "--table", &table])
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn state(&self) -> PathBuf {
        self.path().join(".ebb")
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn write_secrets(&self, secrets: &serde_json::Value) {
        let path = self.state().join("secrets.json");
        fs::write(&path, secrets.to_string()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program::ebb());
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null()).kill_on_drop(true);
        command.env_clear().envs(environment()).envs(self.variables.iter().cloned());
        command.env("XDG_CONFIG_HOME", self.path().join("config"));
        command
    }

    pub async fn ebb(&self, arguments: &[&str]) -> CommandResult {
        self.start(arguments).end().await
    }

    /// Runs a command that starts its own server, with the arguments of the servers, and waits for its end.
    pub async fn ebb_there(&self, arguments: &[&str]) -> CommandResult {
        let own = self.arguments.iter().map(String::as_str);
        self.ebb(&arguments.iter().copied().chain(own).collect::<Vec<_>>()).await
    }

    pub fn start(&self, arguments: &[&str]) -> RunningCommand {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let arguments = arguments.join(" ");
        RunningCommand { child, stdout, printed: String::new(), stderr, errors: String::new(), arguments }
    }

    pub async fn get(&self, name: &str) -> TargetDetail {
        self.ebb(&["get", "sandbox", name, "-o", "json"]).await.done().json()
    }

    /// Applies a document of a kind such as `plugin`, and waits for the end of the command.
    pub async fn apply(&self, kind: &str, document: &str) -> CommandResult {
        let file = self.write(&format!("{kind}-to-apply.yaml"), document);
        self.ebb(&["apply", "-f", &file]).await.done()
    }

    /// Publishes a plugin. `rest` is the rest of its document.
    pub async fn publish(&self, name: &str, rest: &str) {
        self.apply("plugin", &named("Plugin", name, rest)).await;
    }

    pub fn write_sandbox(&self, name: &str, rest: &str) -> String {
        self.write(&format!("{name}.yaml"), &named("Sandbox", name, rest))
    }

    pub async fn create(&self, name: &str, rest: &str) {
        let file = self.write_sandbox(name, rest);
        self.ebb(&["apply", "-f", &file, "--wait=false", "--allow-replace"]).await.done();
    }

    pub async fn reaches(&self, name: &str, phase: TargetPhase) -> TargetDetail {
        until(&format!("{name} to be {phase:?}\n{}", self.log()), async || {
            let seen = self.get(name).await;
            (seen.info.phase == phase).then_some(seen)
        })
        .await
    }

    /// Starts `ebb dev` on any free ports.
    pub async fn dev(&self) -> DevProcess {
        self.try_dev(0, 0).await.unwrap_or_else(|log| panic!("ebb dev does not start:\n{log}"))
    }

    /// Starts `ebb dev` again on the same ports. A connection of another process may use one of them for a short time.
    pub async fn dev_again(&self) -> DevProcess {
        let last = self.connection();
        let (port, s3_port) = (port(&last["url"]), port(&last["s3"]));
        until("`ebb dev` on its old ports", async || match self.try_dev(port, s3_port).await {
            Ok(dev) => Some(dev),
            Err(log) if log.contains("port ") => None,
            Err(log) => panic!("ebb dev does not start again:\n{log}"),
        })
        .await
    }

    fn connection(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.state().join("server.json")).unwrap()).unwrap()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path().join("dev.log")).unwrap_or_default()
    }

    /// Returns the types of the notifications of an instance, in order.
    pub fn outcomes(&self, uid: &str) -> Vec<String> {
        let text = fs::read_to_string(self.state().join("notifications.jsonl")).unwrap_or_default();
        // The last line may be incomplete.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let events = whole.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let of_instance = events.filter(|event| event["data"]["uid"] == uid);
        of_instance.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the platform was notified that an instance is gone. A notification whose acknowledgement was lost is
    /// repeated, but a later one is never overtaken.
    pub async fn notified_in_order(&self, uid: &str) {
        let mut types = until("the last notification", async || {
            let types = self.outcomes(uid);
            types.iter().any(|kind| kind == GONE).then_some(types)
        })
        .await;
        types.dedup();
        assert_eq!(types, [READY, GONE]);
    }

    async fn try_dev(&self, port: u16, s3_port: u16) -> Result<DevProcess, String> {
        let log = File::options().create(true).append(true).open(self.path().join("dev.log")).unwrap();
        let before = log.metadata().unwrap().len();
        let (port, s3_port) = (port.to_string(), s3_port.to_string());
        let mut command = self.command(&["dev", "--port", &port, "--s3-port", &s3_port, "--state", ".ebb"]);
        command.args(&self.arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let line = tokio::time::timeout(WAIT_TIMEOUT, lines.next_line());
            match line.await.expect("`ebb dev` starts before the timeout").unwrap() {
                Some(line) if line.starts_with("stop with") => break,
                Some(_) => {}
                None => {
                    child.wait().await.unwrap();
                    return Err(self.log().split_off(usize::try_from(before).unwrap()));
                }
            }
        }
        let connection = self.connection();
        let text = |name: &str| connection[name].as_str().unwrap().to_owned();
        let (url, s3) = (text("url"), text("s3"));
        Ok(DevProcess { child, url, s3, token: text("token"), secret: text("webhookSecret"), _stdout: lines })
    }

    /// Waits until no supervisor or script runs. They have the folder in an argument or a variable.
    pub async fn no_script_runs(&self) {
        let folder = self.path().to_str().unwrap().to_owned();
        until("the end of all scripts", async || scripts(&folder).is_empty().then_some(())).await;
    }
}

fn scripts(folder: &str) -> Vec<u32> {
    let contains_folder = |path: String| fs::read(path).is_ok_and(|bytes| contains(&bytes, folder.as_bytes()));
    let is_server = |pid: u32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).nth(1) == Some(b"dev")
    };
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id())
        .filter(|pid| ["environ", "cmdline"].iter().any(|file| contains_folder(format!("/proc/{pid}/{file}"))))
        .filter(|pid| !is_server(*pid))
        .collect()
}

pub fn is_relay(process: Pid) -> bool {
    fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|program| program.ends_with("ebb-relay"))
}

fn port(url: &serde_json::Value) -> u16 {
    url.as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap()
}

pub struct RunningCommand {
    child: Child,
    stdout: BufReader<ChildStdout>,
    printed: String,
    stderr: BufReader<tokio::process::ChildStderr>,
    errors: String,
    arguments: String,
}

impl RunningCommand {
    /// Reads standard output up to a line.
    pub async fn says(&mut self, line: &str) {
        let reading = async {
            loop {
                let begun = self.printed.len();
                let read = self.stdout.read_line(&mut self.printed).await.unwrap();
                assert!(read > 0, "`ebb {}` has not printed {line:?}:\n{}", self.arguments, self.printed);
                if self.printed[begun..].trim_end() == line {
                    return;
                }
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, reading).await.expect("the line is printed before the timeout");
    }

    pub async fn end(mut self) -> CommandResult {
        let ending = async {
            let (out, err) = tokio::join!(
                self.stdout.read_to_string(&mut self.printed),
                self.stderr.read_to_string(&mut self.errors)
            );
            out.and(err).unwrap();
            self.child.wait().await.unwrap()
        };
        let ended = tokio::time::timeout(WAIT_TIMEOUT, ending).await;
        let Ok(status) = ended else { panic!("`ebb {}` does not end:\n{}", self.arguments, self.errors) };
        CommandResult { code: status.code(), stdout: self.printed, stderr: self.errors }
    }
}

/// A running `ebb dev`. It is killed when this is dropped.
pub struct DevProcess {
    child: Child,
    pub url: String,
    pub s3: String,
    pub token: String,
    pub secret: String,
    /// Open while the server runs.
    _stdout: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl DevProcess {
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the process has not been awaited")
    }

    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    pub fn relay(&self) -> Option<Pid> {
        let parent = format!("PPid:\t{}\n", self.pid());
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_child =
            |pid: &Pid| fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| status.contains(&parent));
        pids.map(Pid::from_raw).find(|pid| is_relay(*pid) && is_child(pid))
    }

    pub async fn stop(mut self) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), Signal::SIGINT).unwrap();
        let ended = tokio::time::timeout(WAIT_TIMEOUT, self.child.wait()).await;
        let status = ended.expect("`ebb dev` ends before the timeout").unwrap();
        assert_eq!(status.code(), Some(0));
    }
}
