//! More tasks than may run containers at one time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ebb_protocol::relay::BATCH;
use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};

use crate::fixture::*;
use crate::memory::MemoryRounds;

/// Works that are asked for at once and places for them, unless `EBB_TASKS` and `EBB_MAX_CONCURRENT_TASKS` say otherwise.
const WORKS: (usize, usize) = (30, 6);
/// Rounds that follow and works in each, unless `EBB_ROUNDS` and `EBB_TASKS_AGAIN` say otherwise.
const AGAIN: (usize, usize) = (0, 30);
/// Those of the instance that comes last.
const FEW: usize = 5;
const LIVES: usize = 3;

/// What the API server said of an object: the revision, whose it is, its name, whether it may run.
type ObjectEvent = (u64, String, String, bool);

#[derive(Clone, Default)]
struct ObjectHistory(Arc<Mutex<Vec<ObjectEvent>>>);

impl ObjectHistory {
    /// Follows all objects of a kind from now on.
    fn follow<K>(&self, api: Api<K>, kind: &'static str, runs: fn(&K) -> bool)
    where
        K: kube::Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + Send + 'static,
        K: serde::de::DeserializeOwned,
        K::DynamicType: Default,
    {
        let said = self.0.clone();
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
                said.lock().unwrap().push((revision, unit, format!("{kind} {}", object.name_any()), runs));
            }
        });
    }

    /// In the order of the API server: the most tasks that could run at one time, and the tasks as they began.
    fn counts(&self) -> (usize, Vec<String>) {
        let mut said = self.0.lock().unwrap().clone();
        said.sort();
        let (mut most, mut began) = (0, Vec::new());
        let (mut running, mut known) = (BTreeMap::<String, BTreeSet<String>>::new(), BTreeSet::new());
        for (_, unit, object, runs) in said {
            let of_unit = running.entry(unit.clone()).or_default();
            let is_job = object.starts_with("Job");
            if is_job && known.insert(object.clone()) {
                began.push(unit);
                of_unit.insert(object);
            } else if !runs {
                of_unit.remove(&object);
            } else if !is_job {
                // From now on it says how its Job is.
                of_unit.retain(|other| !other.starts_with("Job"));
                of_unit.insert(object);
            }
            most = most.max(running.values().filter(|objects| !objects.is_empty()).count());
        }
        (most, began)
    }
}

fn given(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// One instance has asked for most of it before another asks for little. The relay is killed half way through the first round.
#[tokio::test(flavor = "multi_thread")]
async fn many_at_once() {
    let (works, at_once) = (given("EBB_TASKS", WORKS.0), given("EBB_MAX_CONCURRENT_TASKS", WORKS.1));
    let (rounds, again) = (given("EBB_ROUNDS", AGAIN.0), given("EBB_TASKS_AGAIN", AGAIN.1));
    let fixture = RelayFixture::new("turns", &["--max-concurrent-tasks", &at_once.to_string()]).await;
    let observed = ObjectHistory::default();
    observed.follow(fixture.api::<Job>(), "Job", |job| job.metadata.deletion_timestamp.is_none());
    observed.follow(fixture.api::<Pod>(), "Pod", |pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    });
    let mut memory = MemoryRounds::default();
    let mut past = 0;
    for (number, works) in std::iter::once(works).chain(std::iter::repeat_n(again, rounds)).enumerate() {
        memory.begin();
        let begun = Instant::now();
        let units = ask(&fixture, number, works).await;
        let (asked, early) = (begun.elapsed(), observed.counts().1.len() - past);
        memory.look(&fixture);
        let kill = (number == 0).then_some(works / 2);
        results(&fixture, &units, kill, &mut memory).await;
        until("nothing to be left", async || fixture.left().await.is_empty().then_some(())).await;
        memory.look(&fixture);
        let (most, began) = observed.counts();
        let began = &began[past..];
        let last_of_few = began.iter().rposition(|unit| unit.starts_with("few")).unwrap();
        println!(
            "{works} works of {LIVES} lives: asked for in {asked:.1?}, over after {:.1?}; {most} of {at_once} at one time; {early} had begun by then, and the last of the {FEW} that came last began as number {}",
            begun.elapsed(),
            last_of_few + 1,
        );
        assert_eq!((most, began.len()), (at_once, works));
        // Those that began before all were asked for, or were about to, and then one of each instance in each turn.
        assert!(last_of_few <= early + at_once + LIVES * FEW, "{early} {last_of_few}: {began:?}");
        past += works;
    }
    memory.judge();
    fixture.close().await;
}

