//! Outputs of scripts.

use ebb_protocol::callback::CallbackStatus;
use ebb_protocol::entrypoint::{REPORT_BODY, TerminationResult};
use ebb_protocol::limits::{OUTPUT, OUTPUTS};
use sha2::{Digest as _, Sha256};

use crate::fixture::*;

#[test]
fn outputs_have_the_exact_bytes() {
    let fixture = EntrypointFixture::new();
    let text = "printf 'with\\nline ends\\n\\n' >$W/a; : >$W/b; printf ' \\303\\274\\r\\n' >$W/c
        printf '\\377\\000\\n' >$W/d; mkdir -p $W/x/y; echo deep >$W/x/y/e; ln -s x $W/z";
    let exit = fixture.run(&fixture.sh(text, &["a", "b", "c", "d", "x/y/e", "z/y/e"]));
    for (name, expected) in
        [("a", "with\nline ends\n\n"), ("b", ""), ("c", " ü\r\n"), ("x/y/e", "deep\n"), ("z/y/e", "deep\n")]
    {
        assert_eq!(exit.output(name), expected);
    }
    assert_eq!(exit.termination.result.binary["d"], "/wAK");
    assert_eq!(exit.termination.result.outputs.len(), 5);
}

#[test]
fn invalid_outputs_fail_the_unit() {
    for (text, code, message) in [
        ("true", ReasonCode::OutputMissing, "output \"a\": the script ended with 0 and did not write /"),
        ("mknod $W/a c 1 5", ReasonCode::OutputInvalid, "is a device, not a file"),
    ] {
        let fixture = EntrypointFixture::new();
        // Output `b` is larger than a termination message.
        let more = "; head -c 5000 /dev/urandom >$W/b";
        let exit = fixture.run(&fixture.sh(&(text.to_owned() + more), &["a", "b"]));
        // The script ended with 0. The exit code of the container shows the failure.
        let found = (exit.code, exit.termination.exit_code, exit.reason());
        assert_eq!(found, (Some(125), Some(0), Some(code)), "{text}: {exit:?}");
        assert!(exit.message().contains(message) && exit.stderr.contains(message), "{text}: {exit:?}");
        assert!(exit.termination.result.outputs.is_empty() && exit.termination.result.binary.is_empty());
    }
}

#[test]
fn large_outputs_are_only_in_the_report() {
    for (text, outputs, expected) in [
        ("head -c 5000 /dev/zero | tr '\\0' x >$W/a", vec!["a"], Ok(5_000)),
        (&*format!("head -c {OUTPUT} /dev/zero | tr '\\0' x >$W/a"), vec!["a"], Ok(OUTPUT)),
        // Each NUL takes six bytes in JSON.
        ("for f in a b; do head -c 1000000 /dev/zero >$W/$f; done", vec!["a", "b"], Err("the limit is 5242880")),
    ] {
        let fixture = EntrypointFixture::new();
        let exit = fixture.run(&fixture.sh(text, &outputs));
        let (_, ended, body) = fixture.sink.wait_for_end();
        let reason = ended.result.reason.as_ref().map(|reason| reason.message.clone()).unwrap_or_default();
        assert!(exit.termination.reported && exit.message() == reason, "{text}: {exit:?}");
        assert_eq!(ended.exit_code, Some(0));
        match expected {
            Ok(size) => {
                assert_eq!((exit.code, ended.result.outputs["a"].as_str().unwrap().len()), (Some(0), size));
                let digest: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(exit.termination.report, Some(digest));
                assert_eq!(exit.termination.result.status, CallbackStatus::Succeeded);
                assert!(exit.termination.result.outputs.is_empty());
            }
            Err(message) => {
                assert!(reason.contains(message), "{reason}");
                assert_eq!((exit.code, &exit.termination.report), (Some(125), &None));
            }
        }
    }
}

#[test]
fn sensitive_outputs_are_only_in_the_report() {
    let fixture = EntrypointFixture::new();
    let sensitive = |mut spec: EntrypointSpec| {
        spec.outputs.iter_mut().filter(|output| output.name != "b").for_each(|output| output.sensitive = true);
        spec
    };
    // The input is known from the start, and masked on the streams. The output is masked in the report.
    let text = "printf 's3cr3t' >$W/a; echo $(cat $W/a) $IN ${IN%n}; printf plain >$W/b; for f in c d e; do head -c 1048576 /dev/zero >$W/$f; done";
    let mut spec = sensitive(fixture.sh(text, &["a", "b", "c", "d", "e"]));
    let given = input("in", Some("IN"), None, Some(UnitValue::Json("given".into())));
    spec.inputs.push(ScriptInput { sensitive: true, ..given });
    let exit = fixture.run(&spec);
    let (_, ended, body) = fixture.sink.wait_for_end();
    assert_eq!(ended.result.log.as_deref(), Some("*** *** give\n"));
    assert_eq!(String::from_utf8_lossy(&exit.stdout), "s3cr3t *** give\n");
    assert_eq!(ended.sensitive["a"], "czNjcjN0");
    assert_eq!(ended.sensitive.len(), 4);
    assert_eq!(ended.result.outputs.keys().collect::<Vec<_>>(), ["b"]);
    assert!(body.len() <= REPORT_BODY && 3 * OUTPUT < OUTPUTS);
    let TerminationResult { report, reported, result, .. } = &exit.termination;
    assert!(report.is_some() && *reported && result.outputs.is_empty());
    let message = std::fs::read_to_string(fixture.at("termination-log")).unwrap() + &exit.stderr;
    assert!(!message.contains("czNjcjN0") && !message.contains("s3cr3t"));
    // A failed unit reports no sensitive outputs, because no teardown would delete them.
    let fixture = EntrypointFixture::new();
    let exit = fixture.run(&sensitive(fixture.sh("echo x >$W/a", &["a", "z"])));
    assert_eq!(exit.reason(), Some(ReasonCode::OutputMissing));
    assert!(fixture.sink.wait_for_end().1.sensitive.is_empty());
}
