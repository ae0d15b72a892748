//! Reports to relays that are slow, lose responses, or do not run.

use std::net::TcpListener;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::*;

/// Returns an address without a server. A relay can have an IPv6 address.
fn unused_address() -> std::net::SocketAddr {
    TcpListener::bind("[::1]:0").unwrap().local_addr().unwrap()
}

#[test]
fn heartbeats_stop_at_the_end_of_the_script() {
    let fixture = EntrypointFixture::new();
    let address = RelayAddress { heartbeat_ms: 20, ..relay(fixture.sink.url()).unwrap() };
    let text = "printf 12345; while [ ! -e $W/go ]; do sleep 0.01; done";
    let mut spec = EntrypointSpec { relay: Some(address), ..fixture.sh(text, &[]) };
    spec.env.push(("TRACEPARENT".to_owned(), "00-1-2-01".to_owned()));
    // The entrypoint ignores a proxy in the environment of the image.
    let mut command = fixture.command(&spec);
    let child = command
        .env("http_proxy", "http://127.0.0.1:1")
        .env("ALL_PROXY", "http://127.0.0.1:1")
        .stdout(Stdio::null())
        .spawn();
    until("heartbeats", || {
        (fixture.sink.reports().iter().filter(|report| report.report().log_bytes == 5).count() > 2).then_some(())
    });
    fs::write(fixture.at("go"), "").unwrap();
    let exit = fixture.exit_of(child.unwrap().wait_with_output().unwrap());
    assert!(exit.termination.reported && exit.code == Some(0), "{exit:?}");
    let reports = fixture.sink.reports();
    assert!(matches!(reports.last().unwrap().report().state, ReportState::Ended(_)));
    assert_eq!(fixture.sink.ends().len(), 1);
    for report in reports {
        let head = report.head.to_ascii_lowercase();
        assert!(head.starts_with("post /v1/reports/a http/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nauthorization: bearer t0ken\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{head}");
        assert!(head.contains("\r\ntraceparent: 00-1-2-01\r\n"), "{head}");
    }
}

#[test]
fn progress_does_not_wait_for_a_heartbeat() {
    let fixture = EntrypointFixture::new();
    let address = RelayAddress { heartbeat_ms: 600_000, ..relay(fixture.sink.url()).unwrap() };
    let text = "printf canary-out >$W/made; echo ::ebb progress 40% of $TOKEN and $(cat $W/made)
        while [ ! -e $W/go ]; do sleep 0.01; done; echo ::ebb progress 100%";
    let mut spec = EntrypointSpec { relay: Some(address), ..fixture.sh(text, &["made"]) };
    spec.outputs[0].sensitive = true;
    let token = input("token", Some("TOKEN"), None, Some(UnitValue::Json("s3cret".into())));
    spec.inputs.push(ScriptInput { sensitive: true, ..token });
    let child = fixture.command(&spec).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let report = until("the progress", || fixture.sink.reports().pop()).report();
    assert_eq!((report.progress.as_deref(), report.state), (Some("40% of *** and ***"), ReportState::Running));
    fs::write(fixture.at("go"), "").unwrap();
    let exit = fixture.exit_of(child.wait_with_output().unwrap());
    // The lines stay in the log, where outputs are masked when the script has ended.
    let log = "::ebb progress 40% of *** and canary-out\n::ebb progress 100%\n";
    assert_eq!(String::from_utf8_lossy(&exit.stdout), log);
    assert_eq!(fixture.sink.wait_for_end().0.progress.as_deref(), Some("100%"));
}

#[test]
fn the_end_is_reported_until_it_is_acknowledged() {
    use ServerReply::{Lost, Status};
    let (lost, slow) = (Lost(Duration::ZERO), Lost(Duration::from_millis(300)));
    for (replies, attempts, is_reported) in [
        (vec![Status(200)], 1, true),
        (vec![lost, Status(500), Status(429), Status(302), slow, lost, Status(202)], 7, true),
        (vec![Status(503), Status(410)], 2, false),
    ] {
        let fixture = EntrypointFixture::new();
        let server = ReportSink::start(replies.clone());
        let exit = fixture.run(&EntrypointSpec { relay: relay(server.url()), ..fixture.sh("printf x >$W/a", &["a"]) });
        assert_eq!((exit.code, exit.termination.reported), (Some(0), is_reported), "{replies:?}: {exit:?}");
        // Small outputs are in the termination message.
        assert_eq!((exit.output("a"), &exit.termination.report), ("x", &None));
        let ends = server.ends();
        assert_eq!(ends.len(), attempts, "{replies:?}");
        assert!(ends.iter().all(|report| report.body == ends[0].body), "a repeated report differs");
    }
}

#[test]
fn the_report_is_repeated_until_the_relay_runs() {
    let fixture = EntrypointFixture::new();
    let address = unused_address();
    let spec = EntrypointSpec { relay: relay(format!("http://{address}/v1/reports/a")), ..fixture.sh("exit 4", &[]) };
    let child = fixture.command(&spec).stderr(Stdio::piped()).spawn().unwrap();
    fixture.wait_for_message();
    let server = ReportSink::on(address, [ServerReply::Status(200)], ServerReply::Status(200));
    let exit = fixture.exit_of(child.wait_with_output().unwrap());
    assert_eq!((exit.code, exit.termination.reported, server.ends().len()), (Some(4), true, 1));
}

#[test]
fn the_report_is_given_up_after_the_retry_time() {
    let fixture = EntrypointFixture::new();
    let address = RelayAddress { report_retry_ms: 400, ..relay(format!("http://{}/", unused_address())).unwrap() };
    let started = Instant::now();
    let exit = fixture.run(&EntrypointSpec { relay: Some(address), ..fixture.sh("echo x >$W/a; exit 0", &["a"]) });
    assert_eq!((exit.code, exit.termination.reported, exit.output("a")), (Some(0), false, "x\n"));
    assert!(exit.stderr.contains("the relay has not taken the report"), "{exit:?}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_signal_ends_the_repetition_of_reports_after_the_grace_period() {
    let fixture = EntrypointFixture::new();
    let address = RelayAddress { report_retry_ms: u64::MAX, ..relay(format!("http://{}/", unused_address())).unwrap() };
    let spec = EntrypointSpec { relay: Some(address), grace_ms: 200, ..fixture.sh("exit 6", &[]) };
    let child = fixture.command(&spec).stderr(Stdio::piped()).spawn().unwrap();
    fixture.wait_for_message();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let exit = fixture.exit_of(child.wait_with_output().unwrap());
    assert_eq!((exit.code, exit.termination.reported, exit.reason()), (Some(6), false, Some(ReasonCode::Exit)));
}

#[test]
fn a_slow_relay_does_not_delay_the_script() {
    let fixture = EntrypointFixture::new();
    let slow = ServerReply::Lost(Duration::from_secs(3));
    let server = ReportSink::on("127.0.0.1:0".parse().unwrap(), [ServerReply::Status(200)], slow);
    let address = RelayAddress { heartbeat_ms: 10, ..relay(server.url()).unwrap() };
    // The script ends while a heartbeat waits for its response.
    let text = "while [ ! -e $W/go ]; do sleep 0.01; done; yes | head -c 10000000";
    let spec = EntrypointSpec { relay: Some(address), ..fixture.sh(text, &[]) };
    let child = fixture.command(&spec).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("a heartbeat", || server.reports().pop());
    let started = Instant::now();
    fs::write(fixture.at("go"), "").unwrap();
    fixture.wait_for_message();
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert!(server.ends().is_empty());
    let exit = fixture.exit_of(child.wait_with_output().unwrap());
    assert_eq!((exit.code, exit.termination.reported), (Some(0), true));
}
