//! How scripts end.

use crate::fixture::*;

pub(crate) async fn expired_requests_are_not_accepted(fixture: PodsFixture) {
    let mut request = sh("echo ran");
    request.valid_for_ms = 0;
    let task = request.task.clone();
    let refused = fixture.relay.ensure(UnitCluster::default(), of_script(request)).await;
    assert!(matches!(&refused, Err(RelayError::Busy(why)) if why == "the request has expired"), "{refused:?}");
    assert_eq!(fixture.get(&task).await, TaskState::Unknown);
}

pub(crate) async fn progress(fixture: PodsFixture) {
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

pub(crate) async fn last_line(fixture: PodsFixture) {
    let request = sh("printf 'one\\ntwo 10%%\\rtwo 20%%\\n\\n'; echo done >&2; sleep 1000");
    fixture.starts(&request, "done").await;
    assert_eq!(fixture.relay.last_line(&request.task).unwrap(), "done");
    assert_eq!(fixture.cancel(&request.task, Duration::ZERO).await, TaskState::Tombstoned);

    let request = attempt(2, sh("printf 'one\\ntwo 10%%\\rtwo 20%%\\n\\n'"));
    fixture.run(request.clone()).await;
    assert_eq!(fixture.relay.last_line(&request.task).unwrap(), "two 20%");
    assert_eq!(fixture.relay.last_line(&name("other", 1)), None);
}

pub(crate) async fn cancel_kills(fixture: PodsFixture) {
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

pub(crate) async fn cancel_of_the_ended(fixture: PodsFixture) {
    let request = sh("echo said; echo so >&2; exit 4");
    let result = fixture.run(request.clone()).await;
    assert_failed(&result, ReasonCode::Exit, "the script ended with 4");
    assert_eq!(result.log.as_deref(), Some("said\nso\n"));
    assert!(result.duration_ms.is_some());
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
