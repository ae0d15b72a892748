//! The start and the exit of scripts.

use crate::fixture::*;

#[test]
fn codes_and_reasons() {
    type Case = (String, i32, Option<ReasonCode>, String, String);
    let cases: Vec<Case> = serde_json::from_str(include_str!("../exits.json")).unwrap();
    for (text, code, reason, message, about) in cases {
        let fixture = EntrypointFixture::new();
        let exit = fixture.run(&fixture.spec(&text));
        assert_eq!((exit.code, exit.reason()), (Some(code), reason), "{text:?} {about}: {exit:?}");
        assert!(exit.message().contains(&message) && exit.stderr.contains(&message), "{text:?}: {exit:?}");
        let started = reason != Some(ReasonCode::NotStartable);
        assert_eq!(exit.termination.exit_code, started.then_some(code), "{text:?}");
        // The entrypoint notices the exit without a delay.
        assert!(exit.termination.result.duration_ms.is_some_and(|duration| duration < 20_000), "{text:?}: {exit:?}");
        assert!(exit.termination.reported && exit.termination.report.is_none());
    }
}

#[test]
fn invalid_command_lines_and_specs() {
    let fixture = EntrypointFixture::new();
    fs::write(fixture.at("later"), r#"{"v": 2, "script": {"all": "different"}}"#).unwrap();
    fs::write(fixture.at("broken"), r#"{"v": 1, "text": 3}"#).unwrap();
    fixture.write(&EntrypointSpec { relay: None, ..fixture.spec("echo ran") });
    let rows = include_str!("../command_lines.json").replace("FOLDER/", &fixture.at(""));
    for (arguments, expected) in serde_json::from_str::<Vec<(Vec<String>, String)>>(&rows).unwrap() {
        let output = Command::new(program()).args(&arguments).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(&expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn output_is_unchanged_and_its_tail_is_reported() {
    let fixture = EntrypointFixture::new();
    let exit = fixture.run(&fixture.sh("printf 'a\\000\\377\\n'; printf 'b\\r' >&2; printf '\\303\\274'", &[]));
    assert_eq!((exit.stdout.as_slice(), exit.stderr.as_str()), (b"a\0\xff\n\xc3\xbc".as_slice(), "b\r"));
    let (report, ended, _) = fixture.sink.wait_for_end();
    assert_eq!(report.log_bytes, 8);
    // The log has the order of each stream. The order between the streams is undefined.
    let log = ended.result.log.unwrap();
    assert!(log.contains('\r') && log.replace("b\r", "") == "a\0\u{fffd}\nü", "{log:?}");
}

#[test]
fn a_gigabyte_of_log_uses_little_memory() {
    let fixture = EntrypointFixture::new();
    let text = "yes | head -c 1000000000; printf end; grep VmHWM: /proc/$PPID/status >$W/peak";
    assert!(fixture.command(&fixture.sh(text, &["peak"])).stdout(Stdio::null()).status().unwrap().success());
    let (report, ended, _) = fixture.sink.wait_for_end();
    assert_eq!(report.log_bytes, 1_000_000_003);
    let log = ended.result.log.unwrap();
    assert!(log.len() == 256 << 10 && log.ends_with("y\ny\nend"));
    let peak = ended.result.outputs["peak"].as_str().unwrap().to_owned();
    let kilobytes: u32 = peak.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 4_000, "{peak}");
}

#[test]
fn a_script_continues_when_its_output_is_closed() {
    let fixture = EntrypointFixture::new();
    let mut child = fixture
        .command(&fixture.sh("while [ ! -e $W/go ]; do sleep 0.01; done; yes | head -c 1000000; echo ok >$W/a", &["a"]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    fs::write(fixture.at("go"), "").unwrap();
    let exit = fixture.exit_of(child.wait_with_output().unwrap());
    assert_eq!((exit.code, exit.output("a")), (Some(0), "ok\n"));
}
