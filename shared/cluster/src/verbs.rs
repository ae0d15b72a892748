//! The verbs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebb_wire::listing::About;
use ebb_wire::relay::{
    Answer, Answers, BATCH, Batch, Ensure, Objects, Request, VERSION, WorkName, WorkState,
};
use futures::StreamExt as _;
use rand::Rng as _;
use tokio::sync::SemaphorePermit;

use crate::admit::Refusal;
use crate::documents;
use crate::ending::GRACE_MS;
use crate::error::Error;
use crate::names;
use crate::received::Received;
use crate::record::{Phase, Record, Work};
use crate::relay::{Inner, Relay};
use crate::store::{Held, now_ms};
use crate::turns::Turn;

/// How long a caller is made to wait for something to die, beside its grace period.
const DEATH: Duration = Duration::from_secs(5);
/// How long lower tries may take to die before the request has to come again: less than the time for its answer.
const LOWER: Duration = Duration::from_secs(12);
/// How long a request is done again because somebody else has changed what it is about.
const TORN: Duration = Duration::from_secs(10);
pub(crate) const CHANGED: Duration = Duration::from_millis(20);
/// Between two looks: the first pause, and the longest of those that grow.
const LOOK: Duration = Duration::from_millis(200);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// The batch is for another cluster, of which the control plane has pinned the uid: nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this relay's cluster is {ours}, and the batch is for {theirs}")]
pub struct OtherCluster {
    pub ours: String,
    /// The one that was asked for.
    pub theirs: String,
}

impl Relay {
    /// Answers a batch that was under way for `late`. Requests of one unit are done in their order, those of several units
    /// at once.
    ///
    /// # Errors
    /// [`OtherCluster`].
    pub async fn batch(&self, batch: Batch, late: Duration) -> Result<Answers, OtherCluster> {
        let batch = batch.after(late);
        let received = Received::new(late);
        let ours = self.inner.cluster.clone();
        if batch.cluster != ours {
            return Err(OtherCluster { ours, theirs: batch.cluster });
        }
        let count = batch.requests.len();
        if batch.v != VERSION || count > BATCH {
            let why = format!("version {} or {count} requests: not known here, or too many", batch.v);
            // Whether something runs is another matter.
            let answer = |request: &Request| match request {
                Request::Ensure(_) => Answer::Refused(why.clone()),
                _ => Answer::Failed(why.clone()),
            };
            let answers = batch.requests.iter().map(answer).collect();
            return Ok(Answers { v: VERSION, cluster: ours, answers });
        }
        // None of these gets a place that becomes free while the batch is acted on.
        for request in &batch.requests {
            if let Request::Dequeue(name) = request {
                self.inner.turns.withdraw(name);
            }
        }
        let mut groups: BTreeMap<String, Vec<(usize, Request)>> = BTreeMap::new();
        for (number, request) in batch.requests.into_iter().enumerate() {
            let unit = match &request {
                Request::Ensure(request) => request.name.unit.clone(),
                Request::Get(name)
                | Request::Dequeue(name)
                | Request::Acknowledge(name)
                | Request::Discard(name)
                | Request::Cancel { name, .. } => name.unit.clone(),
                Request::Release { life } => format!("release {life}"),
                // No unit has a name like this.
                Request::About | Request::List { .. } => format!("looks {number}"),
            };
            groups.entry(unit).or_default().push((number, request));
        }
        let done = groups.into_values().map(|group| {
            let (inner, received) = (self.inner.clone(), received.clone());
            async move {
                let numbers: Vec<usize> = group.iter().map(|(number, _)| *number).collect();
                // A task of its own: whoever has asked may go away, and nothing may stay half done for that.
                let task = tokio::spawn(async move { inner.answer_all(group, received).await });
                let failed =
                    |number| (number, Answer::Failed("the relay has failed: see its log".to_owned()));
                task.await.unwrap_or_else(|_| numbers.into_iter().map(failed).collect())
            }
        });
        let mut answers: Vec<_> = futures::stream::iter(done).buffer_unordered(BATCH).concat().await;
        answers.sort_by_key(|(number, _)| *number);
        let answers = answers.into_iter().map(|(_, answer)| answer).collect();
        Ok(Answers { v: VERSION, cluster: ours, answers })
    }
}

