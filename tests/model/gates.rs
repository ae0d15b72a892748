//! Gates at which tasks wait for the explorer: operations on the table, and requests to the environment.

use std::hash::{DefaultHasher, Hasher};

use super::*;
use crate::simulation::{TableAccess, TableGate};

/// The operation that waits at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum GateKind {
    Read,
    Write,
    Send,
    Queue,
}

#[derive(Clone, Debug)]
pub(super) struct GatePoint {
    pub(super) task: SimTaskId,
    pub(super) kind: GateKind,
    pub(super) what: String,
}

#[derive(Default)]
struct GateState {
    /// The tasks that wait, and those that died while they waited.
    entries: BTreeMap<u64, (GatePoint, oneshot::Sender<WriteFate>)>,
    next: u64,
    seen: BTreeMap<SimTaskId, u64>,
    last: BTreeMap<SimTaskId, GateKind>,
}

#[derive(Clone)]
pub(super) struct StepGates {
    runtime: SimRuntime,
    state: Arc<Mutex<GateState>>,
}

/// Hashes a value by its `Debug` output. The text is hashed as a whole, because a hasher is slow with small parts.
pub(super) fn digest(value: &dyn Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{value:?}").as_bytes());
    hasher.finish()
}

impl StepGates {
    pub(super) fn new(runtime: SimRuntime) -> Self {
        Self { runtime, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        lock(&self.state)
    }

    /// Waits until the explorer releases the running task.
    pub(super) async fn wait(&self, kind: GateKind, what: String) -> WriteFate {
        let (sender, released) = oneshot::channel();
        {
            let mut state = self.state();
            state.next += 1;
            let (number, task) = (state.next, self.runtime.current());
            state.entries.insert(number, (GatePoint { task, kind, what }, sender));
        }
        released.await.expect("a gate is kept until its task is released")
    }

    /// Returns the waiting tasks, the oldest first. So the usual order runs a task to its end.
    pub(super) fn waiting(&self) -> Vec<(u64, GatePoint)> {
        let state = self.state();
        let waiting = state.entries.iter().filter(|(_, (_, sender))| !sender.is_canceled());
        let mut points: Vec<_> = waiting.map(|(number, (point, _))| (*number, point.clone())).collect();
        points.sort_by_key(|(number, point)| (point.task, *number));
        points
    }

    pub(super) fn release(&self, number: u64, fate: WriteFate) {
        let mut state = self.state();
        let (point, sender) = state.entries.remove(&number).expect("only who waits is let go");
        state.last.insert(point.task, point.kind);
        sender.send(fate).ok();
    }

    /// Returns true if the last step of a task was a read. A death after it has the same effect as one before it.
    pub(super) fn has_only_read(&self, task: SimTaskId) -> bool {
        self.state().last.get(&task) == Some(&GateKind::Read)
    }

    /// Records a value that the running task received. Tasks are deterministic, so these values identify its state.
    pub(super) fn learn(&self, value: &dyn Debug) {
        let task = self.runtime.current();
        let now = self.runtime.elapsed();
        let mut state = self.state();
        let seen = state.seen.entry(task).or_default();
        *seen = digest(&(*seen, now, value));
    }

    /// Returns the hash of the values that a task received.
    pub(super) fn seen(&self, task: SimTaskId) -> u64 {
        self.state().seen.get(&task).copied().unwrap_or_default()
    }
}

#[async_trait]
impl TableGate for StepGates {
    async fn pass(&self, access: TableAccess, operation: &'static str) -> WriteFate {
        let kind = match access {
            TableAccess::Read => GateKind::Read,
            TableAccess::Write => GateKind::Write,
        };
        self.wait(kind, operation.to_owned()).await
    }

    fn saw(&self, answer: &dyn Debug) {
        self.learn(&answer);
    }

    fn is_narrow(&self) -> bool {
        true
    }
}
