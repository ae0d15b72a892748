//! Looking after work: one task for each, one step at a time, until there is nothing left to do.

use std::sync::Arc;
use std::time::Duration;

use ebb_wire::relay::WorkName;
use tokio::sync::Notify;

use crate::callback::Delivery;
use crate::error::Error;
use crate::record::{Phase, Record};
use crate::relay::Inner;
use crate::store::now_ms;
use crate::verbs::CHANGED;

/// Between two looks at work that nothing was heard of: what watches have missed is found then.
pub(crate) const LOOK: Duration = Duration::from_secs(30);
/// Between two tries of what failed: the first pause, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// What is to be done after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing any more.
    Leave,
    Now,
    /// The next step, when something happens or after this time.
    Wait(Duration),
    /// The next step, when something happens.
    Sleep,
    /// The same again, after a pause that grows.
    Again,
}

impl Next {
    /// At a time in milliseconds since 1970 by our clock, but not too late.
    pub(crate) fn until(time_ms: u64) -> Self {
        // One more: at that very millisecond it would be too early.
        Self::Wait(Duration::from_millis(time_ms.saturating_sub(now_ms()).saturating_add(1)).min(LOOK))
    }
}

/// Whether somebody has to look after a work.
pub(crate) fn is_needed(record: &Record) -> bool {
    match record.phase {
        Phase::Starting | Phase::Running | Phase::Ending { .. } | Phase::Ended => true,
        Phase::Taken => {
            record.work.as_ref().is_some_and(|work| !work.objects.keep || work.applied.is_empty())
        }
        Phase::Tombstone { .. } => false,
    }
}

impl Inner {
    /// Sees to it that a task looks after the work, and that it looks now.
    pub(crate) fn attend(self: &Arc<Self>, name: &WorkName) {
        if let Some(wake) = self.tasks.wake_or_enter(name) {
            tokio::spawn(look_after(self.clone(), name.clone(), wake));
        }
    }

    /// Does the next thing that has to be done for a work.
    async fn step(self: &Arc<Self>, name: &WorkName) -> Result<Next, Error> {
        match self.in_time(Box::pin(self.step_or_report(name))).await? {
            Some(next) => Ok(next),
            None => self.report(name).await,
        }
    }

    /// `None`: it has a result that is to be sent.
    async fn step_or_report(self: &Arc<Self>, name: &WorkName) -> Result<Option<Next>, Error> {
        let _lock = self.tasks.lock(&name.unit).await;
        let Some(mut held) = self.store.head(name).await? else {
            self.leave_place(name);
            return Ok(Some(Next::Leave));
        };
        if held.record.phase != Phase::Ended {
            self.store.rest(&mut held).await?;
        }
        if held.record.may_run() {
            self.turns.hold(name);
        }
        let next = match held.record.phase {
            Phase::Starting => self.start(&mut held, &[]).await,
            Phase::Running => self.wait(&mut held).await,
            Phase::Ending { .. } => self.end(&mut held).await,
            Phase::Ended => {
                self.leave_place_once_over(&held).await?;
                return Ok(None);
            }
            Phase::Taken => {
                self.leave_place_once_over(&held).await?;
                self.tidy(&mut held).await
            }
            Phase::Tombstone { .. } => Ok(Next::Leave),
        }?;
        if next == Next::Leave {
            self.leave_place(name);
        }
        Ok(Some(next))
    }

    /// Calls back; a result that was taken is noted as such.
    async fn report(&self, name: &WorkName) -> Result<Next, Error> {
        // Results are large, and a control plane that does not answer has all of them wait.
        let Ok(room) = self.callbacks.acquire().await else { return Ok(Next::Again) };
        let Some(held) = self.in_time(self.store.get(name)).await? else { return Ok(Next::Now) };
        if held.record.phase != Phase::Ended {
            return Ok(Next::Now);
        }
        let delivery = self.call_back(&held).await?;
        drop((held, room));
        match delivery {
            Delivery::Taken => {
                self.in_time(self.take(name)).await?;
                Ok(Next::Now)
            }
            Delivery::Later(why) => {
                let WorkName { unit, attempt } = name;
                tracing::info!(unit, attempt, why, "the result is not taken yet");
                Ok(Next::Again)
            }
        }
    }

    /// Notes that a result was taken; gives whether there was one.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(crate) async fn take(&self, name: &WorkName) -> Result<bool, Error> {
        let _lock = self.tasks.lock(&name.unit).await;
        let Some(mut held) = self.store.get(name).await? else { return Ok(false) };
        if held.record.phase != Phase::Ended {
            return Ok(false);
        }
        held.record.phase = Phase::Taken;
        self.store.save(&mut held).await?;
        Ok(true)
    }

    /// Gives up what takes too long: it holds the lock of its unit.
    async fn in_time<T>(&self, done: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let late = |_| Err(Error::Own("the API server takes too long".to_owned()));
        tokio::time::timeout(self.settings.longest, done).await.unwrap_or_else(late)
    }
}

async fn look_after(inner: Arc<Inner>, name: WorkName, wake: Arc<Notify>) {
    let mut ends = inner.ends.clone();
    tokio::select! {
        _ = ends.changed() => {}
        () = steps(&inner, &name, &wake) => {}
    }
}

async fn steps(inner: &Arc<Inner>, name: &WorkName, wake: &Notify) {
    let mut pause = PAUSE.0;
    loop {
        // `None`: until it is woken.
        let rest = match inner.step(name).await {
            Ok(Next::Leave) if inner.tasks.leave(name) => return,
            Ok(Next::Leave | Next::Now) => {
                pause = PAUSE.0;
                continue;
            }
            Ok(Next::Wait(rest)) => {
                pause = PAUSE.0;
                Some(rest)
            }
            Ok(Next::Sleep) => {
                pause = PAUSE.0;
                None
            }
            Err(Error::Conflict) => Some(CHANGED),
            Ok(Next::Again) => Some(grown(&mut pause)),
            Err(error) => {
                tracing::warn!(unit = name.unit, attempt = name.attempt, %error, "a step has failed");
                Some(grown(&mut pause))
            }
        };
        match rest {
            Some(rest) => drop(tokio::time::timeout(rest, wake.notified()).await),
            None => wake.notified().await,
        }
    }
}

fn grown(pause: &mut Duration) -> Duration {
    let rest = *pause;
    *pause = (rest * 2).min(PAUSE.1);
    rest
}
