//! The limit of concurrent tasks, and the fair queue of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ebb_protocol::relay::BATCH;
use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};

use crate::fixture::*;
use crate::memory::MemoryRounds;

/// Tasks of the first round and slots. `EBB_TASKS` and `EBB_MAX_CONCURRENT_TASKS` override them.
const TASKS: (usize, usize) = (30, 6);
/// Further rounds and tasks of each. `EBB_ROUNDS` and `EBB_TASKS_AGAIN` override them.
const FURTHER_ROUNDS: (usize, usize) = (0, 30);
/// Tasks of the last instance.
const FEW: usize = 5;
const INSTANCES: usize = 3;

/// A watch event of an object: its revision, its unit, its kind and name, and true if its containers can run.
type ObjectEvent = (u64, String, String, bool);

#[derive(Clone, Default)]
struct ObjectHistory(Arc<Mutex<Vec<ObjectEvent>>>);

impl ObjectHistory {
    /// Records all events of a kind from now on.
    fn follow<K>(&self, api: Api<K>, kind: &'static str, runs: fn(&K) -> bool)
    where
        K: kube::Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + Send + 'static,
        K: serde::de::DeserializeOwned,
        K::DynamicType: Default,
    {
        let history = self.0.clone();
        tokio::spawn(async move {
            let mut events = watcher(api, Config::default()).default_backoff().boxed();
            while let Some(event) = events.next().await {
                let (object, runs) = match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => (object.clone(), runs(&object)),
                    Ok(Event::Delete(object)) => (object, false),
                    _ => continue,
                };
                let revision = object.resource_version().unwrap().parse().unwrap();
                let unit = object.labels()["ebb.dev/unit"].clone();
                history.lock().unwrap().push((revision, unit, format!("{kind} {}", object.name_any()), runs));
            }
        });
    }

    /// Returns the maximum number of concurrent tasks, and the tasks in the order in which they started.
    fn counts(&self) -> (usize, Vec<String>) {
        let mut events = self.0.lock().unwrap().clone();
        events.sort();
        let (mut most, mut began) = (0, Vec::new());
        let (mut running, mut known) = (BTreeMap::<String, BTreeSet<String>>::new(), BTreeSet::new());
        for (_, unit, object, runs) in events {
            let of_unit = running.entry(unit.clone()).or_default();
            let is_job = object.starts_with("Job");
            if is_job && known.insert(object.clone()) {
                began.push(unit);
                of_unit.insert(object);
            } else if !runs {
                of_unit.remove(&object);
            } else if !is_job {
                // The pod represents its Job from now on.
                of_unit.retain(|other| !other.starts_with("Job"));
                of_unit.insert(object);
            }
            most = most.max(running.values().filter(|objects| !objects.is_empty()).count());
        }
        (most, began)
    }
}

fn number_from(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// One instance requests most tasks before the others request few. The relay is killed in the middle of the first round.
#[tokio::test(flavor = "multi_thread")]
async fn instances_share_the_slots_fairly() {
    let (tasks, at_once) = (number_from("EBB_TASKS", TASKS.0), number_from("EBB_MAX_CONCURRENT_TASKS", TASKS.1));
    let (rounds, tasks_of_round) =
        (number_from("EBB_ROUNDS", FURTHER_ROUNDS.0), number_from("EBB_TASKS_AGAIN", FURTHER_ROUNDS.1));
    let fixture = RelayFixture::new("slots", &["--max-concurrent-tasks", &at_once.to_string()]).await;
    let observed = ObjectHistory::default();
    observed.follow(fixture.api::<Job>(), "Job", |job| job.metadata.deletion_timestamp.is_none());
    observed.follow(fixture.api::<Pod>(), "Pod", |pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    });
    let mut memory = MemoryRounds::default();
    let mut past = 0;
    for (number, tasks) in std::iter::once(tasks).chain(std::iter::repeat_n(tasks_of_round, rounds)).enumerate() {
        memory.begin_round();
        let started = Instant::now();
        let units = request_tasks(&fixture, number, tasks).await;
        let (requested, early) = (started.elapsed(), observed.counts().1.len() - past);
        memory.sample(&fixture);
        let kill = (number == 0).then_some(tasks / 2);
        await_results(&fixture, &units, kill, &mut memory).await;
        until("the deletion of all objects", async || fixture.remaining().await.is_empty().then_some(())).await;
        memory.sample(&fixture);
        let (most, began) = observed.counts();
        let began = &began[past..];
        let last_of_few = began.iter().rposition(|unit| unit.starts_with("few")).unwrap();
        println!(
            "{tasks} tasks of {INSTANCES} instances: requested in {requested:.1?}, complete after {:.1?}; {most} of {at_once} slots used; {early} had started when all were requested, and the last of the {FEW} tasks of the last instance started as number {}",
            started.elapsed(),
            last_of_few + 1,
        );
        assert_eq!((most, began.len()), (at_once, tasks));
        // Some tasks started before all were requested. From then on, each turn starts one task of each instance.
        assert!(last_of_few <= early + at_once + INSTANCES * FEW, "{early} {last_of_few}: {began:?}");
        past += tasks;
    }
    memory.assert_constant();
    fixture.close().await;
}

