//! The limit of concurrent tasks, and the fair queue of the others.

use ebb_protocol::relay::BATCH;

use crate::fixture::*;

/// Tasks of the first round and slots. `EBB_TASKS` and `EBB_MAX_CONCURRENT_TASKS` override them.
const TASKS: (usize, usize) = (30, 6);
/// Further rounds and tasks of each. `EBB_ROUNDS` and `EBB_TASKS_AGAIN` override them.
const FURTHER_ROUNDS: (usize, usize) = (0, 30);

/// Maximum memory of the relay in MiB.
const LIMIT: f64 = 64.0;
/// MiB that a round may use in addition to 110 % of an earlier one. The allocator returns freed memory with a delay.
const TOLERANCE: f64 = 3.0;

/// MiB of each round: the maximum of all samples of anonymous memory, and the last sample. Pages of the executable file do
/// not count, because the kernel can reclaim them.
#[derive(Default)]
struct MemoryRounds(Vec<(f64, f64)>);

impl MemoryRounds {
    fn sample(&mut self, fixture: &RelayFixture) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", fixture.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let now = line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0;
        let round = self.0.last_mut().unwrap();
        *round = (round.0.max(now), now);
    }

    /// Checks that the last round used as much memory as the second one. The first round fills caches.
    fn assert_constant(&self) {
        println!("MiB of each round, maximum and end: {:.1?}", self.0);
        assert!(self.0.iter().all(|(most, _)| 0.0 < *most && *most <= LIMIT));
        let [_, second, .., last] = &self.0[..] else { return };
        for (first, now) in [(second.0, last.0), (second.1, last.1)] {
            assert!(now <= first * 1.1 + TOLERANCE, "the relay grows");
        }
    }
}

fn number_from(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// All tasks of a round are requested while all slots are taken. The relay is killed in the middle of the first round.
#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_share_few_slots() {
    let (tasks, at_once) = (number_from("EBB_TASKS", TASKS.0), number_from("EBB_MAX_CONCURRENT_TASKS", TASKS.1));
    let (rounds, tasks_of_round) =
        (number_from("EBB_ROUNDS", FURTHER_ROUNDS.0), number_from("EBB_TASKS_AGAIN", FURTHER_ROUNDS.1));
    let fixture = RelayFixture::new("slots", &["--max-concurrent-tasks", &at_once.to_string()]).await;
    let mut memory = MemoryRounds::default();
    for (round, tasks) in std::iter::once(tasks).chain(std::iter::repeat_n(tasks_of_round, rounds)).enumerate() {
        memory.0.push((0.0, 0.0));
        let holders: Vec<_> = (0..at_once).map(|at| name(&format!("holds-{round}-{at}"), 1)).collect();
        for holder in &holders {
            fixture.run(holder, ScriptJob::new(holder, "sleep 1000")).await;
        }
        let begun = Instant::now();
        let units: Vec<_> = (0..tasks).map(|at| name(&format!("task-{round}-{at:03}"), 1)).collect();
        for chunk in units.chunks(BATCH) {
            let requests = chunk.iter().map(|unit| fixture.request(unit, script(unit, "echo done")));
            for response in fixture.send_all(requests.collect()).await {
                assert!(matches!(response, RelayResponse::State(TaskState::Queued { .. })), "{response:?}");
            }
        }
        memory.sample(&fixture);
        for holder in &holders {
            fixture.cancel(holder).await;
        }
        await_results(&fixture, &units, at_once, (round == 0).then_some(tasks / 2), &mut memory).await;
        println!("{tasks} tasks in {at_once} slots: {:.1?}", begun.elapsed());
        until("the deletion of all objects", async || fixture.remaining().await.is_empty().then_some(())).await;
        memory.sample(&fixture);
    }
    memory.assert_constant();
    fixture.close().await;
}

