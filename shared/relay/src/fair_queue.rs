//! Whose turn it is: at most so many works run containers at one time, and the lives among those that wait take turns.
//!
//! What is here can be forgotten: which works have a place follows from their records, and so does who waits, since when.

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebb_protocol::relay::{SecretDocument, TaskId};
use k8s_openapi::api::core::v1::Pod;

use crate::error::{ClusterError, status};
use crate::relay::Reconciler;
use crate::store::{VersionedRecord, now_ms};
use crate::wait_container::is_stuck;

/// Who has a place and who waits for one.
pub(crate) struct FairQueue {
    max_slots: NonZeroUsize,
    known: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    holders: HashSet<TaskId>,
    /// These wait, in their order within each life. The first life has the next turn.
    instances: VecDeque<(String, VecDeque<TaskId>)>,
}

/// Whether a work may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotGrant {
    Granted,
    Queued,
}

impl FairQueue {
    /// With `placed` those that may run, however many, and `waiting` those that wait, each with its life, in their order.
    pub(crate) fn new(
        max_slots: NonZeroUsize,
        placed: impl IntoIterator<Item = TaskId>,
        waiting: impl IntoIterator<Item = (TaskId, String)>,
    ) -> Self {
        let mut known = QueueState { holders: placed.into_iter().collect(), instances: VecDeque::new() };
        for (name, life) in waiting {
            known.enqueue(&name, &life);
        }
        known.assign_slots(max_slots);
        Self { max_slots, known: Mutex::new(known) }
    }

    /// A work that would begin gets a place, or waits from now on unless it does already.
    pub(crate) fn acquire(&self, name: &TaskId, life: &str) -> SlotGrant {
        let mut known = self.known();
        if !known.holders.contains(name) {
            known.enqueue(name, life);
            known.assign_slots(self.max_slots);
        }
        if known.holders.contains(name) { SlotGrant::Granted } else { SlotGrant::Queued }
    }

    /// A work has a place, whatever the limit: its record says so.
    pub(crate) fn force_acquire(&self, name: &TaskId) {
        let mut known = self.known();
        if known.holders.insert(name.clone()) {
            known.dequeue(name);
        }
    }

    /// Whether a work has a place.
    pub(crate) fn has_slot(&self, name: &TaskId) -> bool {
        self.known().holders.contains(name)
    }

    /// A work needs no place any more. Gives those whose turn it is now.
    pub(crate) fn release(&self, name: &TaskId) -> Vec<TaskId> {
        let mut known = self.known();
        if !known.holders.remove(name) {
            known.dequeue(name);
        }
        known.assign_slots(self.max_slots)
    }

    /// A work leaves the queue, if it is in it.
    pub(crate) fn dequeue(&self, name: &TaskId) {
        self.known().dequeue(name);
    }

    /// How many get their turn before this one; `None`: it does not wait.
    pub(crate) fn position(&self, name: &TaskId) -> Option<usize> {
        let known = self.known();
        let of = |names: &VecDeque<TaskId>| names.iter().position(|it| it == name);
        let (own, position) =
            known.instances.iter().enumerate().find_map(|(life, (_, names))| Some((life, of(names)?)))?;
        // In each round that comes before its own one of each life; in its own, those of the lives in front.
        let of_life = |(life, (_, names)): (usize, &(String, VecDeque<TaskId>))| {
            names.len().min(position + usize::from(life < own))
        };
        Some(known.instances.iter().enumerate().map(of_life).sum())
    }

    /// How many have a place, and how many wait.
    pub(crate) fn count(&self) -> (usize, usize) {
        let known = self.known();
        (known.holders.len(), known.instances.iter().map(|(_, names)| names.len()).sum())
    }

    fn known(&self) -> MutexGuard<'_, QueueState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn enqueue(&mut self, name: &TaskId, life: &str) {
        match self.instances.iter_mut().find(|(of, _)| of == life) {
            Some((_, names)) if names.contains(name) => {}
            Some((_, names)) => names.push_back(name.clone()),
            None => self.instances.push_back((life.to_owned(), VecDeque::from([name.clone()]))),
        }
    }

    fn dequeue(&mut self, name: &TaskId) {
        for (_, names) in &mut self.instances {
            names.retain(|it| it != name);
        }
        self.instances.retain(|(_, names)| !names.is_empty());
    }

    /// Gives places as long as there are any; each life gets one, and then comes last.
    fn assign_slots(&mut self, most: NonZeroUsize) -> Vec<TaskId> {
        let mut next = Vec::new();
        while self.holders.len() < most.get()
            && let Some((life, mut names)) = self.instances.pop_front()
        {
            if let Some(name) = names.pop_front() {
                self.holders.insert(name.clone());
                next.push(name);
            }
            if !names.is_empty() {
                self.instances.push_back((life, names));
            }
        }
        next
    }
}