impl Inner {
    async fn answer_all(
        self: &Arc<Self>,
        group: Vec<(usize, Request)>,
        received: Received,
    ) -> Vec<(usize, Answer)> {
        let mut answers = Vec::new();
        for (number, request) in group {
            let answer = self.answer(request, &received).await;
            answers.push((number, received.room.fit(answer)));
        }
        answers
    }

    /// An answer in time, whatever the API server does.
    async fn answer(self: &Arc<Self>, request: Request, received: &Received) -> Answer {
        let name = match &request {
            Request::Ensure(request) => Some(request.name.clone()),
            Request::Cancel { name, .. } | Request::Dequeue(name) => Some(name.clone()),
            _ => None,
        };
        let deadline = received.deadline(&request, self.settings.longest);
        let done = async {
            let permit = received.acting.acquire().await.ok();
            self.answer_late(request, received, permit).await
        };
        let answer = tokio::time::timeout_at(deadline.into(), done).await;
        answer.unwrap_or_else(|_| {
            if let Some(name) = name.filter(|name| names::check(name).is_ok()) {
                // What was half done is finished.
                self.attend(&name);
            }
            Answer::Failed("the API server takes too long: ask again".to_owned())
        })
    }

    async fn answer_late(
        self: &Arc<Self>,
        request: Request,
        received: &Received,
        mut permit: Option<SemaphorePermit<'_>>,
    ) -> Answer {
        let begun = Instant::now();
        loop {
            let done = match &request {
                Request::Ensure(request) => self.ensure(request, received).await.map(Answer::State),
                Request::Get(name) => self.get(name).await.map(Answer::State),
                Request::Cancel { name, grace_ms } => {
                    self.cancel(name, *grace_ms, received, &mut permit).await.map(Answer::State)
                }
                Request::Dequeue(name) => self.dequeue(name).await.map(Answer::State),
                Request::Acknowledge(name) => self.acknowledge(name).await.map(|()| Answer::Done),
                Request::Release { life } => match names::check_life(life) {
                    Ok(()) => self.release(life).await.map(|()| Answer::Done).map_err(Into::into),
                    Err(why) => Err(Refusal::Never(why)),
                },
                Request::About => Ok(Answer::About(self.about())),
                Request::List { after } => {
                    self.list(after.as_deref()).await.map(Answer::Listing).map_err(Into::into)
                }
                Request::Discard(name) => self.give_up(name).await,
            };
            return match done {
                Ok(answer) => answer,
                Err(Refusal::Now(Error::Conflict)) if begun.elapsed() < TORN => {
                    tokio::time::sleep(CHANGED).await;
                    continue;
                }
                Err(Refusal::Never(why)) => Answer::Refused(why),
                Err(Refusal::Now(error)) => Answer::Failed(error.to_string()),
            };
        }
    }