/// Asks for the tasks of a round, one instance after the other.
async fn ask(fixture: &RelayFixture, round: usize, works: usize) -> Vec<TaskId> {
    let some = (works - FEW) / 5;
    let counts = [("many", works - FEW - some), ("some", some), ("few", FEW)];
    assert_eq!(counts.len(), LIVES);
    let units: Vec<(&str, TaskId)> = counts
        .iter()
        .flat_map(|&(life, count)| (0..count).map(move |at| (life, name(&format!("{life}-{round}-{at:03}"), 1))))
        .collect();
    for chunk in units.chunks(BATCH) {
        let requests = chunk.iter().map(|(life, unit)| {
            let mut objects = script(unit, "echo done");
            objects.instance = (*life).to_owned();
            fixture.request(unit, objects)
        });
        for answer in fixture.ask_all(requests.collect()).await {
            let taken = matches!(answer, RelayResponse::State(TaskState::Running { .. } | TaskState::Queued { .. }));
            assert!(taken, "{answer:?}");
        }
    }
    units.into_iter().map(|(_, unit)| unit).collect()
}

/// Waits until all have succeeded; the relay is killed when so many have.
async fn results(fixture: &RelayFixture, units: &[TaskId], mut kill: Option<usize>, memory: &mut MemoryRounds) {
    let ended =
        |fixture: &RelayFixture| units.iter().filter(|unit| !fixture.plane.taken(&token(unit)).is_empty()).count();
    let mut progress = (0, Instant::now());
    while progress.0 < units.len() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = ended(fixture);
        memory.look(fixture);
        if now > progress.0 {
            progress = (now, Instant::now());
        }
        assert!(progress.1.elapsed() < Duration::from_secs(150), "{progress:?}\n{}", fixture.log());
        if kill.take_if(|kill| now >= *kill).is_some() {
            fixture.kill().await;
            fixture.start().await;
        }
    }
    for unit in units {
        let result = fixture.result(unit).await;
        assert_eq!((result.status, result.log.as_deref()), (CallbackStatus::Succeeded, Some("done\n")));
    }
}

/// What waits has a record and nothing else. It can be cancelled and asked for, outlasts a kill, and its time does not run.
#[tokio::test(flavor = "multi_thread")]
async fn waiting() {
    let fixture = RelayFixture::new("waiting", &["--max-concurrent-tasks", "1"]).await;
    let [runs, first, second, dropped] = ["runs", "first", "second", "dropped"].map(|unit| name(unit, 1));
    fixture.run(&runs, ScriptJob::new(&runs, "echo begun; sleep 1000")).await;
    fixture.printed(&runs, "begun").await;
    let asked = Instant::now();
    let request = |unit: &TaskId, text: &str, timeout_ms: u64| {
        let mut request = fixture.ensure_of(unit, script(unit, text));
        (request.valid_for_ms, request.timeout_ms) = (1_000, timeout_ms);
        request
    };
    let own = request(&first, "echo first", 60_000);
    // A task that is requested again while it waits has the newest callback.
    let mut early = own.clone();
    early.callback.token = "of the first request".to_owned();
    for request in [early, request(&second, "sleep 1000", 1_500), request(&dropped, "#", 60_000)] {
        fixture.ensure(request).await;
    }
    let shows = async |fixture: &RelayFixture, unit: &TaskId, ahead: usize| {
        assert_eq!(fixture.get(unit).await, TaskState::Queued { ahead }, "{unit:?}");
    };
    for (ahead, unit) in [&first, &second, &dropped].into_iter().enumerate() {
        shows(&fixture, unit, ahead).await;
    }
    assert_eq!(fixture.state(cancel(&dropped)).await, TaskState::Tombstoned);
    assert_eq!(fixture.get(&dropped).await, TaskState::Tombstoned);
    assert!(matches!(fixture.ensure(own).await, RelayResponse::State(TaskState::Queued { ahead: 0 })));
    fixture.kill().await;
    fixture.start().await;
    shows(&fixture, &first, 0).await;
    shows(&fixture, &second, 1).await;
    // Longer than the second may take, and than both may have been under way.
    tokio::time::sleep(Duration::from_millis(1_600).saturating_sub(asked.elapsed())).await;
    let all = ListParams::default();
    let applied = [fixture.names::<Job>(&all).await, fixture.names::<Secret>(&all).await].concat();
    assert_eq!(applied, ["Job ebb-runs-1", "Secret ebb-runs-1"]);
    fixture.cancelled(&runs).await;
    assert_eq!(fixture.result(&first).await.log.as_deref(), Some("first\n"));
    let turn = Instant::now();
    let (code, message) = fixture.reason(&second).await;
    assert!(code == ReasonCode::Timeout && message.contains("than 1500 ms"), "{code:?} {message}");
    assert!(turn.elapsed() > Duration::from_millis(1_400), "{:?}", turn.elapsed());
    assert!(fixture.plane.taken(&token(&dropped)).is_empty());
    fixture.close().await;
}

