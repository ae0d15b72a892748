//! The command `ebb run` whose output cannot be printed.

use std::process::Stdio;

use crate::workdir::Workdir;

#[test]
fn a_closed_standard_output_does_not_stop_the_deletion() {
    let workdir = Workdir::new();
    workdir.write("sandbox.yaml", include_str!("documents/bucket-sandbox.yaml"));
    workdir.write("bucket.yaml", include_str!("../cmd/documents.in/bucket.yaml"));
    let mut command = crate::program::command();
    command.current_dir(workdir.path()).args(["run", "sandbox.yaml", "--plugin", "bucket.yaml", "--rm"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // No collector listens on this port. The command succeeds nevertheless.
    let mut child = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("sandbox/pr-1  gone"), "{err}");
    assert_eq!(err.contains("warning: OTEL_EXPORTER_OTLP_ENDPOINT"), cfg!(not(feature = "otlp")), "{err}");
}
