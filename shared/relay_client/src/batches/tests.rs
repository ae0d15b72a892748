use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ebb_egress::{CallError, HttpCall, HttpRequest, HttpResponse};
use ebb_protocol::relay::{
    Batch, BatchResponse, CallbackEndpoint, EnsureTask, ObjectTask, RelayResponse, TaskId, TaskState, VERSION,
};
use serde_json::json;

use super::*;
use crate::ClusterRegistry;
use crate::relay::tests::{FixedClock, NoBatches, SequentialRandom};

const UID: &str = "uid";
/// Bytes of answers that are read.
const LARGEST: usize = 1000;

/// A relay: answers `get` by a log with the unit's name, and refuses units with `bad` in their name.
#[derive(Default)]
struct FakeBatchRelay {
    batches: Mutex<Vec<usize>>,
    /// Batches of more verbs are answered 413.
    most: Option<usize>,
    /// How often it does not answer.
    silent: AtomicUsize,
    /// Answers of one batch that fit; the others are to be asked for alone.
    fit: Option<usize>,
    /// True if it answers no batch after the first.
    answers_once: bool,
}

fn answer(verb: &Verb) -> RelayResponse {
    let name = match verb {
        Verb::Get(name) | Verb::Dequeue(name) | Verb::Cancel { task: name, .. } => &name.unit,
        Verb::Ensure(request) => &request.task.unit,
        _ => return RelayResponse::Done,
    };
    match name.contains("bad") {
        true => RelayResponse::Refused(name.clone()),
        false => RelayResponse::State(TaskState::running(name.clone())),
    }
}

#[async_trait]
impl HttpCall for FakeBatchRelay {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, CallError> {
        let batch: Batch = serde_json::from_slice(&request.body).unwrap();
        let number = {
            let mut batches = self.batches.lock().unwrap();
            batches.push(batch.requests.len());
            batches.len()
        };
        if self.answers_once && number > 1 {
            return Err(CallError::Timeout(request.timeout));
        }
        if self.silent.load(Ordering::Relaxed) > 0 {
            self.silent.fetch_sub(1, Ordering::Relaxed);
            return Err(CallError::Timeout(request.timeout));
        }
        let status = if self.most.is_some_and(|most| batch.requests.len() > most) { 413 } else { 200 };
        let fits = |at: usize| self.fit.is_none_or(|fit| at < fit);
        let answers = batch.requests.iter().enumerate();
        let answers = answers.map(|(at, verb)| if fits(at) { answer(verb) } else { RelayResponse::TooLarge }).collect();
        let body =
            serde_json::to_vec(&BatchResponse { v: VERSION, cluster: UID.to_owned(), responses: answers }).unwrap();
        if body.len() > LARGEST && batch.requests.len() > 1 {
            return Err(CallError::TooLarge(LARGEST));
        }
        Ok(HttpResponse { status, headers: Vec::new(), body })
    }
}

struct BatchFixture {
    relays: Arc<FakeBatchRelay>,
    sender: Arc<BatchSender>,
    batches: OpenBatches,
}

impl BatchFixture {
    fn new(relays: FakeBatchRelay) -> Self {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let cluster = json!({"url": "http://r", "secret": secret, "uid": UID, "entrypointImage": "r"});
        let clusters = json!({"default": cluster.clone(), "eu": cluster}).to_string();
        let relays = Arc::new(relays);
        let sender = BatchSender {
            clusters: Arc::new(ClusterRegistry::parse(&clusters).unwrap()),
            queue: Arc::new(NoBatches),
            clock: Arc::new(FixedClock),
            random: Arc::new(SequentialRandom::default()),
            call: relays.clone(),
        };
        Self { relays, sender: Arc::new(sender), batches: OpenBatches::default() }
    }

    async fn ask(&self, cluster: Option<&str>, verb: Verb) -> RelayReply {
        let cluster = self.sender.clusters.named(cluster).unwrap();
        self.batches.request(&self.sender, cluster, verb).await
    }

