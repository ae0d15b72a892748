//! Signals and crashes from outside.

use std::process::{Command, Stdio};

use crate::fixture::*;

const OWN: &str = "--own-a-relay";

/// Runs a relay on the state in the second argument, with the requests in the third, until it is killed.
pub(crate) fn own_if_asked() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_none_or(|first| first != OWN) {
        return;
    }
    block_on(async {
        let control = Arc::new(|_: HttpRequest| Err(CallError::Connect("down".to_owned())));
        let relay = LocalRelay::open(Path::new(&arguments[2]), options(control)).unwrap();
        let requests: Vec<EnsureTask<ScriptTask>> = serde_json::from_str(&arguments[3]).unwrap();
        for request in requests {
            relay.ensure(UnitCluster::default(), of_script(request)).await.unwrap();
        }
        println!("asked");
        std::future::pending::<()>().await;
    });
}

fn kill(pid: &str) {
    send("-KILL", pid);
}

fn send(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
}

/// `kill -9` of the supervisor: all processes of the script die, daemons included, and the task is lost.
pub(crate) async fn supervisor_killed(fixture: PodsFixture) {
    let request = sh("(setsid sh -c 'echo $$; echo up; exec sleep 1000' &) ; sleep 1000 & echo $$ $!; wait");
    let log = fixture.starts(&request, "up").await;
    let log = if log.split_whitespace().count() < 4 { fixture.prints(&request.task, " ").await } else { log };
    kill(&fs::read_to_string(fixture.folder(&request.task).join("pid")).unwrap());
    let result = fixture.ended(&request.task).await;
    assert_eq!(reason(&result).code, ReasonCode::Lost);
    assert!(result.log.unwrap().contains("up"));
    for pid in log.split_whitespace().filter(|word| *word != "up") {
        assert!(!lives(pid), "{pid}");
    }
    until("the callback", async || (fixture.sent() == 1).then_some(())).await;
    // A task that may have run does not run again.
    assert!(matches!(fixture.ensure(request).await, TaskState::Ended(_)));
}

/// `SIGTERM` to the supervisor, as when a machine stops: the script gets it too, and has time to clean up.
pub(crate) async fn supervisor_asked_to_end(fixture: PodsFixture) {
    for (code, number) in [(3, 1), (0, 2)] {
        let text = format!(
            "trap 'echo tidying; printf made >/out/x; exit {code}' TERM; echo up; while :; do sleep 0.05; done"
        );
        let request = attempt(number, with_outputs(sh(&text), &[("x", "/out/x")]));
        fixture.starts(&request, "up").await;
        send("-TERM", &fs::read_to_string(fixture.folder(&request.task).join("pid")).unwrap());
        let result = fixture.ended(&request.task).await;
        let log = result.log.as_deref().unwrap_or_default();
        assert!(log.ends_with("tidying\n"), "{log}");
        if code == 0 {
            assert_eq!(output(&result, "x"), "made");
        } else {
            let expected = "the supervisor was asked to end by SIGTERM, and the script ended with 3";
            assert_failed(&result, ReasonCode::Lost, expected);
            assert_eq!(reason(&result).message, expected);
        }
    }
}

/// `kill -9` of the entrypoint by the script itself, with a child that has dropped its whole environment.
pub(crate) async fn children_without_environment_die(fixture: PodsFixture) {
    let request = sh("env -i setsid sh -c 'echo $$; echo up; exec sleep 1000' & \
                      until [ -e /tmp/go ]; do sleep 0.02; done; kill -9 $PPID; sleep 1000");
    let log = fixture.starts(&request, "up").await;
    let child = log.split_whitespace().next().unwrap().to_owned();
    fs::write(fixture.folder(&request.task).join("root/tmp/go"), b"").unwrap();
    let result = fixture.ended(&request.task).await;
    assert_eq!(reason(&result).code, ReasonCode::Lost);
    assert!(!lives(&child), "{child}");
}