/// A stop: the queued tasks leave the queue in one batch, and the end of the running ones starts nothing.
#[tokio::test(flavor = "multi_thread")]
async fn queued_works_are_removed_before_running_ones_are_killed() {
    const WORKS: usize = 12;
    const PLACES: usize = 2;
    let fixture = RelayFixture::new("stopped", &["--max-concurrent-tasks", &PLACES.to_string()]).await;
    let observed = ObjectHistory::default();
    observed.follow(fixture.api::<Job>(), "Job", |job| job.metadata.deletion_timestamp.is_none());
    let works: Vec<TaskId> = (0..WORKS).map(|at| name(&format!("work-{at:02}"), 1)).collect();
    let ensure = |unit: &TaskId| fixture.request(unit, script(unit, "echo begun; sleep 1000"));
    fixture.ask_all(works.iter().map(ensure).collect()).await;
    // Tasks of one batch come in any order.
    let running = until("the first ones", async || {
        let mut running = Vec::new();
        for unit in &works {
            if matches!(fixture.get(unit).await, TaskState::Running { log, .. } if log.contains("begun")) {
                running.push(unit);
            }
        }
        (running.len() == PLACES).then_some(running)
    })
    .await;
    let unknown = name("unknown", 1);
    let dequeued = works.iter().chain([&unknown]).map(|unit| RelayRequest::Dequeue(unit.clone()));
    let answers = fixture.ask_all(dequeued.collect()).await;
    for (unit, answer) in works.iter().chain([&unknown]).zip(answers) {
        match answer {
            RelayResponse::State(TaskState::Running { .. }) => assert!(running.contains(&unit), "{unit:?}"),
            answer => {
                assert_eq!(answer, RelayResponse::State(TaskState::Tombstoned), "{unit:?}");
                assert!(!running.contains(&unit), "{unit:?}");
            }
        }
    }
    until("their end", async || {
        let answers = fixture.ask_all(running.iter().map(|unit| cancel(unit)).collect()).await;
        answers.iter().all(|answer| *answer == RelayResponse::State(TaskState::Tombstoned)).then_some(())
    })
    .await;
    until("nothing to be left", async || fixture.left().await.is_empty().then_some(())).await;
    let (most, mut begun) = observed.counts();
    begun.sort();
    // In the order of their names.
    assert_eq!((most, begun), (PLACES, running.iter().map(|it| it.unit.clone()).collect::<Vec<_>>()));
    // A tombstone is final.
    assert_eq!(fixture.apply(&unknown, script(&unknown, "#")).await, RelayResponse::State(TaskState::Tombstoned));
    fixture.close().await;
}
