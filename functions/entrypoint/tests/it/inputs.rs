//! Inputs of scripts as variables and files.

use ebb_protocol::script::VARIABLE;
use ebb_protocol::value::SecretRef;

use crate::fixture::*;

fn text(text: &str) -> Option<UnitValue> {
    Some(UnitValue::Json(json!(text)))
}

#[test]
fn variables_and_files() {
    let fixture = EntrypointFixture::new();
    fs::write(fixture.at("old"), "of the image").unwrap();
    let at = |name: &str| fixture.at(name);
    let inputs = vec![
        input("both", Some("BOTH"), Some(&at("deep/er/both")), text("two\nlines\n\n")),
        input("bytes", None, Some(&at("bytes")), Some(UnitValue::Bytes(vec![0, 0xff, b'\n']))),
        input("raw", Some("RAW"), None, Some(UnitValue::Bytes(vec![0xfe, 0xff]))),
        input("number", Some("NUMBER"), None, Some(UnitValue::Json(json!({"a": 1})))),
        input("empty", Some("EMPTY"), Some(&at("empty")), text("")),
        input("over", Some("HOME"), None, text("input")),
        input("none", Some("NONE"), Some(&at("old")), None),
        input("longest", Some("LONG"), None, text(&"x".repeat(VARIABLE - 4))),
    ];
    let script = "printf %s \"$BOTH\" | cmp - $W/deep/er/both || exit 1
        { cat $W/deep/er/both; od -An -tx1 $W/bytes; printf %s \"$RAW\" | od -An -tx1; } >$W/a
        echo \"$NUMBER,${EMPTY-unset},$HOME,${NONE-unset},${#LONG},$FROM_IMAGE\" >$W/b
        ls $W/old 2>&1 >/dev/null | grep -c 'No such' >$W/c; stat -c %a $W/bytes $W/own/script >$W/d";
    let spec = EntrypointSpec { inputs, ..fixture.sh(script, &["a", "b", "c", "d"]) };
    let exit = fixture.exit_of(fixture.command(&spec).env("FROM_IMAGE", "kept").output().unwrap());
    assert_eq!(exit.code, Some(0), "{exit:?}");
    assert_eq!(exit.output("a"), "two\nlines\n\n 00 ff 0a\n fe ff\n");
    assert_eq!(exit.output("b"), format!("{{\"a\":1}},,input,unset,{},kept\n", VARIABLE - 4));
    assert_eq!((exit.output("c"), exit.output("d")), ("1\n", "644\n700\n"));
}

#[test]
fn invalid_specs_are_reported_before_the_script_runs() {
    let fixture = EntrypointFixture::new();
    fs::create_dir(fixture.at("folder")).unwrap();
    fs::write(fixture.at("file"), "").unwrap();
    let spec = || fixture.sh("echo ran", &[]);
    let of_input = |env, path, value| EntrypointSpec { inputs: vec![input("i", env, path, value)], ..spec() };
    let of_output = |path| EntrypointSpec { outputs: vec![output("o", path)], ..spec() };
    let of_relay = |url: &str| EntrypointSpec { relay: relay(url.to_owned()), ..spec() };
    let secret = SecretRef { cluster: None, namespace: None, name: "n".to_owned(), key: "k".to_owned() };
    let secret = Some(UnitValue::Secret(secret));
    // Each variable is below the limit, and all together exceed it.
    let inputs = (0..30).map(|n| input("i", Some(&format!("I{n}")), None, text(&"x".repeat(100_000)))).collect();
    for (rejected, expected) in [
        (of_input(Some("I"), None, text("a\0b")), "input \"i\": \"I\": an environment variable cannot hold NUL"),
        (of_input(Some("I=J"), None, text("")), "this is not a name of an environment variable"),
        (of_input(Some("I"), None, text(&"x".repeat(VARIABLE))), "can hold 131070 bytes, but this value has 131070"),
        (of_input(None, Some("a/b"), text("")), "input \"i\": \"a/b\": the path is not absolute"),
        (of_input(None, Some(&fixture.at("folder")), text("")), "/folder: Is a directory"),
        (of_input(None, Some(&fixture.at("folder")), None), "the input has no value, and what is there stays"),
        (of_input(None, Some(&fixture.at("file/x")), text("")), "/file/x: its folder cannot be made: "),
        (of_input(None, Some("/proc/ebb/x"), text("")), "/proc/ebb/x: its folder cannot be made: "),
        (of_input(Some("I"), None, secret), "a reference to a Secret is for the relay to resolve"),
        (EntrypointSpec { inputs, ..spec() }, "all environment variables together are larger"),
        (of_output("a"), "output \"o\": \"a\": the path is not absolute"),
        (of_output("/a/"), "output \"o\": \"/a/\": it names a folder"),
        (of_output("/a\0"), "output \"o\": \"/a\\0\": a path cannot have NUL bytes"),
        (of_relay("http://relay.ebb:8080/x"), "has a name where an IP address belongs"),
        (of_relay("https://10.0.0.1/x"), "does not begin with http://"),
        (of_relay("10.0.0.1"), "does not begin with http://"),
        (of_relay("http://[::1/"), "is not a URL"),
    ] {
        let exit = fixture.run(&rejected);
        assert_eq!((exit.code, exit.reason()), (Some(126), Some(ReasonCode::NotStartable)), "{exit:?}");
        assert!(exit.message().contains(expected) && exit.stdout.is_empty(), "{expected}: {exit:?}");
    }
}