/// Requests the tasks of a round, one instance after the other.
async fn request_tasks(fixture: &RelayFixture, round: usize, tasks: usize) -> Vec<TaskId> {
    let some = (tasks - FEW) / 5;
    let counts = [("many", tasks - FEW - some), ("some", some), ("few", FEW)];
    assert_eq!(counts.len(), INSTANCES);
    let units: Vec<(&str, TaskId)> = counts
        .iter()
        .flat_map(|&(instance, count)| {
            (0..count).map(move |at| (instance, name(&format!("{instance}-{round}-{at:03}"), 1)))
        })
        .collect();
    for chunk in units.chunks(BATCH) {
        let requests = chunk.iter().map(|(instance, unit)| {
            let mut objects = script(unit, "echo done");
            objects.instance = (*instance).to_owned();
            fixture.request(unit, objects)
        });
        for response in fixture.send_all(requests.collect()).await {
            let is_accepted =
                matches!(response, RelayResponse::State(TaskState::Running { .. } | TaskState::Queued { .. }));
            assert!(is_accepted, "{response:?}");
        }
    }
    units.into_iter().map(|(_, unit)| unit).collect()
}

/// Waits until all tasks have succeeded. Restarts the relay when the number `kill` of them has.
async fn await_results(fixture: &RelayFixture, units: &[TaskId], mut kill: Option<usize>, memory: &mut MemoryRounds) {
    let ended = |fixture: &RelayFixture| {
        units.iter().filter(|unit| !fixture.callbacks.accepted(&token(unit)).is_empty()).count()
    };
    let mut progress = (0, Instant::now());
    while progress.0 < units.len() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = ended(fixture);
        memory.sample(fixture);
        if now > progress.0 {
            progress = (now, Instant::now());
        }
        assert!(progress.1.elapsed() < Duration::from_secs(150), "{progress:?}\n{}", fixture.log());
        if kill.take_if(|kill| now >= *kill).is_some() {
            fixture.restart().await;
        }
    }
    for unit in units {
        let result = fixture.result(unit).await;
        assert_eq!((result.status, result.log.as_deref()), (CallbackStatus::Succeeded, Some("done\n")));
    }
}

