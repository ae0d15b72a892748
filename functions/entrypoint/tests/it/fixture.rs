//! A folder for one script.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ebb_protocol::callback::ReasonCode;
use ebb_protocol::entrypoint::{EntrypointSpec, RelayAddress, TerminationResult, VERSION};
use ebb_protocol::relay::{ScriptInput, ScriptOutput};
use ebb_protocol::value::UnitValue;
use tempfile::TempDir;

/// Builds the entrypoint as it is shipped, once, and returns its path.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("it is two levels down");
        let cargo = std::env::var_os("CARGO").expect("cargo runs the tests");
        let built = Command::new(cargo)
            .args(["xtask", "build", "entrypoint"])
            .current_dir(root)
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo starts");
        let said = String::from_utf8(built.stdout).expect("it is text");
        assert!(built.status.success(), "{said}");
        PathBuf::from(said.split_once(": ").expect("the path comes first").0)
    })
}

pub(crate) struct EntrypointFixture {
    pub(crate) folder: TempDir,
}

/// The end of the entrypoint.
#[derive(Debug)]
pub(crate) struct EntrypointExit {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) said: TerminationResult,
}

impl EntrypointExit {
    pub(crate) fn reason(&self) -> Option<ReasonCode> {
        self.said.result.reason.as_ref().map(|reason| reason.code)
    }

    pub(crate) fn message(&self) -> &str {
        self.said.result.reason.as_ref().map_or("", |reason| &reason.message)
    }

    /// An output in the termination message.
    pub(crate) fn output(&self, name: &str) -> &str {
        self.said.result.outputs.get(name).and_then(|value| value.as_str()).unwrap_or_else(|| panic!("{self:?}"))
    }
}

impl EntrypointFixture {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("it is text").to_owned()
    }

    /// A script without inputs, outputs and relay.
    pub(crate) fn spec(&self, text: &str) -> EntrypointSpec {
        EntrypointSpec {
            v: VERSION,
            text: text.to_owned(),
            env: vec![],
            inputs: vec![],
            outputs: vec![],
            timeout_ms: 60_000,
            grace_ms: 300,
            log_tail: 256 << 10,
            folder: self.at("own"),
            termination_log: self.at("termination-log"),
            relay: None,
        }
    }

    /// A script for `/bin/sh`. Its outputs are files of this folder, which is `$W`.
    pub(crate) fn sh(&self, text: &str, outputs: &[&str]) -> EntrypointSpec {
        let output = |name: &&str| ScriptOutput { name: name.to_string(), path: self.at(name), sensitive: false };
        EntrypointSpec {
            env: vec![("W".to_owned(), self.at(""))],
            outputs: outputs.iter().map(output).collect(),
            ..self.spec(&format!("#!/bin/sh\n{text}"))
        }
    }

    pub(crate) fn write(&self, spec: &EntrypointSpec) -> String {
        let path = self.at("spec.json");
        fs::write(&path, serde_json::to_vec(spec).expect("it can be written")).expect("a file");
        path
    }

    pub(crate) fn command(&self, spec: &EntrypointSpec) -> Command {
        let mut command = Command::new(program());
        command.args(["run", "--spec", &self.write(spec)]);
        command
    }

    pub(crate) fn run(&self, spec: &EntrypointSpec) -> EntrypointExit {
        self.done(self.command(spec).output().expect("it starts"))
    }

    pub(crate) fn done(&self, output: Output) -> EntrypointExit {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = fs::read(self.at("termination-log")).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        assert!(said.len() <= 4096, "{} bytes", said.len());
        let said: TerminationResult = serde_json::from_slice(&said).expect("it can be read");
        assert_eq!(said.result.log, None);
        EntrypointExit { code: output.status.code(), stdout: output.stdout, stderr, said }
    }
}

pub(crate) fn relay(url: String) -> Option<RelayAddress> {
    Some(RelayAddress { url, token: "t0ken".to_owned(), heartbeat_ms: 60_000, report_retry_ms: 20_000 })
}

pub(crate) fn input(name: &str, env: Option<&str>, path: Option<&str>, value: Option<UnitValue>) -> ScriptInput {
    ScriptInput { name: name.to_owned(), env: env.map(str::to_owned), path: path.map(str::to_owned), value }
}

/// Polls until `look` returns a value.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not in a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}