    /// Asks for all of them at the same time. Gives the answers, and how many verbs each batch had.
    async fn all(&self, verbs: impl IntoIterator<Item = Verb>) -> (Vec<RelayReply>, Vec<usize>) {
        let asked = verbs.into_iter().map(|verb| self.ask(None, verb));
        let answers = futures::future::join_all(asked).await;
        let mut batches = std::mem::take(&mut *self.relays.batches.lock().unwrap());
        batches.sort_unstable();
        (answers, batches)
    }
}

fn name(unit: impl std::fmt::Display) -> TaskId {
    TaskId { unit: format!("u{unit}"), attempt: 1 }
}

fn running(unit: impl std::fmt::Display) -> RelayReply {
    Ok((RelayResponse::State(TaskState::running(format!("u{unit}"))), UID.to_owned()))
}

fn start(unit: usize, attempt: u32, bytes: usize) -> Verb {
    Verb::Ensure(Box::new(EnsureTask {
        v: VERSION,
        task: TaskId { attempt, ..name(unit) },
        valid_for_ms: 1,
        timeout_ms: 2,
        callback: CallbackEndpoint { url: "u".to_owned(), token: "t".to_owned(), installation: String::new() },
        body: ObjectTask { instance: "x".repeat(bytes), ..ObjectTask::default() },
    }))
}

#[tokio::test]
async fn what_is_asked_at_the_same_time_goes_together() {
    let world = BatchFixture::new(FakeBatchRelay::default());
    let (answers, batches) = world.all((0..20).map(|unit| Verb::Dequeue(name(unit)))).await;
    assert_eq!(answers, (0..20).map(running).collect::<Vec<_>>());
    assert_eq!(batches, [20]);
    // One after the other, each by itself.
    for unit in 0..2 {
        assert_eq!(world.all([Verb::Get(name(unit))]).await, (vec![running(unit)], vec![1]));
    }
    // As many as a batch takes, and as many bytes; what may wait goes by itself.
    let (answers, batches) = world.all((0..BATCH + 5).map(|unit| Verb::Release { instance: unit.to_string() })).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(batches, [5, BATCH]);
    let (answers, batches) = world.all((0..5).map(|unit| start(unit, 1, MAX_BYTES / 3))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(batches, [1, 2, 2]);
    let cancel = Verb::Cancel { task: name(2), grace_ms: 1 };
    let (_, batches) = world.all([start(0, 1, 1), start(1, 2, 1), cancel, start(3, 1, 1)]).await;
    assert_eq!(batches, [1, 1, 2]);
    let other = world.ask(Some("eu"), Verb::Dequeue(name(7)));
    let (one, other) = tokio::join!(world.ask(None, Verb::Dequeue(name(8))), other);
    assert_eq!((one, other), (running(8), running(7)));
    assert_eq!(*world.relays.batches.lock().unwrap(), [1, 1]);
}

#[tokio::test]
async fn each_verb_has_an_answer_of_its_own() {
    let world = BatchFixture::new(FakeBatchRelay::default());
    let units = ["1", "bad", "2"];
    let (answers, batches) = world.all(units.map(|unit| Verb::Dequeue(name(unit)))).await;
    assert_eq!(answers, [running(1), Err(RelayError::Refused("ubad".to_owned())), running(2)]);
    assert_eq!(batches, [3]);
    // No answer is none to each.
    world.relays.silent.store(1, Ordering::Relaxed);
    let (answers, batches) = world.all(units.map(|unit| Verb::Dequeue(name(unit)))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(RelayError::Unreachable(_)))), "{answers:?}");
    assert_eq!(batches, [3]);
}

