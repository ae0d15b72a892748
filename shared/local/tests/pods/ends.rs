//! How scripts end.

use std::time::Duration;

use ebb_flow::ports::{RelayClient as _, RelayError, UnitCluster};
use ebb_protocol::callback::{CallbackStatus, ReasonCode};
use ebb_protocol::limits::LOG_TAIL;
use ebb_protocol::relay::TaskState;

use crate::fixture::*;

pub(crate) async fn exit_codes() {
    let fixture = PodsFixture::new();
    for (code, number) in [(0, 1), (7, 2)] {
        let result = fixture.run(attempt(number, sh(&format!("echo said; echo so >&2; exit {code}")))).await;
        assert_eq!(result.log.as_deref(), Some("said\nso\n"));
        assert!(result.duration_ms.is_some());
        if code == 0 {
            assert_eq!(result.status, CallbackStatus::Succeeded);
        } else {
            assert_eq!(result.status, CallbackStatus::Failed);
            assert_failed(&result, ReasonCode::Exit, &format!("the script ended with {code}"));
        }
    }
}

pub(crate) async fn expired_requests_are_not_accepted() {
    let fixture = PodsFixture::new();
    let mut request = sh("echo ran");
    request.valid_for_ms = 0;
    let task = request.task.clone();
    let refused = fixture.relay.ensure(UnitCluster::default(), request.into()).await;
    assert!(matches!(&refused, Err(RelayError::Busy(why)) if why == "the request has expired"), "{refused:?}");
    assert_eq!(fixture.get(&task).await, TaskState::Unknown);
}

pub(crate) async fn long_log() {
    let fixture = PodsFixture::new();
    let request = sh("yes 'a line that says nothing at all' | head -c 200000000; echo last");
    let result = fixture.run(request.clone()).await;
    assert_eq!(result.status, CallbackStatus::Succeeded);
    let log = result.log.unwrap();
    assert!(log.len() <= LOG_TAIL && log.len() > LOG_TAIL - 10);
    assert!(log.ends_with("last\n"));
    let files = std::fs::read_dir(fixture.folder(&request.task)).unwrap();
    let kept: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(kept < 1_500_000, "{kept}");
}

pub(crate) async fn progress() {
    let fixture = PodsFixture::new();
    let request = sh("echo ::ebb progress 10%; echo ::ebb progress 40% loading; echo done; sleep 1000");
    fixture.starts(&request, "done").await;
    for state in [
        fixture.relay.get(UnitCluster::default(), &request.task).await,
        fixture.relay.status(UnitCluster::default(), &request.task).await,
    ] {
        let TaskState::Running(task) = state.unwrap() else { panic!("it runs") };
        assert_eq!(task.progress.as_deref(), Some("40% loading"));
    }
    assert_eq!(fixture.cancel(&request.task, Duration::ZERO).await, TaskState::Tombstoned);
}

pub(crate) async fn last_line() {
    let fixture = PodsFixture::new();
    let request = sh("printf 'one\\ntwo 10%%\\rtwo 20%%\\n\\n'; echo done >&2; sleep 1000");
    fixture.starts(&request, "done").await;
    assert_eq!(fixture.relay.last_line(&request.task).unwrap(), "done");
    assert_eq!(fixture.cancel(&request.task, Duration::ZERO).await, TaskState::Tombstoned);

    let request = attempt(2, sh("printf 'one\\ntwo 10%%\\rtwo 20%%\\n\\n'"));
    fixture.run(request.clone()).await;
    assert_eq!(fixture.relay.last_line(&request.task).unwrap(), "two 20%");
    assert_eq!(fixture.relay.last_line(&name("other", 1)), None);
}

pub(crate) async fn not_startable() {
    let fixture = PodsFixture::new();
    let result = fixture.run(request("#!/no/such/shell\n")).await;
    assert_failed(&result, ReasonCode::NotStartable, "this machine has no /no/such/shell");
}

pub(crate) async fn cancel_kills() {
    let fixture = PodsFixture::new();
    let request = sh("trap '' TERM; sleep 1000 & echo $$ $!; while :; do sleep 1; done");
    let log = fixture.starts(&request, "\n").await;
    assert_eq!(fixture.cancel(&request.task, Duration::from_millis(50)).await, TaskState::Tombstoned);
    for pid in log.split_whitespace() {
        assert!(!lives(pid));
    }
    assert_eq!(fixture.ensure(request.clone()).await, TaskState::Tombstoned);
    assert_eq!(fixture.cancel(&request.task, Duration::ZERO).await, TaskState::Tombstoned);
    // A cancelled task sends no callback.
    assert_eq!(fixture.sent(), 0);
}

pub(crate) async fn cancel_with_grace() {
    let fixture = PodsFixture::new();
    let request = sh("trap 'echo tidying; exit 3' TERM; echo up; while :; do sleep 0.05; done");
    fixture.starts(&request, "up").await;
    assert_eq!(fixture.cancel(&request.task, WAIT_TIMEOUT).await, TaskState::Tombstoned);
    let log = std::fs::read_to_string(fixture.folder(&request.task).join("log")).unwrap();
    assert!(log.contains("tidying"), "{log}");
}

pub(crate) async fn cancel_of_the_ended() {
    let fixture = PodsFixture::new();
    let request = sh("exit 4");
    let result = fixture.run(request.clone()).await;
    assert_eq!(fixture.cancel(&request.task, WAIT_TIMEOUT).await, TaskState::Ended(Box::new(result)));

    // A script that ends with 0 after `SIGTERM` has succeeded.
    let text = "trap 'printf made >/out/x; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    let request = attempt(2, with_outputs(sh(text), &[("x", "/out/x")]));
    fixture.starts(&request, "up").await;
    match fixture.cancel(&request.task, WAIT_TIMEOUT).await {
        TaskState::Ended(result) => assert_eq!(output(&result, "x"), "made"),
        other => panic!("{other:?}"),
    }
}