    async fn ensure(
        self: &Arc<Self>,
        request: &Ensure<Objects>,
        received: &Received,
    ) -> Result<WorkState, Refusal> {
        let name = &request.name;
        names::check(name).map_err(Refusal::Never)?;
        let not_after = Duration::from_millis(request.not_after_ms);
        let mut admitted: Option<Ensure<Objects>> = None;
        loop {
            let lock = self.tasks.lock(&name.unit).await;
            if let Some(held) = self.store.get(name).await? {
                return self.found(held, request).await;
            }
            let others = self.store.list(&name.unit).await?;
            if others.iter().any(|other| other.name.attempt > name.attempt) {
                return Ok(WorkState::Tombstoned);
            }
            let request = match &admitted {
                Some(request) => request,
                None => {
                    let mut own = request.clone();
                    self.admit(&mut own).await?;
                    admitted.insert(own)
                }
            };
            let late = received.at.elapsed() >= not_after;
            let mut dying = false;
            // One of this very name was made by another relay meanwhile: it is found the next time.
            let lower = |other: &&Record| other.phase.is_open() && other.name.attempt < name.attempt;
            for other in others.iter().filter(lower) {
                dying = true;
                self.begin_cancel(&other.name, GRACE_MS).await?;
            }
            if late || (dying && received.at.elapsed() > LOWER) {
                let why = if dying { "lower tries still end" } else { "it is too late to start it" };
                return Err(Refusal::Now(Error::Own(why.to_owned())));
            }
            if !dying {
                return self.begin(request, received.ms).await;
            }
            drop(lock);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Makes the record and applies what can be applied right now.
    async fn begin(
        self: &Arc<Self>,
        request: &Ensure<Objects>,
        received_ms: u64,
    ) -> Result<WorkState, Refusal> {
        let mut objects = request.work.clone();
        let documents = objects.secrets.clone();
        for document in &mut objects.secrets {
            document.document = serde_json::Value::Null;
        }
        let token = rand::rng().random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut work = Work {
            callback: request.callback.clone(),
            namespace: self.namespace(&objects),
            objects,
            applied: Vec::new(),
            token,
            received_ms,
            not_after_ms: received_ms.saturating_add(request.not_after_ms),
            deadline_ms: received_ms.saturating_add(request.timeout_ms),
            turn: false,
            sensitive: request.work.secrets.iter().flat_map(documents::sensitive).collect(),
            reported: false,
            foreboding: None,
        };
        let life = &work.objects.life;
        if work.container().is_some() && self.turns.enter(&request.name, life) == Turn::Has {
            work.turn = true;
        }
        let record = Record { name: request.name.clone(), phase: Phase::Starting, work: Some(work) };
        let made = async {
            let mut held = self.store.create(record).await.map_err(|error| match error {
                Error::TooLarge(why) => Refusal::Never(why),
                other => other.into(),
            })?;
            self.start(&mut held, &documents).await?;
            Ok::<_, Refusal>(held)
        };
        let made = made.await;
        // Also of what has failed: it may have a record, and has a place or waits for one.
        self.attend(&request.name);
        Ok(self.state(&made?, None)?)
    }

    /// Whatever is remembered of a name decides; a start that lacks its documents gets them. A work that waits or starts,
    /// and a result that was not taken, go to the newest callback: its token is the one that is valid longest.
    async fn found(
        self: &Arc<Self>,
        mut held: Held,
        request: &Ensure<Objects>,
    ) -> Result<WorkState, Refusal> {
        let taken_and_kept = held.record.phase == Phase::Taken
            && held.record.work.as_ref().is_some_and(|work| work.objects.keep);
        let is_told_later = taken_and_kept || matches!(held.record.phase, Phase::Starting | Phase::Ended);
        let mut changed = taken_and_kept;
        if let Some(work) = held.record.work.as_mut().filter(|_| is_told_later) {
            changed |= work.callback != request.callback;
            work.callback = request.callback.clone();
        }
        if taken_and_kept {
            held.record.phase = Phase::Ended;
        }
        if changed {
            // The outcome of every request for its objects is known of the version that is replaced here.
            held.sure |= self.tasks.doubt(&request.name, &held.version);
            self.store.save(&mut held).await?;
        }
        if held.record.phase == Phase::Starting {
            self.start(&mut held, &request.work.secrets).await?;
        }
        if !held.record.phase.is_over() {
            self.attend(&request.name);
        }
        Ok(self.state(&held, None)?)
    }

    async fn get(self: &Arc<Self>, name: &WorkName) -> Result<WorkState, Refusal> {
        names::check(name).map_err(Refusal::Never)?;
        let Some(held) = self.store.get(name).await? else {
            let others = self.store.list(&name.unit).await?;
            let is_past = others.iter().any(|other| other.name.attempt > name.attempt);
            return Ok(if is_past { WorkState::Tombstoned } else { WorkState::Unknown });
        };
        let log = match (&held.record.work, held.record.phase.is_open()) {
            (Some(work), true) if !held.record.waits() => Some(self.log_of(work).await?),
            _ => None,
        };
        Ok(self.state(&held, log)?)
    }

    /// Never refused: who asks would believe that nothing runs.
    async fn cancel(
        self: &Arc<Self>,
        name: &WorkName,
        grace_ms: u64,
        received: &Received,
        permit: &mut Option<SemaphorePermit<'_>>,
    ) -> Result<WorkState, Refusal> {
        if names::check(name).is_err() {
            // Nothing can run under such a name, now or later.
            return Ok(WorkState::Tombstoned);
        }
        let until = received.at + DEATH + Duration::from_millis(grace_ms).min(DEATH);
        let lock = self.tasks.lock(&name.unit).await;
        self.begin_cancel(name, grace_ms).await?;
        drop((lock, permit.take()));
        let mut pause = LOOK;
        loop {
            let Some(mut held) = self.store.head(name).await? else { return Ok(WorkState::Unknown) };
            if !held.record.phase.is_open() || Instant::now() > until {
                // The results of a batch are not all read at once: each may have 5 MiB.
                let _reading = received.acting.acquire().await;
                self.store.rest(&mut held).await?;
                return Ok(self.state(&held, None)?);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
    }

    /// Never refused, as [`cancel`](Self::cancel). Waits for nothing to end.
    async fn dequeue(self: &Arc<Self>, name: &WorkName) -> Result<WorkState, Refusal> {
        if names::check(name).is_err() {
            return Ok(WorkState::Tombstoned);
        }
        let _lock = self.tasks.lock(&name.unit).await;
        let left = async {
            match self.store.get(name).await? {
                Some(held) if !held.record.waits() => Ok(held),
                _ => {
                    self.begin_cancel(name, GRACE_MS).await?;
                    let missing = || Error::Own("its record is gone: ask again".to_owned());
                    self.store.get(name).await?.ok_or_else(missing)
                }
            }
        };
        let left = left.await.inspect_err(|_| {
            // It left the queue when the batch came: its task puts it back.
            self.attend(name);
        })?;
        Ok(self.state(&left, None)?)
    }

    /// Begins to end a work, unless it has ended; a name that is not known gets a tombstone. The caller holds the lock.
    async fn begin_cancel(self: &Arc<Self>, name: &WorkName, grace_ms: u64) -> Result<(), Error> {
        let Some(mut held) = self.store.get(name).await? else {
            let record =
                Record { name: name.clone(), phase: Phase::Tombstone { since_ms: now_ms() }, work: None };
            return self.store.create(record).await.map(drop);
        };
        if held.record.phase == Phase::Running {
            // It may have ended while nobody looked. Whether or not that can be seen, it is ended.
            match self.wait(&mut held).await {
                Ok(_) => {}
                Err(Error::Conflict) => return Err(Error::Conflict),
                Err(error) => {
                    tracing::warn!(unit = name.unit, attempt = name.attempt, %error, "cancelled without a look");
                    let Some(again) = self.store.get(name).await? else { return Ok(()) };
                    held = again;
                }
            }
        }
        match &held.record.phase {
            Phase::Starting | Phase::Running => self.begin_end(&mut held, grace_ms, None).await?,
            // Less patience than before.
            Phase::Ending { .. } | Phase::Ended | Phase::Taken | Phase::Tombstone { .. } => {}
        }
        // Less patience than before.
        if let Phase::Ending { grace_ms: before, .. } = &mut held.record.phase
            && grace_ms < *before
        {
            *before = grace_ms;
            self.store.save(&mut held).await?;
        }
        self.attend(name);
        Ok(())
    }

    async fn acknowledge(self: &Arc<Self>, name: &WorkName) -> Result<(), Refusal> {
        names::check(name).map_err(Refusal::Never)?;
        if self.take(name).await? {
            self.attend(name);
        }
        Ok(())
    }

    async fn give_up(self: &Arc<Self>, name: &WorkName) -> Result<Answer, Refusal> {
        names::check(name).map_err(Refusal::Never)?;
        Ok(match self.discard(name).await? {
            Some(why) => Answer::Failed(why),
            None => Answer::Done,
        })
    }

    fn about(&self) -> About {
        About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            up_ms: u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX),
            works: u64::try_from(self.tasks.count()).unwrap_or(u64::MAX),
        }
    }

    fn state(&self, held: &Held, log: Option<String>) -> Result<WorkState, Error> {
        let waits = held.record.waits().then(|| self.turns.before(&held.record.name)).flatten();
        if let Some(before) = waits {
            return Ok(WorkState::Waiting { before });
        }
        Ok(match &held.record.phase {
            phase if phase.is_open() => {
                let (pending, heartbeat) = self.tasks.signs(&held.record.name);
                let heartbeat_ms = heartbeat.map(crate::settings::millis);
                WorkState::Running { log: log.unwrap_or_default(), pending, heartbeat_ms }
            }
            Phase::Ended => WorkState::Ended(Box::new(held.result()?)),
            Phase::Taken if held.result.is_some() => WorkState::Ended(Box::new(held.result()?)),
            _ => WorkState::Tombstoned,
        })
    }
}

#[cfg(test)]
mod tests;
