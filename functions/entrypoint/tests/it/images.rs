//! Scripts in private root folders, as in containers. The tests need root and Debian's `busybox-static`, a static shell.

use std::os::unix::fs::PermissionsExt as _;

use crate::fixture::*;

/// Returns a root folder with the folders of a container, and the entrypoint.
fn image(with_shell: bool) -> EntrypointFixture {
    let fixture = EntrypointFixture::new();
    for folder in ["bin", "dev", "proc", "ebb/bin", "ebb/own", "ebb/in", "tmp"] {
        fs::create_dir_all(fixture.at(folder)).unwrap();
    }
    fs::set_permissions(fixture.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(program(), fixture.at("init")).unwrap();
    std::os::unix::fs::symlink("dev/termination-log", fixture.at("termination-log")).unwrap();
    if with_shell {
        fs::copy("/bin/busybox", fixture.at("bin/busybox")).expect("busybox-static is installed");
        for name in ["sh", "cat", "id", "sleep"] {
            std::os::unix::fs::symlink("busybox", fixture.at(&format!("bin/{name}"))).unwrap();
        }
    }
    fixture
}

/// Runs a script as user 65534 in a read-only root folder. The folder `/ebb/bin`, the folder `/ebb/own`, which is mounted
/// `noexec`, and the termination message are writable, as in a pod.
fn run_in_root(fixture: &EntrypointFixture, spec: &EntrypointSpec) -> EntrypointExit {
    fs::write(fixture.at("ebb/in/spec.json"), serde_json::to_vec(spec).unwrap()).unwrap();
    let root = fixture.folder.path().to_str().unwrap();
    fs::write(fixture.at("dev/termination-log"), "").unwrap();
    fs::set_permissions(fixture.at("dev/termination-log"), fs::Permissions::from_mode(0o666)).unwrap();
    fs::write(fixture.at("dev/null"), "").unwrap();
    let script = include_str!("../run_in_root.sh");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", script, "sh", root]);
    fixture.exit_of(command.output().unwrap())
}

/// The output of the installation.
const INSTALLED: &str = "755 65534\nebb-entrypoint\n";

fn spec(fixture: &EntrypointFixture, text: &str) -> EntrypointSpec {
    EntrypointSpec {
        folder: "/ebb/own/script".to_owned(),
        termination_log: "/dev/termination-log".to_owned(),
        ..fixture.spec(text)
    }
}

#[test]
fn a_script_runs_in_a_read_only_root_as_an_unprivileged_user() {
    let fixture = image(true);
    let mut spec = spec(&fixture, "id -u; echo out >/ebb/own/a; cat /proc/1/comm; sleep 1000 & [ ! -w /tmp ]");
    spec.outputs.push(output("a", "/ebb/own/a"));
    let exit = run_in_root(&fixture, &spec);
    assert_eq!(String::from_utf8_lossy(&exit.stdout), format!("{INSTALLED}65534\nebb-entrypoint\n"), "{exit:?}");
    assert_eq!((exit.code, exit.output("a")), (Some(0), "out\n"));
}

#[test]
fn the_error_of_an_unwritable_input_path_suggests_a_fix() {
    let fixture = image(true);
    let value = ebb_protocol::value::UnitValue::Json("x".into());
    let inputs = vec![input("i", None, Some("/inputs/i"), Some(value))];
    let exit = run_in_root(&fixture, &EntrypointSpec { inputs, ..spec(&fixture, "true") });
    let expected = "input \"i\": /inputs/i: its folder cannot be made: Read-only file system (os error 30): mount an \
                    emptyDir there, or choose another path";
    let found = (exit.code, exit.reason(), exit.message());
    assert_eq!(found, (Some(126), Some(ReasonCode::NotStartable), expected), "{exit:?}");
}

#[test]
fn an_image_without_a_shell() {
    for (text, expected) in [
        ("#!/bin/bash -e\n", "this image has no /bin/bash, the script's interpreter"),
        ("echo", "this image has no /bin/sh, the script's interpreter, which runs scripts without a first line"),
    ] {
        let fixture = image(false);
        let exit = run_in_root(&fixture, &spec(&fixture, text));
        assert_eq!((exit.code, exit.reason()), (Some(127), Some(ReasonCode::NotStartable)), "{exit:?}");
        assert!(exit.message().contains(expected) && exit.stderr.contains(expected), "{exit:?}");
    }
    // The interpreter exists and does not start.
    let fixture = image(false);
    fs::copy("/bin/sh", fixture.at("bin/sh")).unwrap();
    let exit = run_in_root(&fixture, &spec(&fixture, "echo"));
    assert_eq!(exit.message(), "/bin/sh, the script's interpreter, needs a loader that this image does not have");
}

#[test]
fn a_second_installation_replaces_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // A file of an interrupted installation, and an older program that runs.
    fs::write(at(".ebb-entrypoint.half"), "half").unwrap();
    fs::copy("/bin/sleep", at("ebb-entrypoint")).unwrap();
    let mut old = Command::new(at("ebb-entrypoint")).arg("1000").spawn().unwrap();
    let install = |to: &Path| Command::new(program()).arg("install").arg(to).output().unwrap();
    assert!(install(folder.path()).status.success());
    assert!(fs::read(at("ebb-entrypoint")).unwrap() == fs::read(program()).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    old.kill().unwrap();
    old.wait().unwrap();
    let failed = install(&at("no/such"));
    let message = String::from_utf8(failed.stderr).unwrap();
    assert!(failed.status.code() == Some(1) && message.contains("no/such/ebb-entrypoint: No such file"), "{message}");
}
