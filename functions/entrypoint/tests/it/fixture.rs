//! A folder for one script, and helpers that run the entrypoint in it.

use std::process::Output;

use ebb_protocol::entrypoint::{TerminationResult, VERSION};
use ebb_protocol::relay::ScriptOutput;
use tempfile::TempDir;

// Imports of most tests.
pub(crate) use crate::program::entrypoint as program;
pub(crate) use crate::report_sink::{ReportSink, ServerReply};
pub(crate) use ebb_protocol::entrypoint::ReportState;
pub(crate) use ebb_protocol::relay::ScriptInput;
pub(crate) use ebb_protocol::{EntrypointSpec, ReasonCode, RelayAddress, UnitValue};
pub(crate) use serde_json::json;
pub(crate) use std::fs;
pub(crate) use std::path::Path;
pub(crate) use std::process::{Command, Stdio};
pub(crate) use std::time::{Duration, Instant};

pub(crate) struct EntrypointFixture {
    pub(crate) folder: TempDir,
    /// The relay of scripts that name no other one. It acknowledges every report.
    pub(crate) sink: ReportSink,
}

#[derive(Debug)]
pub(crate) struct EntrypointExit {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) termination: TerminationResult,
}

impl EntrypointExit {
    pub(crate) fn reason(&self) -> Option<ReasonCode> {
        self.termination.result.reason.as_ref().map(|reason| reason.code)
    }

    pub(crate) fn message(&self) -> &str {
        self.termination.result.reason.as_ref().map_or("", |reason| &reason.message)
    }

    /// Returns an output in the termination message.
    pub(crate) fn output(&self, name: &str) -> &str {
        self.termination.result.outputs.get(name).and_then(|value| value.as_str()).unwrap_or_else(|| panic!("{self:?}"))
    }
}

impl EntrypointFixture {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), sink: ReportSink::start([ServerReply::Status(200)]) }
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a path in UTF-8").to_owned()
    }

    /// Returns a script without inputs and outputs.
    pub(crate) fn spec(&self, text: &str) -> EntrypointSpec {
        let spec = json!({
            "v": VERSION, "text": text, "timeoutMs": 60_000, "graceMs": 300, "folder": self.at("own"),
            "terminationLog": self.at("termination-log"), "relay": relay(self.sink.url()),
        });
        serde_json::from_value(spec).expect("a spec")
    }

    /// Returns a script for `/bin/sh`. Its outputs are files in the folder, whose path is in `$W`.
    pub(crate) fn sh(&self, text: &str, outputs: &[&str]) -> EntrypointSpec {
        EntrypointSpec {
            env: vec![("W".to_owned(), self.at(""))],
            outputs: outputs.iter().map(|name| output(name, &self.at(name))).collect(),
            ..self.spec(&format!("#!/bin/sh\n{text}"))
        }
    }

    pub(crate) fn write(&self, spec: &EntrypointSpec) -> String {
        let path = self.at("spec.json");
        fs::write(&path, serde_json::to_vec(spec).expect("JSON")).expect("a file");
        path
    }

    pub(crate) fn command(&self, spec: &EntrypointSpec) -> Command {
        let mut command = Command::new(program());
        command.args(["run", "--spec", &self.write(spec)]);
        command
    }

    pub(crate) fn run(&self, spec: &EntrypointSpec) -> EntrypointExit {
        self.exit_of(self.command(spec).output().expect("the entrypoint starts"))
    }

    pub(crate) fn wait_for_message(&self) {
        let written = || fs::read(self.at("termination-log")).is_ok_and(|it| !it.is_empty()).then_some(());
        until("the termination message", written);
    }

    /// Reads the termination message of an entrypoint that has ended.
    pub(crate) fn exit_of(&self, output: Output) -> EntrypointExit {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let message = fs::read(self.at("termination-log")).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        assert!(message.len() <= 4096, "{} bytes", message.len());
        let termination: TerminationResult =
            serde_json::from_slice(&message).unwrap_or_else(|error| panic!("{error}: {stderr}"));
        assert_eq!(termination.result.log, None);
        EntrypointExit { code: output.status.code(), stdout: output.stdout, stderr, termination }
    }
}

pub(crate) fn output(name: &str, path: &str) -> ScriptOutput {
    ScriptOutput { name: name.to_owned(), path: path.to_owned(), sensitive: false }
}

pub(crate) fn relay(url: String) -> Option<RelayAddress> {
    Some(RelayAddress { url, token: "t0ken".to_owned(), heartbeat_ms: 60_000, report_retry_ms: 20_000 })
}

pub(crate) fn input(name: &str, env: Option<&str>, path: Option<&str>, value: Option<UnitValue>) -> ScriptInput {
    let (env, path) = (env.map(str::to_owned), path.map(str::to_owned));
    ScriptInput { name: name.to_owned(), env, path, value, sensitive: false }
}

pub(crate) fn until<T>(event: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < end, "waited for {event} for a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}
