//! Tasks on one thread in virtual time. The clock advances only if no task can continue.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ebb_engine::Timestamp;
use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::{BoxFuture, Either, select};

/// The start of every simulation, in milliseconds since 1970.
const BEGIN: u64 = 1_700_000_000_000;

/// Identifies a task. Later tasks have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimTaskId(pub u64);

type SimFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Default)]
struct RuntimeState {
    now: AtomicU64,
    current: AtomicU64,
    next: AtomicU64,
    steps: AtomicU64,
    jobs: Mutex<BTreeMap<SimTaskId, SimFuture>>,
    killed: Mutex<Vec<SimTaskId>>,
    ready: Mutex<VecDeque<SimTaskId>>,
    timers: Mutex<BTreeMap<(u64, u64), oneshot::Sender<()>>>,
}

/// The tasks and the time of a simulation.
#[derive(Clone, Default)]
pub struct SimRuntime(Arc<RuntimeState>);

struct TaskWaker {
    inner: Arc<RuntimeState>,
    task: SimTaskId,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        lock(&self.inner.ready).push_back(self.task);
    }
}

/// Locks a mutex. No code of the simulation panics while it holds a lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is held")
}

impl SimRuntime {
    /// Returns the milliseconds since the start of the simulation.
    pub fn elapsed(&self) -> u64 {
        self.0.now.load(Ordering::Relaxed)
    }

    pub fn now(&self) -> Timestamp {
        Timestamp(BEGIN + self.elapsed())
    }

    pub fn current(&self) -> SimTaskId {
        SimTaskId(self.0.current.load(Ordering::Relaxed))
    }

    pub fn newest(&self) -> SimTaskId {
        SimTaskId(self.0.next.load(Ordering::Relaxed))
    }

    /// Waits until one of two futures is ready. The other one is dropped.
    pub async fn first(&self, one: impl Future + Send, other: impl Future + Send) {
        select(Box::pin(one), Box::pin(other)).await;
    }

    /// Waits for a task, and kills it after `millis`.
    pub async fn within<T>(&self, task: SimTask<T>, millis: u64) -> Option<T> {
        let id = task.id;
        match select(task, self.sleep(millis)).await {
            Either::Left((value, _)) => value,
            Either::Right(_) => {
                self.kill(id);
                None
            }
        }
    }

    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> SimTask<T> {
        let id = SimTaskId(self.0.next.fetch_add(1, Ordering::Relaxed) + 1);
        let (sender, result) = oneshot::channel();
        let job = Box::pin(async move {
            sender.send(work.await).ok();
        });
        lock(&self.0.jobs).insert(id, job);
        lock(&self.0.ready).push_back(id);
        SimTask { id, result }
    }

    /// Kills a task like a crash. The running task ends at its next wait.
    pub fn kill(&self, task: SimTaskId) {
        // The job is dropped after the lock is released, because its end wakes other tasks.
        let job = lock(&self.0.jobs).remove(&task);
        if job.is_none() {
            lock(&self.0.killed).push(task);
        }
        drop(job);
    }

    pub async fn die(&self) -> ! {
        self.kill(self.current());
        std::future::pending::<()>().await;
        unreachable!("a killed task is not polled again")
    }

    /// Waits for `millis` of virtual time.
    pub fn sleep(&self, millis: u64) -> impl Future<Output = ()> + Send + Unpin + use<> {
        let (sender, receiver) = oneshot::channel();
        let key = (self.elapsed().saturating_add(millis), self.0.steps.fetch_add(1, Ordering::Relaxed));
        lock(&self.0.timers).insert(key, sender);
        receiver.map(drop)
    }

    /// Runs all tasks until each of them waits for time or for another task.
    pub fn settle(&self) {
        loop {
            let Some(next) = lock(&self.0.ready).pop_front() else { return };
            self.poll(next);
        }
    }

    /// Runs all tasks until `work` has ended. Returns `None` if it was killed, or if no task can continue.
    pub fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let mut task = self.spawn(work);
        loop {
            let next = lock(&self.0.ready).pop_front();
            match next {
                Some(next) => self.poll(next),
                None if !self.advance() => return None,
                None => {}
            }
            if let Some(end) = task.result.try_recv().transpose() {
                return end.ok();
            }
        }
    }

    pub fn clear(&self) {
        loop {
            let jobs = std::mem::take(&mut *lock(&self.0.jobs));
            if jobs.is_empty() {
                break;
            }
            drop(jobs);
        }
        lock(&self.0.timers).clear();
    }

    fn poll(&self, task: SimTaskId) {
        let Some(mut job) = lock(&self.0.jobs).remove(&task) else { return };
        self.0.current.store(task.0, Ordering::Relaxed);
        let waker = Waker::from(Arc::new(TaskWaker { inner: Arc::clone(&self.0), task }));
        let polled = job.as_mut().poll(&mut Context::from_waker(&waker));
        let killed = {
            let mut killed = lock(&self.0.killed);
            let found = killed.contains(&task);
            killed.clear();
            found
        };
        if polled.is_pending() && !killed {
            lock(&self.0.jobs).insert(task, job);
        }
    }

    /// Advances the clock to the next timer. Returns false if there is none.
    fn advance(&self) -> bool {
        let mut timers = lock(&self.0.timers);
        while let Some(((at, _), timer)) = timers.pop_first() {
            // The task of a cancelled timer waits no more.
            if timer.send(()).is_ok() {
                self.0.now.fetch_max(at, Ordering::Relaxed);
                return true;
            }
        }
        false
    }
}

/// A started task. It returns its value, or `None` if it was killed. It also runs if it is not awaited.
pub struct SimTask<T> {
    pub id: SimTaskId,
    result: oneshot::Receiver<T>,
}

impl<T> Future for SimTask<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.result.poll_unpin(context).map(Result::ok)
    }
}

/// The virtual clock of the functions, and by how many milliseconds it is fast.
pub struct SimClock(pub SimRuntime, pub i64);

impl ebb_flow::ports::Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.now().0.saturating_add_signed(self.1))
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.0.sleep(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }
}
