//! A folder to work in, the commands run there, and `ebb dev` on the state in it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ebb_protocol::api::TargetDetail;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::program;

/// No wait here takes this long unless something is broken; a machine under load takes a good part of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const LOOK: Duration = Duration::from_millis(25);

/// Looks until there is something to see.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(begun.elapsed() < PATIENCE, "waited for {what} for {PATIENCE:?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// A document or script of the examples.
pub(crate) fn example(path: &str) -> String {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = above.into_iter().find(|folder| folder.join("template.yaml").is_file());
    let example = root.expect("tests are in the repository").join("tests/examples").join(path);
    example.to_str().unwrap().to_owned()
}

/// A folder outside of /tmp, which scripts see: their /tmp is their own.
pub(crate) fn shared_folder() -> TempDir {
    tempfile::Builder::new().prefix("ebb-e2e-").tempdir_in("/var/tmp").unwrap()
}

/// Somebody's working directory; the state is in `.ebb`.
pub(crate) struct Workdir {
    folder: TempDir,
    /// Arguments of `ebb dev` that say where things are, the table or the cluster.
    elsewhere: Vec<String>,
    variables: Vec<(&'static str, PathBuf)>,
    /// Locks of what other places share with this one.
    _locks: Option<Box<dyn std::any::Any + Send + Sync>>,
}

/// Tells the tables of one DynamoDB apart.
static TABLES: AtomicU32 = AtomicU32::new(0);

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandResult {
    /// That it ended well.
    pub(crate) fn done(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }
}

impl Workdir {
    /// One whose servers get these arguments.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        let elsewhere = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { folder: shared_folder(), elsewhere, variables: vec![], _locks: None }
    }