/// A queued task has a record and no other object. It can be cancelled and requested again. It survives a restart of the
/// relay, and its timeout does not start.
#[tokio::test(flavor = "multi_thread")]
async fn queued_tasks() {
    let fixture = RelayFixture::new("queued", &["--max-concurrent-tasks", "1"]).await;
    let [runs, first, second, dropped] = ["runs", "first", "second", "dropped"].map(|unit| name(unit, 1));
    fixture.run(&runs, ScriptJob::new(&runs, "echo started; sleep 1000")).await;
    fixture.wait_for_log(&runs, "started").await;
    let requested = Instant::now();
    let request = |unit: &TaskId, text: &str, timeout_ms: u64| {
        let mut request = fixture.ensure_of(unit, script(unit, text));
        (request.valid_for_ms, request.timeout_ms) = (1_000, timeout_ms);
        request
    };
    let own = request(&first, "echo first", 60_000);
    // A queued task that is requested again uses the newest callback.
    let mut early = own.clone();
    early.callback.token = "of the first request".to_owned();
    for request in [early, request(&second, "sleep 1000", 1_500), request(&dropped, "#", 60_000)] {
        fixture.ensure(request).await;
    }
    let assert_queued = async |fixture: &RelayFixture, unit: &TaskId, ahead: usize| {
        assert_eq!(fixture.get(unit).await, TaskState::Queued { ahead }, "{unit:?}");
    };
    for (ahead, unit) in [&first, &second, &dropped].into_iter().enumerate() {
        assert_queued(&fixture, unit, ahead).await;
    }
    assert_eq!(fixture.state(cancel(&dropped)).await, TaskState::Tombstoned);
    assert_eq!(fixture.get(&dropped).await, TaskState::Tombstoned);
    assert!(matches!(fixture.ensure(own).await, RelayResponse::State(TaskState::Queued { ahead: 0 })));
    fixture.restart().await;
    assert_queued(&fixture, &first, 0).await;
    assert_queued(&fixture, &second, 1).await;
    // Longer than the timeout of the second task and the validity of the requests.
    tokio::time::sleep(Duration::from_millis(1_600).saturating_sub(requested.elapsed())).await;
    let all = ListParams::default();
    let applied = [fixture.names::<Job>(&all).await, fixture.names::<Secret>(&all).await].concat();
    assert_eq!(applied, ["Job ebb-runs-1", "Secret ebb-runs-1"]);
    fixture.cancel(&runs).await;
    assert_eq!(fixture.result(&first).await.log.as_deref(), Some("first\n"));
    let slot_free = Instant::now();
    let (code, message) = fixture.reason(&second).await;
    assert!(code == ReasonCode::Timeout && message.contains("than its timeout"), "{code:?} {message}");
    assert!(slot_free.elapsed() > Duration::from_millis(1_400), "{:?}", slot_free.elapsed());
    assert!(fixture.callbacks.accepted(&token(&dropped)).is_empty());
    fixture.close().await;
}

/// One batch removes all tasks from the queue. When the running tasks end then, no other task starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_removes_all_queued_tasks() {
    const TASKS: usize = 12;
    const SLOTS: usize = 2;
    let fixture = RelayFixture::new("dequeued", &["--max-concurrent-tasks", &SLOTS.to_string()]).await;
    let observed = ObjectHistory::default();
    observed.follow(fixture.api::<Job>(), "Job", |job| job.metadata.deletion_timestamp.is_none());
    let tasks: Vec<TaskId> = (0..TASKS).map(|at| name(&format!("task-{at:02}"), 1)).collect();
    let ensure = |unit: &TaskId| fixture.request(unit, script(unit, "echo started; sleep 1000"));
    fixture.send_all(tasks.iter().map(ensure).collect()).await;
    // The tasks of one batch start in any order.
    let running = until("the first tasks", async || {
        let mut running = Vec::new();
        for unit in &tasks {
            if matches!(fixture.get(unit).await, TaskState::Running(task) if task.log.contains("started")) {
                running.push(unit);
            }
        }
        (running.len() == SLOTS).then_some(running)
    })
    .await;
    let unknown = name("unknown", 1);
    let dequeued = tasks.iter().chain([&unknown]).map(|unit| RelayRequest::Dequeue(unit.clone()));
    let responses = fixture.send_all(dequeued.collect()).await;
    for (unit, response) in tasks.iter().chain([&unknown]).zip(responses) {
        match response {
            RelayResponse::State(TaskState::Running { .. }) => assert!(running.contains(&unit), "{unit:?}"),
            response => {
                assert_eq!(response, RelayResponse::State(TaskState::Tombstoned), "{unit:?}");
                assert!(!running.contains(&unit), "{unit:?}");
            }
        }
    }
    until("the end of the running tasks", async || {
        let responses = fixture.send_all(running.iter().map(|unit| cancel(unit)).collect()).await;
        responses.iter().all(|response| *response == RelayResponse::State(TaskState::Tombstoned)).then_some(())
    })
    .await;
    until("the deletion of all objects", async || fixture.remaining().await.is_empty().then_some(())).await;
    let (most, mut started) = observed.counts();
    started.sort();
    // `running` has the order of the names.
    assert_eq!((most, started), (SLOTS, running.iter().map(|it| it.unit.clone()).collect::<Vec<_>>()));
    // A tombstone is final.
    assert_eq!(fixture.apply(&unknown, script(&unknown, "#")).await, RelayResponse::State(TaskState::Tombstoned));
    fixture.close().await;
}
