//! Inputs and outputs of scripts.

use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_local::pods::secrets;
use ebb_protocol::value::SecretRef;

use crate::fixture::*;

/// Each NUL is six bytes in JSON.
pub(crate) async fn too_large(fixture: PodsFixture) {
    let names = ["a", "b", "c", "d"].map(|name| (name, format!("/out/{name}")));
    let outputs: Vec<_> = names.iter().map(|(name, path)| (*name, path.as_str())).collect();
    let result =
        fixture.run(with_outputs(sh("for f in a b c d; do head -c 1000000 /dev/zero >/out/$f; done"), &outputs)).await;
    assert_failed(&result, ReasonCode::OutputTooLarge, "bytes as JSON; the limit is 5242880");
}

/// Returns the names of the secrets of a state, sorted.
fn stored(state: &Path) -> Vec<String> {
    let names = fs::read_dir(state.join("secrets")).unwrap().map(|entry| entry.unwrap().file_name().into_string());
    let mut names: Vec<String> = names.map(Result::unwrap).collect();
    names.sort();
    names
}

/// The release of an instance deletes its sensitive outputs. Secrets of users and of other instances stay.
pub(crate) async fn released(fixture: PodsFixture) {
    let state = fixture.state.path();
    secrets::put(state, "admin", "dsn", b"canary-in").unwrap();
    for unit in ["aaaa-1-pre-start-0", "aaaa-2-pre-start-0", "aaaab-1-pre-start-0"] {
        let mut request = with_outputs(sh("printf canary-out >/out/x"), &[("x", "/out/x")]);
        request.task.unit = unit.to_owned();
        request.body.outputs[0].sensitive = true;
        assert_eq!(fixture.run(request).await.status, CallbackStatus::Succeeded);
    }
    assert_eq!(stored(state).len(), 4);
    for _ in 0..2 {
        fixture.relay.release(UnitCluster::default(), "aaaa").await.unwrap();
        assert_eq!(stored(state), ["admin", "out-aaaab-1-pre-start-0-1"]);
    }
}

/// Values of secrets, of inputs and outputs alike, are nowhere else.
pub(crate) async fn sensitive(fixture: PodsFixture) {
    let state = fixture.state.path();
    secrets::put(state, "admin", "dsn", b"canary-in").unwrap();
    let secret = |name: &str, key: &str| {
        let (name, key) = (name.to_owned(), key.to_owned());
        Some(UnitValue::Secret(SecretRef { cluster: None, namespace: None, name, key }))
    };
    let mut request = with_outputs(
        sh("[ \"$DSN\" = canary-in ] && [ \"$(cat /in/dsn)\" = canary-in ] && printf 'canary-%s\\n' out >/out/x || exit 1
            printf 'the %s' \"${DSN%in}\"; sleep 0.1; echo in; cat /out/x"),
        &[("the x", "/out/x")],
    );
    request.body.inputs = vec![input("dsn", Some("DSN"), Some("/in/dsn"), secret("admin", "dsn"))];
    request.body.outputs[0].sensitive = true;
    let result = fixture.run(request).await;
    assert_eq!(result.log.as_deref(), Some("the ***\n***\n"), "{result:?}");
    assert_eq!(result.status, CallbackStatus::Succeeded);
    let place = &result.secrets["the x"];
    assert_eq!(secrets::get(state, &place.name, &place.key).unwrap().unwrap(), b"canary-out\n");
    assert!(result.outputs.is_empty() && result.binary.is_empty());
    let file = state.join("secrets").join(&place.name).join(&place.key);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let mut folders = vec![state.join("pods")];
    while let Some(folder) = folders.pop() {
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let text = String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned();
                assert!(!text.contains("canary-out"), "{:?}", entry.path());
                // The text of the script has the value of the input.
                assert!(!text.replace("= canary-in ]", "").contains("canary-in"), "{:?}", entry.path());
            }
        }
    }

    // A failed script may have written its output.
    let text = "printf 'canary-%s' out >/out/x; cat /out/x; exit 3";
    let mut request = with_outputs(sh(text), &[("the x", "/out/x")]);
    (request.task.attempt, request.body.outputs[0].sensitive) = (2, true);
    let result = fixture.run(request).await;
    assert_eq!((reason(&result).code, result.log.as_deref()), (ReasonCode::Exit, Some("***")));
    assert!(result.secrets.is_empty());

    let mut request = attempt(3, sh(""));
    request.body.inputs = vec![input("dsn", Some("DSN"), None, secret("admin", "other"))];
    let result = fixture.run(request).await;
    let message = "input \"dsn\": this machine has no key \"other\" of secret \"admin\"";
    assert_failed(&result, ReasonCode::NotStartable, message);
    assert_eq!(reason(&result).message, message);

    assert_eq!(stored(state).len(), 2);
    assert!(secrets::put(state, "../x", "k", b"").is_err());
}

/// A sensitive input that arrives as a value is in a file of its own, until the result of the task was acknowledged.
pub(crate) async fn sensitive_values(fixture: PodsFixture) {
    let state = fixture.state.path();
    *fixture.control.answers.lock().unwrap() = (0..1000).map(|_| Ok(503)).collect();
    let mut request = sh("printf 'the %s' \"${TOKEN%in}\"; sleep 0.1; echo in");
    let token = input("the token", Some("TOKEN"), None, text("canary-in"));
    request.body.inputs = vec![ScriptInput { sensitive: true, ..token }];
    let result = fixture.run(request.clone()).await;
    assert_eq!(result.log.as_deref(), Some("the ***\n"), "{result:?}");
    assert_eq!(stored(state), ["in-run-0-1"]);
    for entry in fs::read_dir(fixture.folder(&request.task)).unwrap() {
        let path = entry.unwrap().path();
        let text = if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        assert!(!String::from_utf8_lossy(&text).contains("canary"), "{path:?}");
    }
    fixture.relay.acknowledge(UnitCluster::default(), &request.task).await.unwrap();
    assert_eq!(stored(state), [""; 0]);
}

/// Declared files replace those of the machine, with or without a value.
pub(crate) async fn inputs_replace_files(fixture: PodsFixture) {
    let mut request = with_outputs(
        sh("[ -z \"${X+set}\" ] && [ -d /in ] && [ ! -e /in/x ] && [ ! -e /etc/passwd ] || exit 1
            { cat /etc/hostname /in/deep/bytes; printf %s \"$NUMBER\"; } >/out/seen"),
        &[("seen", "/out/seen")],
    );
    request.body.inputs = serde_json::from_str(include_str!("inputs.json")).unwrap();
    let result = fixture.run(request).await;
    assert_eq!(result.status, CallbackStatus::Succeeded, "{result:?}");
    let seen = STANDARD.decode(&result.binary["seen"]).unwrap();
    assert_eq!(seen, b"not the machine's\n\x00\xff\n5");
}

pub(crate) async fn unusable_input(fixture: PodsFixture) {
    let mut request = sh("echo ran");
    request.body.inputs = vec![input("a", None, Some("/proc/self/x"), text("x"))];
    let result = fixture.run(request).await;
    assert_failed(&result, ReasonCode::NotStartable, "/proc belongs to the kernel");
    assert_eq!(result.log.unwrap_or_default(), "");
}