#[tokio::test]
async fn what_is_too_much_for_one_batch_is_sent_in_parts() {
    // The relay takes fewer, and one that it never takes is refused by itself.
    for (most, expected) in [(3, vec![2, 2, 2, 2, 4, 4, 8]), (0, vec![1, 1, 2])] {
        let world = BatchFixture::new(FakeBatchRelay { most: Some(most), ..FakeBatchRelay::default() });
        let count = if most == 0 { 2 } else { 8 };
        let (answers, batches) = world.all((0..count).map(|unit| Verb::Dequeue(name(unit)))).await;
        match most {
            0 => assert!(answers.iter().all(|answer| matches!(answer, Err(RelayError::Refused(_))))),
            _ => assert_eq!(answers, (0..count).map(running).collect::<Vec<_>>()),
        }
        assert_eq!(batches, expected);
    }
    // Answers that are larger than what is read.
    let world = BatchFixture::new(FakeBatchRelay::default());
    let long = |unit: usize| format!("{}{unit}", "x".repeat(LARGEST / 2));
    let (answers, batches) = world.all((0..4).map(|unit| Verb::Get(name(long(unit))))).await;
    assert_eq!(answers, (0..4).map(|unit| running(long(unit))).collect::<Vec<_>>());
    assert_eq!(batches, [1, 1, 1, 1, 2, 2, 4]);
}

/// Answers that do not fit are asked for again one by one, as many as a function has memory for.
#[tokio::test]
async fn answers_that_do_not_fit_are_asked_for_alone() {
    let relays = FakeBatchRelay { fit: Some(2), ..FakeBatchRelay::default() };
    let world = BatchFixture::new(relays);
    let (answers, batches) = world.all((0..12).map(|unit| Verb::Dequeue(name(unit)))).await;
    assert_eq!(answers[..8], (0..8).map(running).collect::<Vec<_>>());
    assert!(answers[8..].iter().all(|answer| matches!(answer, Err(RelayError::Busy(_)))), "{answers:?}");
    assert_eq!(batches, [1, 1, 1, 1, 1, 1, 12]);
    // Alone it is too large as well.
    let world = BatchFixture::new(FakeBatchRelay { fit: Some(0), ..FakeBatchRelay::default() });
    let (answers, batches) = world.all([Verb::Dequeue(name(1))]).await;
    assert!(matches!(answers[..], [Err(RelayError::Busy(_))]), "{answers:?}");
    assert_eq!(batches, [1]);
}

/// The relay has answered, so a part of its batch that gets no answer says nothing of the cluster.
#[tokio::test]
async fn a_part_of_a_batch_without_an_answer_is_not_now() {
    for relays in [
        FakeBatchRelay { fit: Some(1), answers_once: true, ..FakeBatchRelay::default() },
        FakeBatchRelay { most: Some(1), answers_once: true, ..FakeBatchRelay::default() },
    ] {
        let world = BatchFixture::new(relays);
        let (answers, batches) = world.all((0..2).map(|unit| Verb::Dequeue(name(unit)))).await;
        assert!(matches!(answers[1], Err(RelayError::Busy(_))), "{answers:?}");
        assert_eq!(batches.last(), Some(&2));
        assert!(batches.len() > 1, "{batches:?}");
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_stops_no_other_and_leaves_nothing() {
    let world = BatchFixture::new(FakeBatchRelay::default());
    let mut first = Box::pin(world.ask(None, Verb::Dequeue(name(1))));
    let mut second = Box::pin(world.ask(None, Verb::Dequeue(name(2))));
    assert!(futures::poll!(first.as_mut()).is_pending() && futures::poll!(second.as_mut()).is_pending());
    drop(first);
    assert_eq!(second.await, running(2));
    assert_eq!(std::mem::take(&mut *world.relays.batches.lock().unwrap()), [2]);
    let mut only = Box::pin(world.ask(None, Verb::Dequeue(name(3))));
    assert!(futures::poll!(only.as_mut()).is_pending());
    drop(only);
    assert_eq!(world.all([Verb::Dequeue(name(4))]).await, (vec![running(4)], vec![1]));
}
