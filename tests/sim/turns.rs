//! The order in which tasks come to the table, when a test sets it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use std::fmt::Debug;

use async_trait::async_trait;

use super::{SimRuntime, SimTaskId, TableAccess, TableGate, WriteFate};

/// A task waits this many milliseconds for another one's turn; after that the other one has nothing to do there.
const PATIENCE: u32 = 3;

/// Turns of the first tasks that come to the table, numbered as they come. Later ones come when they like.
pub struct TableTurns {
    runtime: SimRuntime,
    state: Mutex<TurnState>,
}

struct TurnState {
    order: VecDeque<usize>,
    known: Vec<SimTaskId>,
    most: usize,
    waited: u32,
    taken: usize,
}

impl TableTurns {
    /// One operation of the task named per entry of `order`, in this order, for the first `tasks` tasks.
    pub fn new(runtime: SimRuntime, tasks: usize, order: impl IntoIterator<Item = usize>) -> Self {
        let order = order.into_iter().collect();
        let state = Mutex::new(TurnState { order, known: Vec::new(), most: tasks, waited: 0, taken: 0 });
        Self { runtime, state }
    }

    /// How many turns were taken by the task whose turn it was.
    pub fn taken(&self) -> usize {
        self.state().taken
    }

    fn state(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().expect("no panic while it is held")
    }
}

#[async_trait]
impl TableGate for TableTurns {
    async fn pass(&self, _: TableAccess, _: &'static str) -> WriteFate {
        let task = self.runtime.current();
        loop {
            {
                let mut state = self.state();
                let me = match state.known.iter().position(|known| *known == task) {
                    Some(me) => me,
                    None if state.known.len() < state.most => {
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
                        state.taken += 1;
                        return WriteFate::Proceed;
                    }
                    Some(_) if state.waited >= PATIENCE => {
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

    fn saw(&self, _: &dyn Debug) {}
}
