//! The command `ebb run`.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

const DOCUMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cmd/documents.in");
const SANDBOX: &str = include_str!("documents/bucket-sandbox.yaml");

fn run(state: &Path, sandbox: &str, plugin: &str, more: &[&str]) -> Command {
    let mut command = crate::program::command();
    command.current_dir(DOCUMENTS).args(["run", sandbox, "--plugin", plugin]).args(more);
    command.arg("--state").arg(state).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_sandbox_outlives_the_command_and_versions_are_immutable() {
    let state = tempfile::tempdir().unwrap();
    let sandbox = state.path().join("sandbox.yaml");
    std::fs::write(&sandbox, SANDBOX).unwrap();
    let changed = state.path().join("changed.yaml");
    let document = std::fs::read_to_string(Path::new(DOCUMENTS).join("bucket.yaml")).unwrap();
    std::fs::write(&changed, document.replace("making", "building")).unwrap();
    let outputs = "storage.provision.bucket-name = bucket-of-storage\nstorage.seed.base-prefix = data/\n\
                   env.BUCKET = bucket-of-storage\n";
    for (sandbox, plugin, code, expected, message) in [
        (sandbox.to_str().unwrap(), "bucket.yaml", 0, outputs, "ebb delete sandbox pr-1"),
        ("sandbox.yaml", "bucket.yaml", 1, "", "sandbox/pr-1 exists already, ready since"),
        (
            "slow-sandbox.yaml",
            changed.to_str().unwrap(),
            1,
            "",
            "bucket@1.0.0 is published already: versions are immutable\n  help: increase the version: name: bucket@1.0.1",
        ),
    ] {
        let out = run(state.path(), sandbox, plugin, &[]).output().unwrap();
        let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!((out.status.code(), &*text), (Some(code), expected), "{err}");
        assert!(err.contains(message), "{err}");
        // The table alone has everything.
        let log = std::fs::metadata(state.path().join("table/table.sqlite-wal"));
        assert!(log.is_ok_and(|log| log.len() == 0));
    }
}

/// Without a terminal, no browser opens and the command does not wait.
#[test]
fn a_link_to_the_page_of_the_sandbox_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let out = run(&state, "sandbox.yaml", "bucket.yaml", &["--rm", "--open"]).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{err}");
    let line =
        err.lines().find(|line| line.starts_with("console http://127.0.0.1:")).unwrap_or_else(|| panic!("{err}"));
    assert!(line.contains("/console/sign-in?code="), "{line}");
    assert!(line.ends_with("&next=%2Fconsole%2Ftargets%2Fsandbox%2Fpr-1 (signs in once)"), "{line}");
    // The sandbox is gone, so nothing needs the state that the command has made.
    assert!(!state.exists());
}

#[test]
fn a_sandbox_that_is_not_gone_keeps_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let document = std::fs::read_to_string(Path::new(DOCUMENTS).join("bucket.yaml")).unwrap();
    let plugin = folder.path().join("plugin.yaml");
    std::fs::write(&plugin, document.replace("echo \"removing", "exit 3 \"")).unwrap();
    let out =
        run(&state, "sandbox.yaml", plugin.to_str().unwrap(), &["--rm", "--wait-timeout", "5s"]).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    let next = format!("run `ebb dev --state {}` and `ebb delete sandbox pr-1`", state.display());
    assert!(out.status.code() != Some(0) && err.contains(&next), "{err}");
    assert!(state.join("table").exists());
}

#[test]
fn a_closed_standard_output_does_not_stop_the_deletion() {
    let state = tempfile::tempdir().unwrap();
    let mut command = run(state.path(), "sandbox.yaml", "bucket.yaml", &["--rm"]);
    // No collector listens on this port. The command succeeds nevertheless.
    let mut child = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{err}");
    assert!(err.contains("sandbox/pr-1  gone"), "{err}");
    assert_eq!(err.contains("warning: OTEL_EXPORTER_OTLP_ENDPOINT"), cfg!(not(feature = "otlp")), "{err}");
}
