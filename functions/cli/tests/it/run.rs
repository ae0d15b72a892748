//! The command `ebb run`.

use std::process::Stdio;

use crate::workdir::Workdir;

const SANDBOX: &str = include_str!("documents/bucket-sandbox.yaml");
const PLUGIN: &str = include_str!("../cmd/documents.in/bucket.yaml");
const RUN: [&str; 4] = ["run", "sandbox.yaml", "--plugin", "bucket.yaml"];

/// Returns a working directory with the files of [`RUN`].
fn workdir() -> Workdir {
    let workdir = Workdir::new();
    workdir.write("sandbox.yaml", SANDBOX);
    workdir.write("bucket.yaml", PLUGIN);
    workdir
}

#[tokio::test]
async fn a_sandbox_outlives_the_command_and_versions_are_immutable() {
    let workdir = workdir();
    workdir.write("other.yaml", &SANDBOX.replace("pr-1", "pr-2"));
    workdir.write("changed.yaml", &PLUGIN.replace("making", "building"));
    let outputs = "storage.provision.bucket-name = bucket-of-storage\nstorage.seed.base-prefix = data/\n\
                   env.BUCKET = bucket-of-storage\n";
    let published =
        "bucket@1.0.0 is published already: versions are immutable\n  help: increase the version: name: bucket@1.0.1";
    for (sandbox, plugin, code, expected, message) in [
        ("sandbox.yaml", "bucket.yaml", 0, outputs, "ebb delete sandbox pr-1"),
        ("sandbox.yaml", "bucket.yaml", 1, "", "sandbox/pr-1 exists already, ready since"),
        ("other.yaml", "changed.yaml", 1, "", published),
    ] {
        let run = workdir.ebb(&["run", sandbox, "--plugin", plugin]).await.ends_with(code, message);
        assert_eq!(run.stdout, expected);
        // The table alone has everything.
        assert_eq!(std::fs::metadata(workdir.state().join("table/table.sqlite-wal")).unwrap().len(), 0);
    }
}

/// Without a terminal, no browser opens and the command does not wait.
#[tokio::test]
async fn a_link_to_the_page_of_the_sandbox_is_printed() {
    let workdir = workdir();
    let run = workdir.ebb(&[&RUN[..], &["--rm", "--open"]].concat()).await.done();
    let line = run.stderr.lines().find(|line| line.starts_with("console http://127.0.0.1:")).unwrap();
    assert!(line.contains("/console/sign-in?code="), "{line}");
    assert!(line.ends_with("&next=%2Fconsole%2Ftargets%2Fsandbox%2Fpr-1 (signs in once)"), "{line}");
    // The sandbox is gone, so nothing needs the state that the command has made.
    assert!(!workdir.state().exists());
}

#[tokio::test]
async fn a_sandbox_that_is_not_gone_keeps_its_state() {
    let workdir = workdir();
    workdir.write("bucket.yaml", &PLUGIN.replace("echo \"removing", "exit 3 \""));
    let run = workdir.ebb(&[&RUN[..], &["--rm", "--wait-timeout", "5s", "--state", "state"]].concat()).await;
    let next = "run `ebb dev --state state` and `ebb delete sandbox pr-1`";
    assert!(run.code != Some(0) && run.stderr.contains(next), "{run:#?}");
    assert!(workdir.path().join("state/table").exists());
}

#[test]
fn a_closed_standard_output_does_not_stop_the_deletion() {
    let workdir = workdir();
    let mut command = crate::program::command();
    command.current_dir(workdir.path()).args(RUN).arg("--rm").stdout(Stdio::piped()).stderr(Stdio::piped());
    // No collector listens on this port. The command succeeds nevertheless.
    let mut child = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("sandbox/pr-1  gone"), "{err}");
    assert_eq!(err.contains("warning: OTEL_EXPORTER_OTLP_ENDPOINT"), cfg!(not(feature = "otlp")), "{err}");
}
