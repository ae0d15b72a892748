//! Inputs of scripts as variables and files.

use ebb_protocol::script::VARIABLE;

use crate::fixture::*;

#[test]
fn variables_and_files() {
    let fixture = EntrypointFixture::new();
    fs::write(fixture.at("old"), "of the image").unwrap();
    let inputs = include_str!("../inputs.json").replace("FOLDER/", &fixture.at(""));
    let inputs = serde_json::from_str(&inputs.replace("LONGEST", &"x".repeat(VARIABLE - 4))).unwrap();
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
    let table = include_str!("../invalid_specs.json").replace("FOLDER/", &fixture.at(""));
    let mut rows: Vec<(serde_json::Value, String)> = serde_json::from_str(&table).unwrap();
    let large = |env: &str, bytes: usize| input("i", Some(env), None, Some(UnitValue::Json("x".repeat(bytes).into())));
    let too_large = "can hold 131070 bytes, but this value has 131070".to_owned();
    rows.push((json!({"inputs": [large("I", VARIABLE)]}), too_large));
    // Each variable is below the limit, and all together exceed it.
    let inputs: Vec<_> = (0..30).map(|n| large(&format!("I{n}"), 100_000)).collect();
    rows.push((json!({"inputs": inputs}), "all environment variables together are larger".to_owned()));
    for (changes, expected) in rows {
        let mut spec = json!(fixture.sh("echo ran", &[]));
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let exit = fixture.run(&serde_json::from_value(spec).unwrap());
        assert_eq!((exit.code, exit.reason()), (Some(126), Some(ReasonCode::NotStartable)), "{exit:?}");
        assert!(exit.message().contains(&expected) && exit.stdout.is_empty(), "{expected}: {exit:?}");
    }
}