    /// Adds arguments of its servers.
    pub(crate) fn and(mut self, arguments: &[&str]) -> Self {
        self.elsewhere.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// Sets variables of its commands.
    pub(crate) fn told(mut self, variables: &[(&'static str, PathBuf)]) -> Self {
        self.variables.extend_from_slice(variables);
        self
    }

    /// Holds locks for as long as it lives.
    pub(crate) fn holding(mut self, locks: impl Send + Sync + 'static) -> Self {
        self._locks = Some(Box::new(locks));
        self
    }

    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// One whose table is in the DynamoDB at `endpoint`.
    pub(crate) fn on(endpoint: &str) -> Self {
        let table = format!("ebb-{}", TABLES.fetch_add(1, Ordering::Relaxed));
        Self::with(&["--dynamodb", endpoint, "--table", &table])
    }

    /// One whose units run in clusters that others connect.
    pub(crate) fn with_clusters(clusters: &serde_json::Value) -> Self {
        let place = Self::with(&["--clusters", "clusters.json"]);
        place.write("clusters.json", &clusters.to_string());
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join(".ebb")
    }

    /// Writes a file and gives its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program::ebb());
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null()).kill_on_drop(true);
        for name in ["EBB_URL", "EBB_TOKEN", "EBB_WEBHOOK_SECRET", "RUST_LOG", "DOCKER_HOST"] {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().cloned());
        command
    }

    /// Runs `ebb` to its end.
    pub(crate) async fn ebb(&self, arguments: &[&str]) -> CommandResult {
        self.start(arguments).end().await
    }

    /// Runs a command to its end that has a server of its own, with this place's table or cluster.
    pub(crate) async fn ebb_there(&self, arguments: &[&str]) -> CommandResult {
        let elsewhere = self.elsewhere.iter().map(String::as_str);
        self.ebb(&arguments.iter().copied().chain(elsewhere).collect::<Vec<_>>()).await
    }

    /// Starts `ebb` with its output piped.
    pub(crate) fn start(&self, arguments: &[&str]) -> RunningCommand {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let arguments = arguments.join(" ");
        RunningCommand { child, stdout, said: String::new(), stderr, seen: String::new(), arguments }
    }

    /// What the server says of a sandbox, by `ebb sandbox get`.
    pub(crate) async fn get(&self, name: &str) -> TargetDetail {
        let ran = self.ebb(&["sandbox", "get", name, "-o", "json"]).await.done();
        serde_json::from_str(&ran.stdout).unwrap()
    }

    /// Starts `ebb dev` on any free ports.
    pub(crate) async fn dev(&self) -> DevProcess {
        self.try_dev(0, 0).await.unwrap_or_else(|log| panic!("ebb dev does not start:\n{log}"))
    }

    /// Starts `ebb dev` again on the ports that the last one had. One may be taken for a moment by a connection of
    /// somebody else, to whom the system gave its number.
    pub(crate) async fn dev_again(&self) -> DevProcess {
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

    fn log_path(&self) -> PathBuf {
        self.path().join("dev.log")
    }

    /// What all servers of this place have logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The types of the notifications that were told of a life, in order.
    pub(crate) fn outcomes(&self, uid: &str) -> Vec<String> {
        let text = fs::read_to_string(self.state().join("notifications.jsonl")).unwrap_or_default();
        // One may be being written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let events = whole.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let of_life = events.filter(|event| event["data"]["uid"] == uid);
        of_life.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    async fn try_dev(&self, port: u16, s3_port: u16) -> Result<DevProcess, String> {
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let before = log.metadata().unwrap().len();
        let (port, s3_port) = (port.to_string(), s3_port.to_string());
        let mut command = self.command(&["dev", "--port", &port, "--s3-port", &s3_port, "--state", ".ebb"]);
        command.args(&self.elsewhere);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let line = tokio::time::timeout(PATIENCE, lines.next_line());
            match line.await.expect("`ebb dev` starts in time").unwrap() {
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

    /// Waits until no program of this place runs any more, except servers. Supervisors and scripts know the folder by
    /// an argument or a variable.
    pub(crate) async fn no_script_runs(&self) {
        let folder = self.path().to_str().unwrap().to_owned();
        until("the end of all scripts", async || {
            let left = scripts(&folder);
            left.is_empty().then_some(())
        })
        .await;
    }
}

fn scripts(folder: &str) -> Vec<u32> {
    let holds = |path: String| {
        fs::read(path).is_ok_and(|bytes| bytes.windows(folder.len()).any(|part| part == folder.as_bytes()))
    };
    let is_server = |pid: u32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).nth(1) == Some(b"dev")
    };
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id())
        .filter(|pid| holds(format!("/proc/{pid}/environ")) || holds(format!("/proc/{pid}/cmdline")))
        .filter(|pid| !is_server(*pid))
        .collect()
}

/// Returns true if the process is a running relay.
pub(crate) fn is_relay(process: Pid) -> bool {
    fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|program| program.ends_with("ebb-relay"))
}

fn port(url: &serde_json::Value) -> u16 {
    url.as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap()
}

/// A command that runs.
pub(crate) struct RunningCommand {
    child: Child,
    stdout: BufReader<ChildStdout>,
    said: String,
    stderr: BufReader<tokio::process::ChildStderr>,
    seen: String,
    arguments: String,
}

impl RunningCommand {
    /// Reads its standard error up to a line that contains all of `parts`.
    pub(crate) async fn line(&mut self, parts: &[&str]) {
        let reading = async {
            loop {
                let begun = self.seen.len();
                let read = self.stderr.read_line(&mut self.seen).await.unwrap();
                assert!(read > 0, "no line with {parts:?} from `ebb {}`:\n{}", self.arguments, self.seen);
                if parts.iter().all(|part| self.seen[begun..].contains(part)) {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the line comes in time");
    }

    /// Reads its standard output up to this line.
    pub(crate) async fn says(&mut self, line: &str) {
        let reading = async {
            loop {
                let begun = self.said.len();
                let read = self.stdout.read_line(&mut self.said).await.unwrap();
                assert!(read > 0, "no line {line:?} from `ebb {}`:\n{}", self.arguments, self.said);
                if self.said[begun..].trim_end() == line {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the line comes in time");
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, sent: Signal) {
        signal(&self.child, sent);
    }

    /// Waits for its end.
    pub(crate) async fn end(mut self) -> CommandResult {
        let ending = async {
            let (out, err) =
                tokio::join!(self.stdout.read_to_string(&mut self.said), self.stderr.read_to_string(&mut self.seen));
            out.and(err).unwrap();
            self.child.wait().await.unwrap()
        };
        let ended = tokio::time::timeout(PATIENCE, ending).await;
        let Ok(status) = ended else { panic!("`ebb {}` does not end:\n{}", self.arguments, self.seen) };
        CommandResult { code: status.code(), stdout: self.said, stderr: self.seen }
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = child.id().expect("it was not waited for yet");
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

/// A running `ebb dev`; killed when this is dropped.
pub(crate) struct DevProcess {
    child: Child,
    pub(crate) url: String,
    pub(crate) s3: String,
    pub(crate) token: String,
    pub(crate) secret: String,
    /// Open as long as it runs.
    _stdout: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl DevProcess {
    /// `kill -9`.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Its relay, if it has one that runs.
    pub(crate) fn relay(&self) -> Option<Pid> {
        let parent = format!("PPid:\t{}\n", self.child.id().expect("it was not waited for yet"));
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_child =
            |pid: &Pid| fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| status.contains(&parent));
        pids.map(Pid::from_raw).find(|pid| is_relay(*pid) && is_child(pid))
    }

    /// Ends it as a person does.
    pub(crate) async fn stop(mut self) {
        signal(&self.child, Signal::SIGINT);
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = ended.expect("`ebb dev` ends in time").unwrap();
        assert_eq!(status.code(), Some(0));
    }
}
