//! The isolation of scripts.

use crate::fixture::*;

pub(crate) async fn tmp_is_private(fixture: PodsFixture) {
    let result = fixture.run(sh("ls -A /tmp; echo x >/tmp/ebb-test-left; pwd; echo $HOME; ls -A")).await;
    assert_eq!(result.status, CallbackStatus::Succeeded, "{result:?}");
    assert_eq!(result.log.as_deref(), Some("/ebb-unit/home\n/ebb-unit/home\n"));
    assert!(!Path::new("/tmp/ebb-test-left").exists());
}

pub(crate) async fn declared_paths_anywhere(fixture: PodsFixture) {
    let paths: Vec<&str> = include_str!("declared_paths.txt").lines().collect();
    let names: Vec<String> = (0..paths.len()).map(|index| format!("o{index}")).collect();
    let outputs: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(paths.iter().copied()).collect();
    let script: String = paths.iter().map(|path| format!("printf %s '{path}' >'{path}' || exit 1\n")).collect();
    let result = fixture.run(with_outputs(sh(&script), &outputs)).await;
    assert_eq!(result.status, CallbackStatus::Succeeded, "{result:?}");
    for (name, path) in outputs {
        assert_eq!(output(&result, name), path);
        assert!(!Path::new(path).exists(), "{path}");
    }
}

pub(crate) async fn nothing_left_on_the_host(fixture: PodsFixture) {
    let root = || -> Vec<_> {
        let mut names: Vec<_> = std::fs::read_dir("/").unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = root();
    let request = with_outputs(
        sh("mkdir -p /ebb-test-made/x && echo x >/ebb-test-dir/x && echo x >/ebb-test-made/x/y"),
        &[("x", "/ebb-test-dir/x")],
    );
    let result = fixture.run(request.clone()).await;
    assert_eq!(result.status, CallbackStatus::Succeeded, "{result:?}");
    assert_eq!(root(), before);
    assert!(!fixture.folder(&request.task).join("root").exists());
}

/// A declared file is private, and its neighbours are those of the machine.
pub(crate) async fn machine_files_stay_readable(fixture: PodsFixture) {
    let request = with_outputs(
        sh("grep -q ^root: /etc/passwd && [ ! -e /etc/hostname ] && printf mine >/etc/hostname"),
        &[("name", "/etc/hostname")],
    );
    let before = std::fs::read("/etc/hostname").unwrap();
    let result = fixture.run(request).await;
    assert_eq!(output(&result, "name"), "mine");
    assert_eq!(std::fs::read("/etc/hostname").unwrap(), before);
}

pub(crate) async fn state_is_hidden(_: PodsFixture) {
    let state = tempfile::Builder::new().prefix("ebb-test-").tempdir_in("/var/tmp").unwrap();
    let shown = state.path().display().to_string();
    let fixture = PodsFixture::in_folder(state);
    ebb_local::pods::secrets::put(fixture.state.path(), "s", "k", b"hidden").unwrap();
    let result = fixture.run(with_outputs(sh(&format!("ls -A {shown}; echo x >/out/x")), &[("x", "/out/x")])).await;
    assert_eq!(result.status, CallbackStatus::Succeeded, "{result:?}");
    assert_eq!(result.log.as_deref(), Some(""));
}

pub(crate) async fn environment_is_clean(fixture: PodsFixture) {
    let mut request =
        sh("env | cut -d= -f1 | grep -v -e ^PWD -e ^OLDPWD -e ^SHLVL -e ^_ | sort; echo $EBB_UNIT $EXTRA");
    request.body.env = vec![("EBB_UNIT".to_owned(), "create".to_owned())];
    let result = fixture.run(request).await;
    let expected = "EBB_SUPERVISED_IN\nEBB_UNIT\nEXTRA\nHOME\nLANG\nPATH\ncreate from the relay\n";
    assert_eq!(result.log.as_deref(), Some(expected));
}
