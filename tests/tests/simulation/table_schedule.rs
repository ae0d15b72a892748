//! A chosen order of the operations of the first tasks that use the table.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use ebb_tests::simulation::{SimTaskId, Simulation, TableAccess, WriteFate, lock};

/// Maximum time that a task waits for the operation of another one, in milliseconds. Then the schedule skips this
/// operation.
const MAX_WAIT_MS: u32 = 3;

/// The rest of the order, and the tasks that it is about.
#[derive(Default)]
pub(crate) struct TableSchedule {
    /// The numbers of the tasks of the next operations.
    order: VecDeque<usize>,
    known: Vec<SimTaskId>,
    /// The time for which a task has waited for the next operation, in milliseconds.
    waited: u32,
    /// The number of operations in the scheduled order.
    pub(crate) followed: usize,
}

/// Schedules operations of the first two tasks that use the table, numbered in the order of their first operations. Later
/// tasks are free. The bits of `order` are the numbers of the tasks of the operations.
pub(crate) fn schedule(simulation: &Simulation, order: u32, operations: usize) -> Arc<Mutex<TableSchedule>> {
    let order = (0..operations).map(|turn| (order >> turn & 1) as usize).collect();
    let scheduled = Arc::new(Mutex::new(TableSchedule { order, ..TableSchedule::default() }));
    let (runtime, schedule) = (simulation.runtime.clone(), Arc::clone(&scheduled));
    simulation.table.set_gate(Arc::new(move |_: TableAccess| {
        let (runtime, schedule) = (runtime.clone(), Arc::clone(&schedule));
        async move {
            let task = runtime.current();
            loop {
                {
                    let mut state = lock(&schedule);
                    let me = match state.known.iter().position(|known| *known == task) {
                        Some(me) => me,
                        None if state.known.len() < 2 => {
                            state.known.push(task);
                            state.known.len() - 1
                        }
                        None => return WriteFate::Proceed,
                    };
                    let Some(&next) = state.order.front() else { return WriteFate::Proceed };
                    if next == me || state.waited >= MAX_WAIT_MS {
                        state.order.pop_front();
                        state.waited = 0;
                        if next != me {
                            continue;
                        }
                        state.followed += 1;
                        return WriteFate::Proceed;
                    }
                    state.waited += 1;
                }
                runtime.sleep(1).await;
            }
        }
    }));
    scheduled
}
