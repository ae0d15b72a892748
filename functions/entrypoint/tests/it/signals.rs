//! Deadlines, signals, and processes that outlive the script.

use nix::sys::signal::Signal::{self, SIGTERM};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::fixture::*;

/// A script that does not end by itself.
const ENDLESS: &str = "echo >$W/ready; while :; do sleep 0.02; done";

#[test]
fn deadlines() {
    let cases: Vec<(String, i32, String)> = serde_json::from_str(include_str!("../deadlines.json")).unwrap();
    for (text, code, about) in cases {
        let fixture = EntrypointFixture::new();
        let started = Instant::now();
        let exit = fixture.run(&EntrypointSpec { timeout_ms: 400, ..fixture.sh(&text, &[]) });
        assert_eq!((exit.code, exit.reason()), (Some(code), Some(ReasonCode::Timeout)), "{text} {about}: {exit:?}");
        assert_eq!(exit.message(), "the script took longer than 400 ms");
        assert!(started.elapsed() < Duration::from_secs(30), "{text}");
        assert!(exit.termination.result.duration_ms >= Some(if code == 137 { 700 } else { 400 }), "{exit:?}");
    }
}

#[test]
fn a_signal_to_the_entrypoint_reaches_the_script() {
    type Case = (String, String, i32, Option<ReasonCode>, String, String);
    let cases = include_str!("../signals.json").replace("ENDLESS", ENDLESS);
    for (text, signal, code, reason, message, about) in serde_json::from_str::<Vec<Case>>(&cases).unwrap() {
        let fixture = EntrypointFixture::new();
        let outputs: &[&str] = if reason.is_none() { &["a"] } else { &[] };
        let child = fixture.command(&fixture.sh(&text, outputs)).stderr(Stdio::piped()).spawn().unwrap();
        until("the start of the script", || fs::exists(fixture.at("ready")).unwrap().then_some(()));
        kill(Pid::from_raw(child.id() as i32), signal.parse::<Signal>().unwrap()).unwrap();
        let exit = fixture.exit_of(child.wait_with_output().unwrap());
        assert_eq!((exit.code, exit.reason()), (Some(code), reason), "{text} {about}: {exit:?}");
        assert!(exit.message().contains(&message), "{text}: {exit:?}");
        assert!(reason.is_some() || exit.output("a") == "caught\n");
    }
}

#[test]
fn a_flood_of_signals_does_not_delay_the_deadline_and_reaches_the_script_once() {
    let fixture = EntrypointFixture::new();
    let text = format!("trap 'echo signal >>$W/signals' TERM; {ENDLESS}");
    let spec = EntrypointSpec { grace_ms: 300, ..fixture.sh(&text, &[]) };
    let mut child = fixture.command(&spec).stderr(Stdio::piped()).spawn().unwrap();
    let entrypoint = Pid::from_raw(child.id() as i32);
    until("the start of the script", || fs::exists(fixture.at("ready")).unwrap().then_some(()));
    let started = Instant::now();
    let mut sent = 0;
    while child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < Duration::from_secs(20), "the entrypoint still runs after {sent} signals");
        for _ in 0..1000 {
            kill(entrypoint, SIGTERM).unwrap();
            sent += 1;
        }
    }
    assert!(sent > 10_000, "a flood of {sent} signals");
    let exit = fixture.exit_of(child.wait_with_output().unwrap());
    assert_eq!((exit.code, exit.reason()), (Some(137), Some(ReasonCode::Lost)), "{exit:?}");
    assert_eq!(fs::read_to_string(fixture.at("signals")).unwrap(), "signal\n");
}

#[test]
fn all_processes_of_a_script_are_killed() {
    let fixture = EntrypointFixture::new();
    // A process in the group, one in another session, and one without a parent that ignores SIGTERM.
    let text = "sleep 1000 & echo $! >$W/1; setsid sleep 1000 & echo $! >$W/2
        (trap '' TERM; setsid sh -c 'echo $$ >$W/3; while :; do sleep 1000; done' & )
        while [ ! -s $W/3 ]; do sleep 0.01; done; echo out";
    let started = Instant::now();
    let exit = fixture.run(&fixture.sh(text, &["1", "2", "3"]));
    assert_eq!((exit.code, exit.stdout.as_slice()), (Some(0), b"out\n".as_slice()));
    assert!(started.elapsed() < Duration::from_secs(60));
    for name in ["1", "2", "3"] {
        let pid: i32 = exit.output(name).trim().parse().unwrap();
        assert_eq!(kill(Pid::from_raw(pid), None), Err(nix::errno::Errno::ESRCH), "{name}");
    }
}

/// Runs the entrypoint as the first process of a PID namespace, as in a container.
fn run_as_first_process(fixture: &EntrypointFixture, spec: &EntrypointSpec) -> EntrypointExit {
    let mut command = Command::new("unshare");
    command.args(["--fork", "--pid", "--mount-proc", "--kill-child"]).arg(program());
    fixture.exit_of(command.args(["run", "--spec", &fixture.write(spec)]).output().unwrap())
}

#[test]
fn the_first_process_reaps_orphans() {
    let fixture = EntrypointFixture::new();
    let text = "cat /proc/1/comm >$W/first
        (sh -c 'kill -34 $$' & echo $! >>$W/pids)
        for i in $(seq 100); do (sleep 0.1 & echo $! >>$W/pids); done
        remaining() { while read pid; do [ ! -e /proc/$pid ] || echo $pid; done <$W/pids; }
        until [ -z \"$(remaining)\" ]; do sleep 0.05; done
        setsid sleep 1000 & wc -l <$W/pids >$W/count";
    let exit =
        run_as_first_process(&fixture, &EntrypointSpec { timeout_ms: 30_000, ..fixture.sh(text, &["first", "count"]) });
    assert_eq!((exit.code, exit.output("first"), exit.output("count")), (Some(0), "ebb-entrypoint\n", "101\n"));
}

#[test]
fn the_first_process_receives_signals() {
    // The kernel drops a signal to the first process that has no handler for it.
    for (text, code) in [
        (format!("trap 'exit 5' TERM; kill -TERM 1; {ENDLESS}"), 5),
        (format!("trap '' TERM; kill -TERM 1; {ENDLESS}"), 137),
    ] {
        let fixture = EntrypointFixture::new();
        let exit = run_as_first_process(&fixture, &fixture.sh(&text, &[]));
        assert_eq!((exit.code, exit.reason()), (Some(code), Some(ReasonCode::Lost)), "{exit:?}");
    }
}
