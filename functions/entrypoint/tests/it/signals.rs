//! Deadlines, signals, and processes that are left behind.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ebb_protocol::callback::ReasonCode;
use ebb_protocol::entrypoint::EntrypointSpec;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::*;

const STAY: &str = "echo >$W/ready; while :; do sleep 0.02; done";

#[test]
fn deadlines() {
    for (text, code) in [
        ("exec sleep 60", 143),
        // The signal reaches the whole group: the shell waits for its child.
        ("sleep 60; exit 1", 143),
        ("trap '' TERM; while :; do sleep 0.02; done", 137),
        // An exit code of 0 after the deadline is a failure.
        ("trap 'exit 0' TERM; while :; do sleep 0.02; done", 125),
        ("trap 'exit 7' TERM; while :; do sleep 0.02; done", 7),
    ] {
        let fixture = EntrypointFixture::new();
        let begun = Instant::now();
        let done = fixture.run(&EntrypointSpec { timeout_ms: 400, ..fixture.sh(text, &[]) });
        assert_eq!((done.code, done.reason()), (Some(code), Some(ReasonCode::Timeout)), "{text}: {done:?}");
        assert_eq!(done.message(), "the script took longer than 400 ms");
        assert!(begun.elapsed() < Duration::from_secs(30), "{text}");
        assert!(done.said.result.duration_ms >= Some(if code == 137 { 700 } else { 400 }), "{done:?}");
    }
}

/// `nix` has no name for real-time signals.
#[test]
fn a_real_time_signal_ends_a_script() {
    let fixture = EntrypointFixture::new();
    let begun = Instant::now();
    let done = fixture.run(&EntrypointSpec { timeout_ms: 60_000, ..fixture.sh("kill -34 $$", &[]) });
    assert_eq!((done.code, done.reason()), (Some(128 + 34), Some(ReasonCode::Exit)), "{done:?}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_signal_to_the_entrypoint_reaches_the_script() {
    let trap = |what: &str| format!("trap '{what}' TERM INT; {STAY}");
    // The script gets each signal once.
    let once = "trap 'echo made >>$W/a' TERM; echo >$W/ready; until [ -e $W/a ]; do sleep 0.02; done; sleep 0.2; :";
    for (text, signal, code, reason, message) in [
        (
            STAY.to_owned(),
            Signal::SIGTERM,
            143,
            Some(ReasonCode::Lost),
            "by SIGTERM, and the script was ended by SIGTERM",
        ),
        (trap("exit 9"), Signal::SIGTERM, 9, Some(ReasonCode::Lost), "by SIGTERM, and the script ended with 9"),
        (trap("exit 9"), Signal::SIGINT, 9, Some(ReasonCode::Lost), "by SIGINT, and the script ended with 9"),
        (trap(""), Signal::SIGTERM, 137, Some(ReasonCode::Lost), "by SIGTERM, and the script was ended by SIGKILL"),
        // The script has ended with 0 after the signal: its outputs are known.
        (once.to_owned(), Signal::SIGTERM, 0, None, ""),
    ] {
        let fixture = EntrypointFixture::new();
        let outputs: &[&str] = if reason.is_none() { &["a"] } else { &[] };
        let child = fixture.command(&fixture.sh(&text, outputs)).stderr(Stdio::piped()).spawn().unwrap();
        until("it is ready", || fs::exists(fixture.at("ready")).unwrap().then_some(()));
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let done = fixture.done(child.wait_with_output().unwrap());
        assert_eq!((done.code, done.reason()), (Some(code), reason), "{text}: {done:?}");
        assert!(done.message().contains(message), "{text}: {done:?}");
        assert!(reason.is_some() || done.output("a") == "made\n");
    }
}

#[test]
fn a_flood_of_signals_delays_no_deadline_and_reaches_the_script_once() {
    let fixture = EntrypointFixture::new();
    let text = format!("trap 'echo heard >>$W/heard' TERM; {STAY}");
    let spec = EntrypointSpec { grace_ms: 300, ..fixture.sh(&text, &[]) };
    let mut child = fixture.command(&spec).stderr(Stdio::piped()).spawn().unwrap();
    let entrypoint = Pid::from_raw(child.id() as i32);
    until("it is ready", || fs::exists(fixture.at("ready")).unwrap().then_some(()));
    let begun = Instant::now();
    let mut sent = 0;
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it still runs after {sent} signals");
        for _ in 0..1000 {
            kill(entrypoint, Signal::SIGTERM).unwrap();
            sent += 1;
        }
    }
    assert!(sent > 10_000, "a flood of {sent} signals");
    let done = fixture.done(child.wait_with_output().unwrap());
    assert_eq!((done.code, done.reason()), (Some(137), Some(ReasonCode::Lost)), "{done:?}");
    assert_eq!(fs::read_to_string(fixture.at("heard")).unwrap(), "heard\n");
}

#[test]
fn no_process_is_left_behind() {
    let fixture = EntrypointFixture::new();
    // In the group, in a session of its own, and one that has lost its parent and does not listen.
    let text = "sleep 1000 & echo $! >$W/1; setsid sleep 1000 & echo $! >$W/2
        (trap '' TERM; setsid sh -c 'echo $$ >$W/3; while :; do sleep 1000; done' & )
        while [ ! -s $W/3 ]; do sleep 0.01; done; echo out";
    let begun = Instant::now();
    let done = fixture.run(&fixture.sh(text, &["1", "2", "3"]));
    assert_eq!((done.code, done.stdout.as_slice()), (Some(0), b"out\n".as_slice()));
    assert!(begun.elapsed() < Duration::from_secs(60));
    for name in ["1", "2", "3"] {
        let pid: i32 = done.output(name).trim().parse().unwrap();
        assert_eq!(kill(Pid::from_raw(pid), None), Err(nix::errno::Errno::ESRCH), "{name}");
    }
}

/// The entrypoint as the first process of a PID namespace, as it is in a container.
fn first(fixture: &EntrypointFixture, spec: &EntrypointSpec) -> EntrypointExit {
    let mut command = Command::new("unshare");
    command.args(["--fork", "--pid", "--mount-proc", "--kill-child"]).arg(program());
    fixture.done(command.args(["run", "--spec", &fixture.write(spec)]).output().unwrap())
}

#[test]
fn the_first_process_reaps_orphans() {
    let fixture = EntrypointFixture::new();
    let text = "cat /proc/1/comm >$W/first
        (sh -c 'kill -34 $$' & echo $! >>$W/pids)
        for i in $(seq 100); do (sleep 0.1 & echo $! >>$W/pids); done
        left() { while read pid; do [ ! -e /proc/$pid ] || echo $pid; done <$W/pids; }
        until [ -z \"$(left)\" ]; do sleep 0.05; done
        setsid sleep 1000 & wc -l <$W/pids >$W/count";
    let done = first(&fixture, &EntrypointSpec { timeout_ms: 30_000, ..fixture.sh(text, &["first", "count"]) });
    assert_eq!((done.code, done.output("first"), done.output("count")), (Some(0), "ebb-entrypoint\n", "101\n"));
}

#[test]
fn the_first_process_receives_signals() {
    // The kernel drops signals to the first process that it does not handle.
    for (text, code) in
        [(format!("trap 'exit 5' TERM; kill -TERM 1; {STAY}"), 5), (format!("trap '' TERM; kill -TERM 1; {STAY}"), 137)]
    {
        let fixture = EntrypointFixture::new();
        let done = first(&fixture, &fixture.sh(&text, &[]));
        assert_eq!((done.code, done.reason()), (Some(code), Some(ReasonCode::Lost)), "{done:?}");
    }
}
