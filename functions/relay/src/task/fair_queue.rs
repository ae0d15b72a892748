//! Slots for tasks with containers. At most `max_slots` tasks run containers. The others are queued, and instances take
//! turns.
//!
//! The state is not stored. The records contain the holders of slots and the start of each wait.

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Mutex;

use ebb_protocol::relay::TaskId;

use crate::lock::lock;

pub(crate) struct FairQueue {
    max_slots: NonZeroUsize,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    holders: HashSet<TaskId>,
    /// Queued tasks in order of arrival, by instance. The first instance gets the next slot.
    instances: VecDeque<(String, VecDeque<TaskId>)>,
}

impl FairQueue {
    /// Creates a queue. Tasks in `holders` have a slot even above the limit. Tasks in `queued` wait in their order.
    pub(crate) fn new(
        max_slots: NonZeroUsize,
        holders: impl IntoIterator<Item = TaskId>,
        queued: impl IntoIterator<Item = (TaskId, String)>,
    ) -> Self {
        let mut state = QueueState { holders: holders.into_iter().collect(), instances: VecDeque::new() };
        for (name, instance) in queued {
            state.enqueue(&name, &instance);
        }
        state.assign_slots(max_slots);
        Self { max_slots, state: Mutex::new(state) }
    }

    /// Assigns a slot to a task, or queues the task and returns false.
    pub(crate) fn acquire(&self, name: &TaskId, instance: &str) -> bool {
        let mut state = lock(&self.state);
        if !state.holders.contains(name) {
            state.enqueue(name, instance);
            state.assign_slots(self.max_slots);
        }
        state.holders.contains(name)
    }

    /// Assigns a slot even above the limit, because the record contains it.
    pub(crate) fn force_acquire(&self, name: &TaskId) {
        let mut state = lock(&self.state);
        if state.holders.insert(name.clone()) {
            state.dequeue(name);
        }
    }

    pub(crate) fn has_slot(&self, name: &TaskId) -> bool {
        lock(&self.state).holders.contains(name)
    }

    /// Releases the slot of a task. Returns the tasks that get a slot now.
    pub(crate) fn release(&self, name: &TaskId) -> Vec<TaskId> {
        let mut state = lock(&self.state);
        if !state.holders.remove(name) {
            state.dequeue(name);
        }
        state.assign_slots(self.max_slots)
    }

    pub(crate) fn dequeue(&self, name: &TaskId) {
        lock(&self.state).dequeue(name);
    }

    /// Returns the number of tasks that get a slot before this one, or `None` if it is not queued.
    pub(crate) fn position(&self, name: &TaskId) -> Option<usize> {
        let state = lock(&self.state);
        let of = |names: &VecDeque<TaskId>| names.iter().position(|it| it == name);
        let (own, position) =
            state.instances.iter().enumerate().find_map(|(instance, (_, names))| Some((instance, of(names)?)))?;
        // Each earlier round serves one task per instance. In the task's round, the instances ahead of its own precede.
        let of_instance = |(instance, (_, names)): (usize, &(String, VecDeque<TaskId>))| {
            names.len().min(position + usize::from(instance < own))
        };
        Some(state.instances.iter().enumerate().map(of_instance).sum())
    }

    /// Returns the number of tasks with a slot and of queued tasks.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.holders.len(), state.instances.iter().map(|(_, names)| names.len()).sum())
    }
}

impl QueueState {
    fn enqueue(&mut self, name: &TaskId, instance: &str) {
        match self.instances.iter_mut().find(|(of, _)| of == instance) {
            Some((_, names)) if names.contains(name) => {}
            Some((_, names)) => names.push_back(name.clone()),
            None => self.instances.push_back((instance.to_owned(), VecDeque::from([name.clone()]))),
        }
    }

    fn dequeue(&mut self, name: &TaskId) {
        for (_, names) in &mut self.instances {
            names.retain(|it| it != name);
        }
        self.instances.retain(|(_, names)| !names.is_empty());
    }

    /// Assigns free slots. After each slot, the instance moves to the end.
    fn assign_slots(&mut self, most: NonZeroUsize) -> Vec<TaskId> {
        let mut next = Vec::new();
        while self.holders.len() < most.get()
            && let Some((instance, mut names)) = self.instances.pop_front()
        {
            if let Some(name) = names.pop_front() {
                self.holders.insert(name.clone());
                next.push(name);
            }
            if !names.is_empty() {
                self.instances.push_back((instance, names));
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TaskId {
        TaskId { unit: text.to_owned(), attempt: 1 }
    }

    /// Returns a queue. The first letter of a name is its instance.
    fn queue(limit: usize, holders: &[&str], queued: &[&str]) -> FairQueue {
        let queued = queued.iter().map(|text| (name(text), text[..1].to_owned()));
        FairQueue::new(NonZeroUsize::new(limit).unwrap(), holders.iter().map(|text| name(text)), queued)
    }

    fn units(names: Vec<TaskId>) -> Vec<String> {
        names.into_iter().map(|name| name.unit).collect()
    }

    #[test]
    fn instances_get_slots_in_turn_and_each_keeps_its_order() {
        for (queued, expected) in [
            (&["a1", "a2", "a3", "a4"][..], &["a1", "a2", "a3", "a4"][..]),
            (&["a1", "a2", "a3", "a4", "b1", "b2"], &["a1", "b1", "a2", "b2", "a3", "a4"]),
            (&["a1", "b1", "c1", "c2", "b2", "b3"], &["a1", "b1", "c1", "b2", "c2", "b3"]),
        ] {
            let queue = queue(1, &["x1"], queued);
            let before: Vec<_> = expected.iter().map(|text| queue.position(&name(text))).collect();
            assert_eq!(before, (0..expected.len()).map(Some).collect::<Vec<_>>(), "{queued:?}");
            let (mut runs, mut order) = (name("x1"), Vec::new());
            while let [next] = &queue.release(&runs)[..] {
                assert_eq!(queue.count(), (1, queued.len() - order.len() - 1));
                runs = next.clone();
                order.push(runs.unit.clone());
            }
            assert_eq!(order, expected);
        }
    }

    #[test]
    fn slots_are_limited() {
        let queue = queue(2, &[], &["a1", "a2", "a3", "b1"]);
        assert!(queue.has_slot(&name("a1")) && queue.has_slot(&name("b1")) && queue.count() == (2, 2));
        assert!(queue.acquire(&name("b1"), "b"));
        // A repeated request keeps its position in the queue.
        for _ in 0..2 {
            assert!(!queue.acquire(&name("b2"), "b"));
        }
        assert_eq!((queue.position(&name("b2")), queue.count()), (Some(1), (2, 3)));
        // A queued task is cancelled, and another one runs without a free slot.
        assert_eq!(units(queue.release(&name("a2"))), [""; 0]);
        queue.force_acquire(&name("b2"));
        assert_eq!((queue.count(), queue.position(&name("b2"))), ((3, 1), None));
        assert_eq!(units(queue.release(&name("a1"))), [""; 0]);
        assert_eq!(units(queue.release(&name("b2"))), ["a3"]);
        assert_eq!(units(queue.release(&name("unknown"))), [""; 0]);
        assert!(!queue.acquire(&name("c1"), "c"));
        // Running tasks above a lowered limit.
        let queue = self::queue(1, &["a1", "a2", "a3"], &["b1"]);
        let started = ["a1", "a2", "a3"].map(|text| units(queue.release(&name(text))));
        assert_eq!(started, [vec![], vec![], vec!["b1".to_owned()]]);
    }
}
