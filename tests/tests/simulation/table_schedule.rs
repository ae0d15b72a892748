//! A chosen order of the operations of the first tasks that use the table.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use ebb_tests::simulation::{SimRuntime, SimTaskId, TableAccess, TableGate, WriteFate, lock};

/// Maximum time that a task waits for the operation of another one, in milliseconds. Then the schedule skips this
/// operation.
const MAX_WAIT_MS: u32 = 3;

/// A schedule of the first two tasks that use the table, numbered in the order of their first operations. Later tasks
/// are free.
pub(crate) struct TableSchedule {
    runtime: SimRuntime,
    state: Mutex<ScheduleState>,
}

struct ScheduleState {
    order: VecDeque<usize>,
    known: Vec<SimTaskId>,
    waited: u32,
    followed: usize,
}

impl TableSchedule {
    /// Schedules one operation per entry of `order`, which is the number of its task.
    pub(crate) fn new(runtime: SimRuntime, order: impl IntoIterator<Item = usize>) -> Self {
        let order = order.into_iter().collect();
        Self { runtime, state: Mutex::new(ScheduleState { order, known: Vec::new(), waited: 0, followed: 0 }) }
    }

    /// Returns the number of operations in the scheduled order.
    pub(crate) fn followed(&self) -> usize {
        self.state().followed
    }

    fn state(&self) -> MutexGuard<'_, ScheduleState> {
        lock(&self.state)
    }
}

#[async_trait]
impl TableGate for TableSchedule {
    async fn pass(&self, _: TableAccess, _: &'static str) -> WriteFate {
        let task = self.runtime.current();
        loop {
            {
                let mut state = self.state();
                let me = match state.known.iter().position(|known| *known == task) {
                    Some(me) => me,
                    None if state.known.len() < 2 => {
                        state.known.push(task);
                        state.known.len() - 1
                    }
                    None => return WriteFate::Proceed,
                };
                match state.order.front() {
                    None => return WriteFate::Proceed,
                    Some(next) if *next == me => {
                        state.order.pop_front();
                        state.waited = 0;
                        state.followed += 1;
                        return WriteFate::Proceed;
                    }
                    Some(_) if state.waited >= MAX_WAIT_MS => {
                        state.order.pop_front();
                        state.waited = 0;
                        continue;
                    }
                    Some(_) => state.waited += 1,
                }
            }
            self.runtime.sleep(1).await;
        }
    }
}
