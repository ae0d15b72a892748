//! Reports to relays that are slow, lose responses, or do not run.

use std::fs;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ebb_protocol::callback::ReasonCode;
use ebb_protocol::entrypoint::{EntrypointSpec, RelayAddress, ReportState};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::*;
use crate::server::{ReportSink, ServerReply};

/// An address without a server.
fn nowhere() -> std::net::SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn heartbeats_go_out_while_it_runs_and_none_after_its_end() {
    let fixture = EntrypointFixture::new();
    let server = ReportSink::start([ServerReply::Status(200)]);
    let address = RelayAddress { heartbeat_ms: 20, ..relay(server.url()).unwrap() };
    let text = "printf 12345; while [ ! -e $W/go ]; do sleep 0.01; done";
    let mut spec = EntrypointSpec { relay: Some(address), ..fixture.sh(text, &[]) };
    spec.env.push(("TRACEPARENT".to_owned(), "00-1-2-01".to_owned()));
    // The environment of the image may name a proxy.
    let mut command = fixture.command(&spec);
    let child = command
        .env("http_proxy", "http://127.0.0.1:1")
        .env("ALL_PROXY", "http://127.0.0.1:1")
        .stdout(Stdio::null())
        .spawn();
    until("heartbeats", || {
        (server.reports().iter().filter(|report| report.report().log_bytes == 5).count() > 2).then_some(())
    });
    fs::write(fixture.at("go"), "").unwrap();
    let done = fixture.done(child.unwrap().wait_with_output().unwrap());
    assert!(done.said.reported && done.code == Some(0), "{done:?}");
    let reports = server.reports();
    assert!(matches!(reports.last().unwrap().report().state, ReportState::Ended(_)));
    assert_eq!(server.ends().len(), 1);
    for report in reports {
        let head = report.head.to_ascii_lowercase();
        assert!(head.starts_with("post /v1/reports/a http/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nauthorization: bearer t0ken\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{head}");
        assert!(head.contains("\r\ntraceparent: 00-1-2-01\r\n"), "{head}");
    }
}

#[test]
fn the_end_is_reported_until_it_is_acknowledged() {
    use ServerReply::{Lost, Slow, Status};
    let slow = Slow(Duration::from_millis(300));
    for (answers, tries, is_reported) in [
        (vec![Status(200)], 1, true),
        (vec![Lost, Status(500), Status(429), Status(302), slow, Lost, Status(202)], 7, true),
        (vec![Status(503), Status(410)], 2, false),
    ] {
        let fixture = EntrypointFixture::new();
        let server = ReportSink::start(answers.clone());
        let done = fixture.run(&EntrypointSpec { relay: relay(server.url()), ..fixture.sh("printf x >$W/a", &["a"]) });
        assert_eq!((done.code, done.said.reported), (Some(0), is_reported), "{answers:?}: {done:?}");
        // Small outputs are in the termination message.
        assert_eq!((done.output("a"), &done.said.report), ("x", &None));
        let ends = server.ends();
        assert_eq!(ends.len(), tries, "{answers:?}");
        assert!(ends.iter().all(|report| report.body == ends[0].body), "the same bytes every time");
    }
}

#[test]
fn a_relay_that_comes_back_is_told() {
    let fixture = EntrypointFixture::new();
    let address = nowhere();
    let spec = EntrypointSpec { relay: relay(format!("http://{address}/v1/reports/a")), ..fixture.sh("exit 4", &[]) };
    let child = fixture.command(&spec).stderr(Stdio::piped()).spawn().unwrap();
    until("it has ended", || fs::exists(fixture.at("termination-log")).unwrap().then_some(()));
    let server = ReportSink::on(address, [ServerReply::Status(200)], ServerReply::Status(200));
    let done = fixture.done(child.wait_with_output().unwrap());
    assert_eq!((done.code, done.said.reported, server.ends().len()), (Some(4), true, 1));
}

#[test]
fn a_relay_that_never_comes_costs_only_patience() {
    let fixture = EntrypointFixture::new();
    let address = RelayAddress { report_retry_ms: 400, ..relay(format!("http://{}/", nowhere())).unwrap() };
    let begun = Instant::now();
    let done = fixture.run(&EntrypointSpec { relay: Some(address), ..fixture.sh("echo x >$W/a; exit 0", &["a"]) });
    assert_eq!((done.code, done.said.reported, done.output("a")), (Some(0), false, "x\n"));
    assert!(done.stderr.contains("the relay has not taken the report"), "{done:?}");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn who_asks_us_to_end_while_we_report_waits_for_the_grace_period() {
    let fixture = EntrypointFixture::new();
    let address = RelayAddress { report_retry_ms: u64::MAX, ..relay(format!("http://{}/", nowhere())).unwrap() };
    let spec = EntrypointSpec { relay: Some(address), grace_ms: 200, ..fixture.sh("exit 6", &[]) };
    let child = fixture.command(&spec).stderr(Stdio::piped()).spawn().unwrap();
    until("it has ended", || fs::read(fixture.at("termination-log")).is_ok_and(|it| !it.is_empty()).then_some(()));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let done = fixture.done(child.wait_with_output().unwrap());
    assert_eq!((done.code, done.said.reported, done.reason()), (Some(6), false, Some(ReasonCode::Exit)));
}

#[test]
fn a_slow_relay_does_not_slow_the_script() {
    let fixture = EntrypointFixture::new();
    let slow = ServerReply::Slow(Duration::from_secs(3));
    let server = ReportSink::on("127.0.0.1:0".parse().unwrap(), [ServerReply::Status(200)], slow);
    let address = RelayAddress { heartbeat_ms: 10, ..relay(server.url()).unwrap() };
    // The script ends while a heartbeat waits for its response.
    let text = "while [ ! -e $W/go ]; do sleep 0.01; done; yes | head -c 10000000";
    let spec = EntrypointSpec { relay: Some(address), ..fixture.sh(text, &[]) };
    let child = fixture.command(&spec).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("a heartbeat", || server.reports().pop());
    let begun = Instant::now();
    fs::write(fixture.at("go"), "").unwrap();
    until("its end", || fs::read(fixture.at("termination-log")).is_ok_and(|it| !it.is_empty()).then_some(()));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(server.ends().is_empty());
    let done = fixture.done(child.wait_with_output().unwrap());
    assert_eq!((done.code, done.said.reported), (Some(0), true));
}

#[test]
fn addresses_that_are_none() {
    for (url, expected) in [
        ("http://relay.ebb:8080/x", "has a name where an IP address belongs"),
        ("https://10.0.0.1/x", "does not begin with http://"),
        ("10.0.0.1", "does not begin with http://"),
        ("http://[::1/", "is not a URL"),
    ] {
        let fixture = EntrypointFixture::new();
        let done = fixture.run(&EntrypointSpec { relay: relay(url.to_owned()), ..fixture.sh("echo ran", &[]) });
        assert_eq!((done.code, done.reason()), (Some(126), Some(ReasonCode::NotStartable)), "{done:?}");
        assert!(done.message().contains(expected) && done.stdout.is_empty(), "{done:?}");
    }
    let fixture = EntrypointFixture::new();
    let server = ReportSink::on("[::1]:0".parse().unwrap(), [ServerReply::Status(200)], ServerReply::Status(200));
    assert!(fixture.run(&EntrypointSpec { relay: relay(server.url()), ..fixture.sh("", &[]) }).said.reported);
}