impl Reconciler {
    /// Whether a work that starts may apply something. If not, what it was given is written down until it may: nobody
    /// sends it again. Its time runs from its turn on.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(crate) async fn acquire_slot(
        &self,
        held: &mut VersionedRecord,
        documents: &[SecretDocument],
    ) -> Result<bool, ClusterError> {
        if !held.record.is_queued() {
            return Ok(true);
        }
        let Some(work) = &mut held.record.spec else { return Ok(true) };
        if self.queue.acquire(&held.record.name, &work.objects.instance) == SlotGrant::Queued {
            self.save_queued_documents(held, documents).await?;
            return Ok(false);
        }
        work.start_clock(now_ms());
        self.store.save(held).await?;
        Ok(true)
    }

    /// Writes down the documents of a work that cannot begin yet, unless they are.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) async fn save_queued_documents(
        &self,
        held: &mut VersionedRecord,
        documents: &[SecretDocument],
    ) -> Result<(), ClusterError> {
        if held.document_parts == 0 && !documents.is_empty() {
            self.store.save_documents(held, documents).await?;
        }
        Ok(())
    }

    /// Gives away the place of a work that needs none any more, or takes it out of those that wait.
    pub(crate) fn release_slot(self: &Arc<Self>, name: &TaskId) {
        for next in self.queue.release(name) {
            self.reconcile(&next);
        }
    }

    /// Gives away the place of a work that has a result, once none of its containers runs.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn release_slot_once_over(
        self: &Arc<Self>,
        held: &VersionedRecord,
    ) -> Result<(), ClusterError> {
        let name = &held.record.name;
        let Some(work) = held.record.spec.as_ref().filter(|_| self.queue.has_slot(name)) else {
            return Ok(());
        };
        let namespace = work.manifests().next().and_then(|job| job.object_ref.namespace.as_deref());
        if let Some(kind) = self.discovery.find(&self.client, "v1", "Pod").await? {
            self.watch(&kind, Some(namespace.unwrap_or(&work.namespace)));
        }
        let pods = match self.pods(work).await {
            // The namespace is gone, and the rights in it: the relay neither sees nor starts anything there.
            Err(ClusterError::Api(error)) if matches!(status(&error), Some(403 | 404)) => Vec::new(),
            pods => pods?,
        };
        if pods.iter().all(|pod| is_over(pod) || is_stuck(pod)) {
            self.release_slot(name);
        }
        Ok(())
    }
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TaskId {
        TaskId { unit: text.to_owned(), attempt: 1 }
    }

    /// The first letter of a name is its life.
    fn turns(most: usize, placed: &[&str], waiting: &[&str]) -> FairQueue {
        let waiting = waiting.iter().map(|text| (name(text), text[..1].to_owned()));
        FairQueue::new(NonZeroUsize::new(most).unwrap(), placed.iter().map(|text| name(text)), waiting)
    }

    fn units(names: Vec<TaskId>) -> Vec<String> {
        names.into_iter().map(|name| name.unit).collect()
    }

    #[test]
    fn lives_take_turns_and_each_keeps_its_order() {
        for (waiting, expected) in [
            (&["a1", "a2", "a3", "a4"][..], &["a1", "a2", "a3", "a4"][..]),
            (&["a1", "a2", "a3", "a4", "b1", "b2"], &["a1", "b1", "a2", "b2", "a3", "a4"]),
            (&["a1", "b1", "c1", "c2", "b2", "b3"], &["a1", "b1", "c1", "b2", "c2", "b3"]),
        ] {
            let turns = turns(1, &["x1"], waiting);
            let before: Vec<_> = expected.iter().map(|text| turns.position(&name(text))).collect();
            assert_eq!(before, (0..expected.len()).map(Some).collect::<Vec<_>>(), "{waiting:?}");
            let (mut runs, mut order) = (name("x1"), Vec::new());
            while let [next] = &turns.release(&runs)[..] {
                assert_eq!(turns.count(), (1, waiting.len() - order.len() - 1));
                runs = next.clone();
                order.push(runs.unit.clone());
            }
            assert_eq!(order, expected);
        }
    }

    #[test]
    fn places_are_as_many_as_may_be() {
        let turns = turns(2, &[], &["a1", "a2", "a3", "b1"]);
        assert!(turns.has_slot(&name("a1")) && turns.has_slot(&name("b1")) && turns.count() == (2, 2));
        assert_eq!(turns.acquire(&name("b1"), "b"), SlotGrant::Granted);
        // Whoever comes again keeps its place among those that wait.
        for _ in 0..2 {
            assert_eq!(turns.acquire(&name("b2"), "b"), SlotGrant::Queued);
        }
        assert_eq!((turns.position(&name("b2")), turns.count()), (Some(1), (2, 3)));
        // One that was cancelled, and one that runs although nobody here has let it.
        assert_eq!(units(turns.release(&name("a2"))), [""; 0]);
        turns.force_acquire(&name("b2"));
        assert_eq!((turns.count(), turns.position(&name("b2"))), ((3, 1), None));
        assert_eq!(units(turns.release(&name("a1"))), [""; 0]);
        assert_eq!(units(turns.release(&name("b2"))), ["a3"]);
        assert_eq!(units(turns.release(&name("nobody"))), [""; 0]);
        assert_eq!(turns.acquire(&name("c1"), "c"), SlotGrant::Queued);
    }

    #[test]
    fn more_than_may_be_run_before_the_limit_was_lowered() {
        let turns = turns(1, &["a1", "a2", "a3"], &["b1"]);
        let left = ["a1", "a2", "a3"].map(|text| units(turns.release(&name(text))));
        assert_eq!(left, [vec![], vec![], vec!["b1".to_owned()]]);
    }
}