/// Waits until all tasks have succeeded, at most `at_once` at a time. Restarts the relay after the success `kill`.
async fn await_results(
    fixture: &RelayFixture,
    units: &[TaskId],
    at_once: usize,
    mut kill: Option<usize>,
    memory: &mut MemoryRounds,
) {
    let (pods, running) =
        (fixture.api::<Pod>(), ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed"));
    let mut progress = (0, Instant::now());
    while progress.0 < units.len() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = units.iter().filter(|unit| !fixture.callbacks.accepted(&token(unit)).is_empty()).count();
        let pods = pods.list(&running).await.unwrap().items.len();
        assert!(pods <= at_once, "{pods} pods run at once");
        memory.sample(fixture);
        if now > progress.0 {
            progress = (now, Instant::now());
        }
        assert!(progress.1.elapsed() < WAIT_TIMEOUT, "{progress:?}\n{}", fixture.log());
        if kill.take_if(|kill| now >= *kill).is_some() {
            fixture.restart().await;
        }
    }
    for unit in units {
        assert_eq!(fixture.success(unit).await.log.as_deref(), Some("done\n"));
    }
}

/// A queued task has only a record. It can be cancelled, requested again and dequeued, and survives a restart.
#[tokio::test(flavor = "multi_thread")]
async fn queued_tasks() {
    let fixture = RelayFixture::new("queued", &["--max-concurrent-tasks", "1"]).await;
    let [runs, first, second, cancelled, removed, unknown] =
        ["runs", "first", "second", "cancelled", "removed", "unknown"].map(|unit| name(unit, 1));
    fixture.run(&runs, ScriptJob::new(&runs, "echo started; sleep 1000")).await;
    fixture.wait_for_log(&runs, "started").await;
    // A queued task that is requested again uses the newest callback.
    let mut early = fixture.ensure_of(&first, script(&first, "echo first"));
    early.callback.token = "of the first request".to_owned();
    fixture.ensure(early).await;
    // Instances take turns, so only one task of the first instance is ahead of the one of the second.
    let queued = [(&first, "instance-1", 0), (&second, "instance-1", 1), (&cancelled, "instance-1", 2)];
    for (unit, instance, ahead) in queued.into_iter().chain([(&removed, "instance-2", 1)]) {
        let task = script(unit, &format!("echo {}", unit.unit));
        let response = fixture.apply(unit, ObjectTask { instance: instance.to_owned(), ..task }).await;
        assert_eq!(response, RelayResponse::State(TaskState::Queued { ahead }), "{unit:?}");
    }
    assert_eq!(fixture.state(cancel(&cancelled)).await, TaskState::Tombstoned);
    let requests = [&runs, &removed, &unknown].map(|unit| RelayRequest::Dequeue(unit.clone()));
    let responses = fixture.send_all(requests.into()).await;
    assert!(matches!(responses[0], RelayResponse::State(TaskState::Running { .. })), "{responses:?}");
    assert_eq!(responses[1..], vec![RelayResponse::State(TaskState::Tombstoned); 2]);
    fixture.restart().await;
    for (ahead, unit) in [&first, &second].into_iter().enumerate() {
        assert_eq!(fixture.get(unit).await, TaskState::Queued { ahead }, "{unit:?}");
    }
    let all = ListParams::default();
    let applied = [fixture.names::<Job>(&all).await, fixture.names::<Secret>(&all).await].concat();
    assert_eq!(applied, ["Job ebb-runs-1", "Secret ebb-runs-1"]);
    fixture.cancel(&runs).await;
    for unit in [&first, &second] {
        assert_eq!(fixture.success(unit).await.log, Some(format!("{}\n", unit.unit)));
    }
    for unit in [&cancelled, &removed, &unknown] {
        // A tombstone is final.
        assert_eq!(fixture.apply(unit, script(unit, "#")).await, RelayResponse::State(TaskState::Tombstoned));
        assert!(fixture.callbacks.accepted(&token(unit)).is_empty());
    }
    fixture.close().await;
}
