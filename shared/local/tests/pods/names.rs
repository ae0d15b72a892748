//! A task id starts a script at most once.

use crate::fixture::*;

/// A script that appends a line to a file of the machine each time it runs.
fn counted(file: &Path, then: &str) -> EnsureTask<ScriptTask> {
    sh(&format!("echo $$ >>{}; {then}", file.display()))
}

/// A folder that scripts can write to, because their `/tmp` is private, and a file in it.
fn count() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::Builder::new().prefix("ebb-test-").tempdir_in("/var/tmp").unwrap();
    let file = folder.path().join("runs");
    (folder, file)
}

fn runs(file: &Path) -> usize {
    fs::read_to_string(file).unwrap_or_default().lines().count()
}

pub(crate) async fn ensure_is_idempotent(fixture: PodsFixture) {
    let (_counts, file) = count();
    let request = counted(&file, "sleep 0.3");
    assert!(matches!(fixture.ensure(request.clone()).await, TaskState::Running { .. }));
    assert!(matches!(fixture.ensure(request.clone()).await, TaskState::Running { .. }));
    let result = fixture.ended(&request.task).await;
    until("the first callback", async || (fixture.sent() == 1).then_some(())).await;
    // The same id with another script is the same task.
    let other = EnsureTask { task: request.task.clone(), ..counted(&file, "exit 9") };
    assert_eq!(fixture.ensure(other).await, TaskState::Ended(Box::new(result.clone())));
    assert_eq!(runs(&file), 1);
    let requests = fixture.control.requests.lock().unwrap();
    for callback in requests.iter() {
        assert_eq!((callback.method.as_str(), callback.url.as_str()), ("POST", URL));
        assert!(callback.headers.contains(&("authorization".to_owned(), "Bearer the-token".to_owned())));
        assert_eq!(serde_json::from_slice::<Callback>(&callback.body).unwrap(), result);
    }
}

pub(crate) async fn many_at_once(fixture: PodsFixture) {
    let (_counts, file) = count();
    // Two relays on one state share no memory.
    let second = LocalRelay::open(fixture.state.path(), options(fixture.control.clone())).unwrap();
    let request = counted(&file, "sleep 0.1");
    let all = (0..20).map(|index| {
        let relay = if index % 2 == 0 { fixture.relay.clone() } else { second.clone() };
        let request = request.clone();
        tokio::spawn(async move { relay.ensure(UnitCluster::default(), of_script(request)).await })
    });
    for answer in all.collect::<Vec<_>>() {
        assert!(matches!(answer.await.unwrap().unwrap(), TaskState::Running { .. } | TaskState::Ended(_)));
    }
    assert_eq!(fixture.ended(&request.task).await.status, CallbackStatus::Succeeded);
    assert_eq!(runs(&file), 1);
}

/// Requests are accepted while the scripts of earlier ones still start.
pub(crate) async fn requests_do_not_wait_for_starts(fixture: PodsFixture) {
    let count = 32 * std::thread::available_parallelism().unwrap().get();
    let tasks: Vec<_> = (0..count).map(|number| name(&format!("unit-{number}"), 1)).collect();
    for task in &tasks {
        fixture.ensure(EnsureTask { task: task.clone(), ..sh("") }).await;
    }
    // The file is made by the start of a script.
    let begun = tasks.iter().filter(|task| fixture.folder(task).join("lock").exists()).count();
    assert!(begun < count, "all of {count} scripts have begun");
    for task in &tasks {
        assert_eq!(fixture.ended(task).await.status, CallbackStatus::Succeeded);
    }
}

pub(crate) async fn cancel_before_ensure(fixture: PodsFixture) {
    let (_counts, file) = count();
    let request = counted(&file, "");
    assert_eq!(fixture.get(&request.task).await, TaskState::Unknown);
    assert_eq!(fixture.cancel(&request.task, Duration::ZERO).await, TaskState::Tombstoned);
    assert_eq!(fixture.ensure(request.clone()).await, TaskState::Tombstoned);
    assert_eq!(fixture.get(&request.task).await, TaskState::Tombstoned);
    // The next attempt is another task.
    assert_eq!(fixture.run(attempt(2, request)).await.status, CallbackStatus::Succeeded);
    assert_eq!(runs(&file), 1);
}

