//! Commands that need no server, as a user types them.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

fn ebb() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    for variable in ["EBB_URL", "EBB_TOKEN", "EBB_WEBHOOK_SECRET"] {
        command.env_remove(variable);
    }
    command
}

#[test]
fn commands_print_their_snapshots() {
    // Variables of the user would select a server.
    let cases = trycmd::TestCases::new();
    cases.env("NO_COLOR", "1").env("COLUMNS", "100");
    cases.case("tests/cmd/*.trycmd");
}

#[test]
fn a_reader_that_goes_away_is_success() {
    for arguments in [["schema", "plugin"], ["completions", "bash"]] {
        let mut child = ebb().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::with_capacity(1, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{arguments:?}");
    }
}

#[test]
fn a_closed_standard_error_is_survived() {
    // Closed before the program starts, so that its first message fails.
    let exit = Command::new("sh")
        .args(["-c", "\"$0\" plugin versions x 2>&-", env!("CARGO_BIN_EXE_ebb")])
        .env("EBB_URL", "http://127.0.0.1:9")
        .status()
        .unwrap();
    assert_eq!(exit.code(), Some(2));
}

#[test]
fn schemas_and_completions_are_complete() {
    for document in ["plugin", "sandbox"] {
        let out = ebb().args(["schema", document]).output().unwrap();
        let schema: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(schema["properties"].is_object(), "{document}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let out = ebb().args(["completions", shell]).output().unwrap();
        let script = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success() && script.contains("wait-timeout"), "{shell}");
    }
}

#[test]
fn one_unit_runs_alone() {
    let state = tempfile::tempdir().unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cmd/documents.in");
    let run = |arguments: &[&str]| {
        let out = ebb()
            .current_dir(folder)
            .args(["unit", "run", "bucket.yaml"])
            .args(arguments)
            .arg("--state")
            .arg(state.path())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (out.status.code(), text(out.stdout), text(out.stderr))
    };
    let (code, out, err) = run(&["seed", "--input", "bucket-name=mine"]);
    assert_eq!((code, out.as_str()), (Some(0), "base-prefix = data/\n"), "{err}");
    assert!(err.contains("seeding mine, mine\n"), "{err}");
    let (code, out, err) = run(&["seed"]);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("--input"), "{err}");
}

/// The program of a relay is searched before anything starts.
#[test]
fn a_relay_that_is_missing_is_named() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let alone = folder.path().join("ebb");
    std::fs::hard_link(env!("CARGO_BIN_EXE_ebb"), &alone).unwrap();
    let cluster = ["dev", "--kubeconfig", "none", "--advertise-address", "127.0.0.1", "--entrypoint-image", "none"];
    let missing = |more: &[&str]| {
        let out = Command::new(&alone).args(cluster).args(more).env("PATH", folder.path()).output().unwrap();
        assert_eq!(out.status.code(), Some(2));
        String::from_utf8(out.stderr).unwrap()
    };
    let err = missing(&[]);
    assert!(err.contains("no `ebb-relay` next to") && err.contains("cargo build -p ebb-relay"), "{err}");
    let err = missing(&["--relay", "elsewhere"]);
    assert!(err.contains("the relay elsewhere does not exist"), "{err}");
}