/// `SIGSTOP` of the entrypoint by its script: the deadline holds all the same.
pub(crate) async fn stopped_entrypoint_at_the_deadline(fixture: PodsFixture) {
    let mut request = sh("kill -STOP $PPID; echo $$ up; sleep 1000");
    request.timeout_ms = 300;
    fixture.ensure(request.clone()).await;
    let result = fixture.ended(&request.task).await;
    assert_eq!(reason(&result).code, ReasonCode::Timeout, "{result:?}");
    let log = result.log.unwrap_or_default();
    assert!(log.split_whitespace().next().is_none_or(|pid| !lives(pid)), "{log}");
}

/// The same with a cancellation.
pub(crate) async fn stopped_entrypoint_and_a_cancel(fixture: PodsFixture) {
    let seen = tempfile::Builder::new().prefix("ebb-test-").tempdir_in("/var/tmp").unwrap();
    let stopped = seen.path().join("stopped");
    let request = sh(&format!("kill -STOP $PPID; echo $$ >{}; sleep 1000", stopped.display()));
    fixture.ensure(request.clone()).await;
    let pid = until("the script stops its entrypoint", async || {
        fs::read_to_string(&stopped).ok().filter(|pid| pid.ends_with('\n'))
    })
    .await;
    let grace = std::time::Duration::from_secs(3600);
    assert_eq!(fixture.cancel(&request.task, grace).await, TaskState::Tombstoned);
    assert!(!lives(&pid), "{pid}");
}

/// `kill -9` of the program that owns the relay: tasks go on, and the next relay on the state sends their results.
pub(crate) async fn owner_killed(_: PodsFixture) {
    let state = tempfile::tempdir().unwrap();
    let gate = tempfile::Builder::new().prefix("ebb-test-").tempdir_in("/var/tmp").unwrap();
    let open = gate.path().join("open");
    let mut done = with_outputs(sh("printf early >/out/x"), &[("x", "/out/x")]);
    done.task.unit = "early".to_owned();
    let mut running = with_outputs(
        sh(&format!("until [ -e {} ]; do sleep 0.02; done; printf late >/out/x", open.display())),
        &[("x", "/out/x")],
    );
    running.task.unit = "late".to_owned();
    let asked = serde_json::to_string(&[&done, &running]).unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([OWN, state.path().to_str().unwrap(), &asked])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pods = state.path().join("pods");
    until("both have been asked for", async || {
        let early = pods.join("early/1/result.json").exists();
        (early && pods.join("late/1/started").exists()).then_some(())
    })
    .await;
    owner.kill().unwrap();
    owner.wait().unwrap();

    let fixture = PodsFixture::in_folder(state);
    assert!(matches!(fixture.get(&running.task).await, TaskState::Running { .. }));
    until("the early callback", async || (fixture.sent() == 1).then_some(())).await;
    fs::write(&open, "").unwrap();
    until("the late callback", async || (fixture.sent() == 2).then_some(())).await;
    assert_eq!(output(&fixture.ended(&done.task).await, "x"), "early");
    assert_eq!(output(&fixture.ended(&running.task).await, "x"), "late");
}

/// A crash between the request on disk and the start of the supervisor, and one before the request.
pub(crate) async fn crash_before_the_start(fixture: PodsFixture) {
    let request = sh("echo ran");
    let result = fixture.run(request.clone()).await;
    assert_eq!(result.status, CallbackStatus::Succeeded);
    let PodsFixture { state, relay, .. } = fixture;
    drop(relay);
    let folder = state.path().join("pods/run-0/1");
    // An accepted request does not expire: the start may wait for other starts, or for this program.
    let mut asked: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("request.json")).unwrap()).unwrap();
    asked["validForMs"] = 0.into();
    // The supervisor writes to its folder until it ends, a moment after its result.
    until("an empty folder", async || fs::remove_dir_all(&folder).is_ok().then_some(())).await;
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("request.json"), asked.to_string()).unwrap();
    fs::create_dir(state.path().join("pods/run-0/2")).unwrap();

    let fixture = PodsFixture::in_folder(state);
    assert_eq!(fixture.ended(&request.task).await.log.as_deref(), Some("ran\n"));
    let second = attempt(2, request);
    assert_eq!(fixture.get(&second.task).await, TaskState::Unknown);
    assert_eq!(fixture.run(second).await.status, CallbackStatus::Succeeded);
}
