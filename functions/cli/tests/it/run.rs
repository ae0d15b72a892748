//! `ebb run` from its start to its end, as a person would use it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const DOCUMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cmd/documents.in");

fn run(state: &Path, sandbox: &str, plugin: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.current_dir(DOCUMENTS).args(["run", sandbox, "--plugin", plugin]).args(more);
    command.arg("--state").arg(state).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Reads standard error up to a line with `word`.
fn until(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> String {
    let mut seen = String::new();
    for line in lines {
        let line = line.unwrap();
        seen.push_str(&line);
        seen.push('\n');
        if line.contains(word) {
            return seen;
        }
    }
    panic!("{word:?} is not in\n{seen}");
}

fn interrupt(child: &Child) {
    signal(child, "-INT");
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn a_whole_life_as_json() {
    let state = tempfile::tempdir().unwrap();
    let args = ["--then-delete", "-o", "json"];
    let mut command = run(state.path(), "sandbox.yaml", "bucket.yaml", &args);
    // Nobody listens there, which is no error.
    let out = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{err}");
    assert_eq!(err.contains("warning: OTEL_EXPORTER_OTLP_ENDPOINT"), cfg!(not(feature = "otlp")), "{err}");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["phase"], "gone");
    assert_eq!(json["outputs"]["storage"]["provision.bucket-name"]["value"], "bucket-of-storage");
    let units = json["units"].as_array().unwrap();
    let units: Vec<(&str, &str)> =
        units.iter().map(|unit| (unit["key"].as_str().unwrap(), unit["state"].as_str().unwrap())).collect();
    let keys = ["storage/provision", "storage/seed", "storage/deprovision"];
    assert_eq!(units, keys.map(|key| (key, "succeeded")));
}

#[test]
fn what_stays_is_seen_by_the_next_one_and_a_version_cannot_change() {
    let state = tempfile::tempdir().unwrap();
    let out = run(state.path(), "sandbox.yaml", "bucket.yaml", &[]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(0), "{err}");
    assert_eq!(text, "storage.provision.bucket-name = bucket-of-storage\nstorage.seed.base-prefix = data/\n");
    assert!(err.contains("ebb sandbox delete pr-1"), "{err}");

    let out = run(state.path(), "sandbox.yaml", "bucket.yaml", &[]).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert!(err.contains("sandbox/pr-1 is there already, ready since"), "{err}");

    let changed = state.path().join("changed.yaml");
    let document = std::fs::read_to_string(Path::new(DOCUMENTS).join("bucket.yaml")).unwrap();
    std::fs::write(&changed, document.replace("making", "building")).unwrap();
    let out = run(state.path(), "slow-sandbox.yaml", changed.to_str().unwrap(), &[]).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert!(err.contains("bucket@1.0.0 is published already: versions are immutable"), "{err}");
    assert!(err.contains("name: bucket@1.0.1"), "{err}");
}

#[test]
fn one_interrupt_takes_away_what_was_made() {
    // SIGHUP: the terminal is closed.
    for name in ["-INT", "-HUP"] {
        let state = tempfile::tempdir().unwrap();
        let mut child = run(state.path(), "slow-sandbox.yaml", "slow.yaml", &[]).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        until(&mut lines, "thing/make");
        signal(&child, name);
        let rest = until(&mut lines, "sandbox/pr-9  gone");
        assert!(rest.contains("thing/unmake  succeeded"), "{rest}");
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
}

#[test]
fn two_interrupts_leave_at_once_and_say_what_is_left() {
    let state = tempfile::tempdir().unwrap();
    let mut child = run(state.path(), "slow-sandbox.yaml", "slow.yaml", &[]).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut lines = err.by_ref().lines();
    until(&mut lines, "thing/make");
    interrupt(&child);
    until(&mut lines, "interrupted");
    interrupt(&child);
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.contains("thing/make"), "{rest}");
    assert!(rest.contains("`ebb dev` and then `ebb sandbox delete pr-9`"), "{rest}");
}

#[test]
fn a_reader_that_goes_away_leaves_nothing_behind() {
    let state = tempfile::tempdir().unwrap();
    let mut child = run(state.path(), "sandbox.yaml", "bucket.yaml", &["--then-delete"]).spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{err}");
    assert!(err.contains("sandbox/pr-1  gone"), "{err}");
}
