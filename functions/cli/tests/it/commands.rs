//! Commands that need no server, and starts of a server that are refused.

use std::path::Path;
use std::process::{Command, Stdio};

use ebb_protocol::api::TargetPhase;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::until;
use crate::workdir::{Workdir, shared_folder};

#[test]
fn commands_print_their_snapshots() {
    let cases = trycmd::TestCases::new();
    cases.register_bin("ebb", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd/ebb.sh"));
    cases.env("PROGRAM", env!("CARGO_BIN_EXE_ebb"));
    // A folder NAME.out lets the file NAME run in a temporary folder, so no command finds the state folder of a server.
    for name in ["connection", "documents", "help", "new", "source", "usage"] {
        cases.case(format!("tests/cmd/{name}.trycmd"));
    }
}

/// `ebb dev` does not forget the sandboxes whose table is lost.
#[tokio::test]
async fn a_lost_table_is_reported() {
    let workdir = Workdir::new();
    workdir.dev().await.stop().await;
    let table = workdir.state().join("table");
    // After a clean stop, the file alone has everything.
    assert_eq!(std::fs::metadata(table.join("table.sqlite-wal")).unwrap().len(), 0);
    assert!(std::fs::metadata(table.join("table.sqlite")).unwrap().len() > 4_096);
    std::fs::remove_dir_all(&table).unwrap();
    let refused = workdir.ebb(&["dev", "--port", "0", "--s3-port", "0"]).await;
    refused.ends_with(2, "it lacks acknowledged writes: expected change ");
    assert!(!table.exists());
}

/// A target is undone only where its units have run.
#[tokio::test]
async fn living_targets_keep_their_backend() {
    let (workdir, dev) = Workdir::running().await;
    workdir.create("pr-1", "resources: {}\n").await;
    workdir.reaches("pr-1", TargetPhase::Ready).await;
    dev.stop().await;
    let elsewhere = ["dev", "--port", "0", "--s3-port", "0", "--clusters"];
    let refused =
        workdir.ebb(&elsewhere).await.ends_with(2, "run with `--pods process`, and this start has `--clusters`");
    refused.ends_with(2, "sandbox/pr-1, and maybe others, live");
    let dev = workdir.dev().await;
    workdir.ebb(&["delete", "sandbox", "pr-1"]).await.done();
    dev.stop().await;
    let mut dev = workdir.start(&elsewhere);
    dev.says("stop with Ctrl-C").await;
    dev.signal(Signal::SIGTERM);
    dev.end().await.done();
}

/// More scripts are ready than the limit of open files permits.
#[tokio::test]
async fn a_low_limit_of_open_files_delays_scripts() {
    let workdir = Workdir::new();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" dev --port 0 --s3-port 0"]).arg(env!("CARGO_BIN_EXE_ebb"));
    command.current_dir(workdir.path()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(workdir.path().join("dev.log")).unwrap());
    let mut server = command.spawn().unwrap();
    until("the server", async || workdir.state().join("server.json").exists().then_some(())).await;
    // A script fails if it finds more than ten.
    let running = shared_folder();
    let script = "mine=$(mktemp -d ROOT/XXXXXX)\\ntest $(ls ROOT | wc -l) -le 10\\nsleep 1\\nrmdir $mine";
    let script = script.replace("ROOT", running.path().to_str().unwrap());
    let unit = format!("{{pod: {{script: \"#!/bin/sh -eu\\n{script}\"}}, retry: {{attempts: 1}}}}");
    let plugin = format!("runners: {{shell: {{image: busybox}}}}\npreStart: {{sleep: {unit}}}\n");
    workdir.publish("slow@1.0.0", &plugin).await;
    let resources: String = (0..40).map(|number| format!("  r{number}: {{plugin: slow@1.0.0}}\n")).collect();
    workdir.create("a", &format!("cluster: local\nresources:\n{resources}")).await;
    workdir.reaches("a", TargetPhase::Ready).await;
    let log = workdir.log();
    assert!(log.contains("the limit of open files permits 10 scripts and 10 connections at a time"), "{log}");
    assert!(!log.contains("Too many open files"), "{log}");
    kill(Pid::from_raw(i32::try_from(server.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert!(server.wait().unwrap().success());
}
