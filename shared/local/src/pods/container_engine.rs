//! The engine that runs containers on this machine, by its command: `docker` or `podman`.

use std::borrow::Cow;
use std::io::{self, PipeWriter};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ebb_protocol::entrypoint::PROGRAM_NAME;
use ebb_protocol::id::short_digest;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use super::{PodsError, TaskFolder};

/// The folder of entrypoint, spec and script in a container.
pub(super) const FOLDER: &str = "/ebb";
/// The entrypoint's spec, below [`FOLDER`].
const SPEC: &str = "spec.json";
/// The labels with the state and the task of a container.
const STATE_LABEL: &str = "dev.ebb.state";
const TASK_LABEL: &str = "dev.ebb.task";
/// The timeout of commands that the engine executes immediately.
const ANSWER: Duration = Duration::from_secs(60);

/// Runs scripts as containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerEngine {
    /// The command, `docker` or `podman`.
    program: String,
    /// The address of the engine. `None` means the default of the command.
    url: Option<String>,
    /// The entrypoint, a static program (`cargo xtask build entrypoint`) that is copied into every container.
    pub(super) entrypoint: PathBuf,
}

/// Returns true if the error text of a command says that the container does not exist.
fn is_missing(error: &str) -> bool {
    error.to_ascii_lowercase().contains("no such container")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerState {
    /// The container has never run.
    Created,
    Running,
    Exited {
        exit_code: i64,
        out_of_memory: bool,
    },
    Missing,
}

impl std::fmt::Display for ContainerEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.program, self.url.as_deref().unwrap_or("its default address"))
    }
}

impl ContainerEngine {
    /// Returns the first of `programs` (`docker`, `podman`) whose engine responds. `url` is the address of the engine.
    /// `None` means the default of the command. `entrypoint` is copied into every container.
    ///
    /// # Errors
    /// Returns [`PodsError::Containers`] with the error text of each command.
    pub async fn find(programs: &[&str], url: Option<&str>, entrypoint: PathBuf) -> Result<Self, PodsError> {
        let mut said = Vec::new();
        for program in programs {
            let (url, entrypoint) = (url.map(str::to_owned), entrypoint.clone());
            let found = Self { program: (*program).to_owned(), url, entrypoint };
            match found.ping().await {
                Ok(()) => return Ok(found),
                Err(error) => said.push(format!("{program}: {error}")),
            }
        }
        Err(PodsError::Containers(said.join("; ")))
    }

    pub(super) async fn ping(&self) -> Result<(), String> {
        self.ask(&["ps", "--quiet"]).await.map(drop)
    }

    /// Creates the container of a task with the entrypoint and its spec, and does not start it.
    pub(super) async fn create(
        &self,
        task: &TaskFolder,
        image: &str,
        entrypoint: &[u8],
        spec: &[u8],
    ) -> Result<(), String> {
        let (name, image) = (name(task), &*self.full(image));
        let state = format!("{STATE_LABEL}={}", digest(state(task)));
        let task = format!("{TASK_LABEL}={}", key(task));
        let (program_path, spec_path) = (format!("{FOLDER}/{PROGRAM_NAME}"), format!("{FOLDER}/{SPEC}"));
        let made = ["create", "--name", &name, "--label", &state, "--label", &task, "--pull", "never"];
        // Containers use the network of the machine, as processes do. Scripts reach its servers, and the entrypoint
        // reaches its supervisor. The supervisor stores the log.
        let kept = ["--network", "host", "--log-driver", "none", "--entrypoint", &program_path, "--", image];
        let started = ["run", "--spec", &spec_path];
        self.run(&[&made[..], &kept, &started].concat(), b"").await?;
        let archive = archive(entrypoint, spec).map_err(|error| error.to_string())?;
        self.run(&["cp", "-", &format!("{name}:/")], &archive).await.map(drop)
    }