pub(crate) async fn higher_attempts_replace_lower(fixture: PodsFixture) {
    let (_counts, file) = count();
    let first = counted(&file, "echo up; sleep 1000");
    fixture.starts(&first, "up").await;
    let third = attempt(3, counted(&file, &format!("! kill -0 $(head -n1 {})", file.display())));
    assert_eq!(fixture.run(third).await.status, CallbackStatus::Succeeded, "the first one still ran");
    let second = attempt(2, first.clone());
    assert_eq!(fixture.get(&second.task).await, TaskState::Tombstoned);
    assert_eq!(fixture.ensure(second).await, TaskState::Tombstoned);
    assert_eq!(fixture.ensure(first).await, TaskState::Tombstoned);
    assert_eq!(runs(&file), 2);
}

pub(crate) async fn cancel_races_ensure(fixture: PodsFixture) {
    let (counts, _) = count();
    for round in 0..8 {
        let file = counts.path().join(format!("runs-{round}"));
        let mut request = counted(&file, "sleep 1000");
        request.task.unit = format!("round-{round}");
        let name = request.task.clone();
        let relay = fixture.relay.clone();
        let ensure =
            tokio::spawn(async move { relay.ensure(UnitCluster::default(), of_script(request)).await.unwrap() });
        let state = fixture.cancel(&name, Duration::ZERO).await;
        assert_eq!(state, TaskState::Tombstoned);
        ensure.await.unwrap();
        assert_eq!(fixture.get(&name).await, TaskState::Tombstoned);
        for pid in fs::read_to_string(&file).unwrap_or_default().lines() {
            assert!(!lives(pid));
        }
    }
}

pub(crate) async fn callbacks_until_taken(fixture: PodsFixture) {
    // The status is enough.
    let unread = CallError::Unread(HttpResponse::new(204, "").into(), CallError::TooLarge(9).into());
    let answers = vec![Err(CallError::Connect("refused".to_owned())), Ok(500), Ok(429), Err(unread)];
    // 4xx ends the callbacks too.
    for (number, answers, sent) in [(1, answers, 4), (2, vec![Ok(410)], 5)] {
        *fixture.control.answers.lock().unwrap() = answers;
        let request = attempt(number, sh(""));
        fixture.run(request.clone()).await;
        let taken = fixture.folder(&request.task).join("taken");
        until("the result is taken", async || taken.exists().then_some(())).await;
        assert_eq!(fixture.sent(), sent);
    }

    // An acknowledged result is not sent again after the state was opened again.
    let control = Arc::new(ControlPlane::default());
    let again = LocalRelay::open(fixture.state.path(), options(control.clone())).unwrap();
    again.ensure(UnitCluster::default(), of_script(attempt(3, sh("")))).await.unwrap();
    until("a callback", async || (control.requests.lock().unwrap().len() == 1).then_some(())).await;
}

pub(crate) async fn acknowledge_and_prune(fixture: PodsFixture) {
    *fixture.control.answers.lock().unwrap() = (0..1000).map(|_| Ok(503)).collect();
    let request = sh("echo kept");
    let result = fixture.run(request.clone()).await;
    fixture.relay.acknowledge(UnitCluster::default(), &request.task).await.unwrap();
    assert_eq!(fixture.get(&request.task).await, TaskState::Ended(Box::new(result)));
    assert_eq!(fs::read(fixture.folder(&request.task).join("log")).unwrap(), b"kept\n");
    assert_eq!(fixture.relay.prune(Duration::from_secs(3600)).await.unwrap(), 0);
    // The folder stays until the supervisor has ended too.
    until("the folder goes", async || (fixture.relay.prune(Duration::ZERO).await.unwrap() == 1).then_some(())).await;
    assert_eq!(fixture.get(&request.task).await, TaskState::Unknown);
    assert_eq!(fs::read_dir(fixture.state.path().join("pods")).unwrap().count(), 0);
}

pub(crate) async fn refused(fixture: PodsFixture) {
    let of_unit = |unit: &str| EnsureTask { task: name(unit, 1), ..sh("") };
    let of_units = ["", "../x", "a/b", "a.b", "UPPER", "-a", "a-", &"a".repeat(64)].map(of_unit);
    for request in of_units.into_iter().chain([attempt(0, sh("")), EnsureTask { v: 2, ..sh("") }]) {
        let task = request.task.clone();
        let answer = fixture.relay.ensure(UnitCluster::default(), of_script(request)).await;
        assert!(matches!(answer, Err(RelayError::Refused(_))), "{task:?}: {answer:?}");
    }
}
