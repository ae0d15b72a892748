//! How scripts start and end.

use std::fs;
use std::process::{Command, Stdio};

use ebb_protocol::callback::ReasonCode;
use ebb_protocol::entrypoint::{EntrypointSpec, ReportState};

use crate::fixture::*;
use crate::server::{ReportSink, ServerReply};

#[test]
fn codes_and_reasons() {
    let near = "no interpreter: its `#!` is not at the start";
    for (text, code, reason, message) in [
        ("#!/bin/sh\nexit 0", 0, None, ""),
        ("echo no first line", 0, None, ""),
        ("", 0, None, ""),
        ("#!/bin/sh\nexit 3", 3, Some(ReasonCode::Exit), "the script ended with 3"),
        ("#!/bin/sh\nexit 255", 255, Some(ReasonCode::Exit), "the script ended with 255"),
        // All words after the interpreter are one argument, as in the kernel.
        ("#!/bin/sh -eu\nfalse\nexit 0", 1, Some(ReasonCode::Exit), "the script ended with 1"),
        ("#!/usr/bin/env -S sh -e\nfalse\nexit 0", 1, Some(ReasonCode::Exit), "the script ended with 1"),
        ("#!/bin/sh\nkill -TERM $$", 143, Some(ReasonCode::Exit), "the script was ended by SIGTERM"),
        ("#!/bin/sh\nkill -SEGV $$", 139, Some(ReasonCode::Exit), "the script was ended by SIGSEGV"),
        ("#!/bin/sh\nkill -KILL $$", 137, Some(ReasonCode::Exit), "by SIGKILL, as it happens where memory"),
        ("#!/no/such -x\n", 127, Some(ReasonCode::NotStartable), "this image has no /no/such, the script's"),
        ("#!/usr/bin/env no-such\n", 127, Some(ReasonCode::NotStartable), "has no \"no-such\", the script's"),
        ("#!/etc/passwd\n", 126, Some(ReasonCode::NotStartable), "/etc/passwd, the script's interpreter, may not"),
        ("#!/bin/sh\r\n", 126, Some(ReasonCode::NotStartable), "end with CR LF"),
        ("\n#!/bin/sh\n", 126, Some(ReasonCode::NotStartable), near),
        ("#!/bin/sh\n\0", 126, Some(ReasonCode::NotStartable), "NUL bytes"),
        // Nothing to read, a process group of its own, and the environment of the image.
        ("#!/bin/sh\ncat && [ $(cut -d' ' -f5 /proc/$$/stat) = $$ ] && [ -n \"$HOME\" ]", 0, None, ""),
        // No signal is blocked.
        ("#!/bin/sh\ngrep -q '^SigBlk:.0000000000000000' /proc/self/status", 0, None, ""),
    ] {
        let fixture = EntrypointFixture::new();
        let done = fixture.run(&fixture.spec(text));
        assert_eq!((done.code, done.reason()), (Some(code), reason), "{text:?}: {done:?}");
        assert!(done.message().contains(message) && done.stderr.contains(message), "{text:?}: {done:?}");
        let started = reason != Some(ReasonCode::NotStartable);
        assert_eq!(done.said.exit_code, started.then_some(code), "{text:?}");
        // The entrypoint does not poll.
        assert!(done.said.result.duration_ms.is_some_and(|took| took < 20_000), "{text:?}: {done:?}");
        assert!(!done.said.reported && done.said.report.is_none());
    }
}

#[test]
fn command_lines_and_specs_that_are_none() {
    let fixture = EntrypointFixture::new();
    let file = |name: &str, text: &str| {
        fs::write(fixture.at(name), text).unwrap();
        fixture.at(name)
    };
    let later = file("later", r#"{"v": 2, "script": {"all": "different"}}"#);
    let broken = file("broken", r#"{"v": 1, "text": 3}"#);
    for (arguments, expected) in [
        (vec![], "Usage: ebb-entrypoint install FOLDER"),
        (vec!["run"], "Usage"),
        (vec!["run", "--spec", "/no/such"], "/no/such: No such file"),
        (vec!["run", "--spec", &later], "it has version 2, and this entrypoint reads 1"),
        (vec!["run", "--spec", &broken], "invalid type: integer `3`, expected a string"),
    ] {
        let output = Command::new(program()).args(&arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn what_is_printed_passes_through_unchanged_and_its_end_is_kept() {
    let fixture = EntrypointFixture::new();
    let server = ReportSink::start([ServerReply::Status(200)]);
    let text = "printf 'a\\000\\377\\n'; printf 'b\\r' >&2; printf '\\303\\274'";
    let spec = EntrypointSpec { relay: relay(server.url()), ..fixture.sh(text, &[]) };
    let done = fixture.run(&spec);
    assert_eq!((done.stdout.as_slice(), done.stderr.as_str()), (b"a\0\xff\n\xc3\xbc".as_slice(), "b\r"));
    let (report, _) = server.ended();
    assert_eq!(report.log_bytes, 8);
    let ReportState::Ended(ended) = report.state else { panic!() };
    // The order is only known within each of the two outputs.
    let log = ended.result.log.unwrap();
    assert!(log.contains('\r') && log.replace("b\r", "") == "a\0\u{fffd}\nü", "{log:?}");
}

#[test]
fn a_gigabyte_of_log_needs_no_memory() {
    let fixture = EntrypointFixture::new();
    let server = ReportSink::start([ServerReply::Status(200)]);
    let text = "yes | head -c 1000000000; printf end; grep VmHWM: /proc/$PPID/status >$W/peak";
    let spec = EntrypointSpec { relay: relay(server.url()), ..fixture.sh(text, &["peak"]) };
    let status = fixture.command(&spec).stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
    let (report, _) = server.ended();
    assert_eq!(report.log_bytes, 1_000_000_003);
    let ReportState::Ended(ended) = report.state else { panic!() };
    let log = ended.result.log.unwrap();
    assert!(log.len() == 256 << 10 && log.ends_with("y\ny\nend"));
    let peak = ended.result.outputs["peak"].as_str().unwrap().to_owned();
    let kilobytes: u32 = peak.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 4_000, "{peak}");
}

#[test]
fn a_script_goes_on_without_a_reader() {
    let fixture = EntrypointFixture::new();
    let mut child = fixture
        .command(&fixture.sh("while [ ! -e $W/go ]; do sleep 0.01; done; yes | head -c 1000000; echo ok >$W/a", &["a"]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    fs::write(fixture.at("go"), "").unwrap();
    let done = fixture.done(child.wait_with_output().unwrap());
    assert_eq!((done.code, done.output("a")), (Some(0), "ok\n"));
}