    /// Returns the name of an image for the engine. Docker pulls a name without a registry from docker.io. Podman gets
    /// the full name, because its own settings may name other registries.
    fn full<'a>(&self, image: &'a str) -> Cow<'a, str> {
        match image.split_once('/') {
            _ if self.program != "podman" => Cow::Borrowed(image),
            None => Cow::Owned(format!("docker.io/library/{image}")),
            Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => Cow::Borrowed(image),
            Some(_) => Cow::Owned(format!("docker.io/{image}")),
        }
    }

    pub(super) async fn has(&self, image: &str) -> bool {
        self.run(&["image", "inspect", "--", &self.full(image)], b"").await.is_ok()
    }

    pub(super) async fn pull(&self, image: &str) -> Result<(), String> {
        self.run(&["pull", "--", &self.full(image)], b"").await.map(drop)
    }

    /// Starts a container. The command ends with the container. It writes the output of the container to `output`, or
    /// the reason why the container does not start.
    pub(super) fn start(&self, name: &str, output: PipeWriter) -> io::Result<Child> {
        let mut command = self.command(&["start", "--attach", name]);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()
    }

    pub(super) async fn inspect(&self, name: &str) -> Result<ContainerState, String> {
        let format = "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}";
        let said = match self.ask(&["container", "inspect", "--format", format, name]).await {
            Err(error) if is_missing(&error) => return Ok(ContainerState::Missing),
            said => said?,
        };
        let mut words = said.split_whitespace();
        Ok(match words.next() {
            Some("created" | "configured" | "initialized") => ContainerState::Created,
            Some("exited" | "stopped" | "dead") => ContainerState::Exited {
                exit_code: words.next().and_then(|code| code.parse().ok()).unwrap_or(-1),
                out_of_memory: words.next() == Some("true"),
            },
            _ => ContainerState::Running,
        })
    }

    pub(super) async fn terminate(&self, name: &str) -> Result<(), String> {
        self.ask(&["kill", "--signal", "TERM", name]).await.map(drop)
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), String> {
        // `rm` of Podman would wait for a running container.
        let _ = self.ask(&["kill", "--signal", "KILL", name]).await;
        match self.ask(&["rm", "--force", "--volumes", name]).await {
            Err(error) if !is_missing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the containers of `state` whose task has ended. A killed supervisor leaves such containers.
    pub(super) async fn sweep(&self, state: &Path) -> Result<(), String> {
        let state_digest = digest(state);
        let filter = format!("label={STATE_LABEL}={state_digest}");
        let listed = self.ask(&["ps", "--all", "--filter", &filter, "--format", "{{.Names}}"]).await?;
        let prefix = format!("ebb-{state_digest}-");
        for name in listed.lines() {
            let parts = name.strip_prefix(&prefix).and_then(|key| key.rsplit_once('-'));
            let Some((unit, attempt)) = parts else { continue };
            let task = TaskFolder { folder: state.join("pods").join(unit).join(attempt) };
            // A task with an unreadable lock counts as running.
            if !task.is_locked().unwrap_or(true) {
                self.remove(name).await?;
            }
        }
        Ok(())
    }

    /// Runs a command that the engine executes immediately.
    async fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let late = |_| format!("no answer within {} s", ANSWER.as_secs());
        tokio::time::timeout(ANSWER, self.run(arguments, b"")).await.map_err(late)?
    }

    /// Runs a command to its end and returns its output. The command is killed if the future is dropped.
    async fn run(&self, arguments: &[&str], input: &[u8]) -> Result<String, String> {
        let failed = |error: io::Error| error.to_string();
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let stdin = child.stdin.take();
        let write = async move {
            if let Some(mut stdin) = stdin {
                // A failed command does not read its input. Its exit provides the reason.
                stdin.write_all(input).await.ok();
            }
        };
        let ((), ended) = tokio::join!(write, child.wait_with_output());
        let ended = ended.map_err(failed)?;
        if ended.status.success() {
            return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        Err(reason(&said).map_or_else(|| ended.status.to_string(), str::to_owned))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(url) = &self.url {
            command.args([if self.program == "podman" { "--url" } else { "--host" }, url]);
        }
        command.args(arguments).kill_on_drop(true);
        command
    }
}

/// Returns the line with the reason. Both commands print progress before it, and Docker prints a hint after it.
fn reason(said: &str) -> Option<&str> {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_error = |line: &&str| line.to_ascii_lowercase().starts_with("error");
    lines.clone().rfind(is_error).or_else(|| lines.next_back())
}

fn state(task: &TaskFolder) -> &Path {
    task.folder.ancestors().nth(3).unwrap_or(Path::new("/"))
}

fn digest(state: &Path) -> String {
    short_digest(&[&state.to_string_lossy()], 16)
}

/// Returns `UNIT/ATTEMPT`.
fn key(task: &TaskFolder) -> String {
    let mut parts: Vec<_> = task.folder.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
    parts.reverse();
    parts.join("/")
}

/// Returns the name of a task's container. It names the state, because one engine may serve several states.
pub(super) fn name(task: &TaskFolder) -> String {
    format!("ebb-{}-{}", digest(state(task)), key(task).replace('/', "-"))
}

/// Returns the tar archive of the files in a container. Every user may write to the folder, because the image selects
/// the user.
fn archive(entrypoint: &[u8], spec: &[u8]) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let folder = FOLDER.trim_start_matches('/');
    let mut add = |path: String, kind: tar::EntryType, mode: u32, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, path, bytes)
    };
    add(format!("{folder}/"), tar::EntryType::Directory, 0o1777, b"")?;
    add(format!("{folder}/{PROGRAM_NAME}"), tar::EntryType::Regular, 0o755, entrypoint)?;
    add(format!("{folder}/{SPEC}"), tar::EntryType::Regular, 0o444, spec)?;
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_a_line_of_the_output() {
        let rows: Vec<(String, Option<String>)> =
            serde_json::from_str(include_str!("../../tests/engine_errors.json")).unwrap();
        for (output, expected) in rows {
            assert_eq!(reason(&output), expected.as_deref());
        }
    }

    #[tokio::test]
    async fn the_error_has_the_failure_of_each_engine() {
        let found = ContainerEngine::find(&["no-docker", "false"], None, PathBuf::new()).await;
        let error = found.unwrap_err().to_string();
        assert!(error.contains("no-docker: No such file") && error.contains("false: exit status: 1"), "{error}");
    }
}
