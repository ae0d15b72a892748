//! Whose turn it is: at most so many works run containers at one time, and the lives among those that wait take turns.
//!
//! What is here can be forgotten: which works have a place follows from their records, and so does who waits, since when.

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebb_wire::relay::{SecretDocument, WorkName};
use k8s_openapi::api::core::v1::Pod;

use crate::ended::is_stuck;
use crate::error::{Error, status};
use crate::relay::Inner;
use crate::store::{Held, now_ms};

/// Who has a place and who waits for one.
pub(crate) struct Turns {
    most: NonZeroUsize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    placed: HashSet<WorkName>,
    /// These wait, in their order within each life. The first life has the next turn.
    lives: VecDeque<(String, VecDeque<WorkName>)>,
}

/// Whether a work may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Has,
    Waits,
}

impl Turns {
    /// With `placed` those that may run, however many, and `waiting` those that wait, each with its life, in their order.
    pub(crate) fn new(
        most: NonZeroUsize,
        placed: impl IntoIterator<Item = WorkName>,
        waiting: impl IntoIterator<Item = (WorkName, String)>,
    ) -> Self {
        let mut known = Known { placed: placed.into_iter().collect(), lives: VecDeque::new() };
        for (name, life) in waiting {
            known.queue(&name, &life);
        }
        known.hand_out(most);
        Self { most, known: Mutex::new(known) }
    }

    /// A work that would begin gets a place, or waits from now on unless it does already.
    pub(crate) fn enter(&self, name: &WorkName, life: &str) -> Turn {
        let mut known = self.known();
        if !known.placed.contains(name) {
            known.queue(name, life);
            known.hand_out(self.most);
        }
        if known.placed.contains(name) { Turn::Has } else { Turn::Waits }
    }

    /// A work has a place, whatever the limit: its record says so.
    pub(crate) fn hold(&self, name: &WorkName) {
        let mut known = self.known();
        if known.placed.insert(name.clone()) {
            known.withdraw(name);
        }
    }

    /// Whether a work has a place.
    pub(crate) fn holds(&self, name: &WorkName) -> bool {
        self.known().placed.contains(name)
    }

    /// A work needs no place any more. Gives those whose turn it is now.
    pub(crate) fn leave(&self, name: &WorkName) -> Vec<WorkName> {
        let mut known = self.known();
        if !known.placed.remove(name) {
            known.withdraw(name);
        }
        known.hand_out(self.most)
    }

    /// A work leaves the queue, if it is in it.
    pub(crate) fn withdraw(&self, name: &WorkName) {
        self.known().withdraw(name);
    }

    /// How many get their turn before this one; `None`: it does not wait.
    pub(crate) fn before(&self, name: &WorkName) -> Option<usize> {
        let known = self.known();
        let of = |names: &VecDeque<WorkName>| names.iter().position(|it| it == name);
        let (own, position) =
            known.lives.iter().enumerate().find_map(|(life, (_, names))| Some((life, of(names)?)))?;
        // In each round that comes before its own one of each life; in its own, those of the lives in front.
        let of_life = |(life, (_, names)): (usize, &(String, VecDeque<WorkName>))| {
            names.len().min(position + usize::from(life < own))
        };
        Some(known.lives.iter().enumerate().map(of_life).sum())
    }

    /// How many have a place, and how many wait.
    pub(crate) fn count(&self) -> (usize, usize) {
        let known = self.known();
        (known.placed.len(), known.lives.iter().map(|(_, names)| names.len()).sum())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn queue(&mut self, name: &WorkName, life: &str) {
        match self.lives.iter_mut().find(|(of, _)| of == life) {
            Some((_, names)) if names.contains(name) => {}
            Some((_, names)) => names.push_back(name.clone()),
            None => self.lives.push_back((life.to_owned(), VecDeque::from([name.clone()]))),
        }
    }

    fn withdraw(&mut self, name: &WorkName) {
        for (_, names) in &mut self.lives {
            names.retain(|it| it != name);
        }
        self.lives.retain(|(_, names)| !names.is_empty());
    }

    /// Gives places as long as there are any; each life gets one, and then comes last.
    fn hand_out(&mut self, most: NonZeroUsize) -> Vec<WorkName> {
        let mut next = Vec::new();
        while self.placed.len() < most.get()
            && let Some((life, mut names)) = self.lives.pop_front()
        {
            if let Some(name) = names.pop_front() {
                self.placed.insert(name.clone());
                next.push(name);
            }
            if !names.is_empty() {
                self.lives.push_back((life, names));
            }
        }
        next
    }
}

impl Inner {
    /// Whether a work that starts may apply something. If not, what it was given is written down until it may: nobody
    /// sends it again. Its time runs from its turn on.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(crate) async fn has_turn(
        &self,
        held: &mut Held,
        documents: &[SecretDocument],
    ) -> Result<bool, Error> {
        if !held.record.waits() {
            return Ok(true);
        }
        let Some(work) = &mut held.record.work else { return Ok(true) };
        if self.turns.enter(&held.record.name, &work.objects.life) == Turn::Waits {
            self.keep_documents(held, documents).await?;
            return Ok(false);
        }
        work.begin(now_ms());
        self.store.save(held).await?;
        Ok(true)
    }

    /// Writes down the documents of a work that cannot begin yet, unless they are.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) async fn keep_documents(
        &self,
        held: &mut Held,
        documents: &[SecretDocument],
    ) -> Result<(), Error> {
        if held.documents == 0 && !documents.is_empty() {
            self.store.keep_documents(held, documents).await?;
        }
        Ok(())
    }

    /// Gives away the place of a work that needs none any more, or takes it out of those that wait.
    pub(crate) fn leave_place(self: &Arc<Self>, name: &WorkName) {
        for next in self.turns.leave(name) {
            self.attend(&next);
        }
    }

    /// Gives away the place of a work that has a result, once none of its containers runs.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(crate) async fn leave_place_once_over(self: &Arc<Self>, held: &Held) -> Result<(), Error> {
        let name = &held.record.name;
        let Some(work) = held.record.work.as_ref().filter(|_| self.turns.holds(name)) else { return Ok(()) };
        let namespace = work.manifests().next().and_then(|job| job.place.namespace.as_deref());
        if let Some(kind) = self.kinds.find(&self.client, "v1", "Pod").await? {
            self.watch(&kind, Some(namespace.unwrap_or(&work.namespace)));
        }
        let pods = match self.pods(work).await {
            // The namespace is gone, and the rights in it: the relay neither sees nor starts anything there.
            Err(Error::Cluster(error)) if matches!(status(&error), Some(403 | 404)) => Vec::new(),
            pods => pods?,
        };
        if pods.iter().all(|pod| is_over(pod) || is_stuck(pod)) {
            self.leave_place(name);
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

    fn name(text: &str) -> WorkName {
        WorkName { unit: text.to_owned(), attempt: 1 }
    }

    /// The first letter of a name is its life.
    fn turns(most: usize, placed: &[&str], waiting: &[&str]) -> Turns {
        let waiting = waiting.iter().map(|text| (name(text), text[..1].to_owned()));
        Turns::new(NonZeroUsize::new(most).unwrap(), placed.iter().map(|text| name(text)), waiting)
    }

    fn units(names: Vec<WorkName>) -> Vec<String> {
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
            let before: Vec<_> = expected.iter().map(|text| turns.before(&name(text))).collect();
            assert_eq!(before, (0..expected.len()).map(Some).collect::<Vec<_>>(), "{waiting:?}");
            let (mut runs, mut order) = (name("x1"), Vec::new());
            while let [next] = &turns.leave(&runs)[..] {
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
        assert!(turns.holds(&name("a1")) && turns.holds(&name("b1")) && turns.count() == (2, 2));
        assert_eq!(turns.enter(&name("b1"), "b"), Turn::Has);
        // Whoever comes again keeps its place among those that wait.
        for _ in 0..2 {
            assert_eq!(turns.enter(&name("b2"), "b"), Turn::Waits);
        }
        assert_eq!((turns.before(&name("b2")), turns.count()), (Some(1), (2, 3)));
        // One that was cancelled, and one that runs although nobody here has let it.
        assert_eq!(units(turns.leave(&name("a2"))), [""; 0]);
        turns.hold(&name("b2"));
        assert_eq!((turns.count(), turns.before(&name("b2"))), ((3, 1), None));
        assert_eq!(units(turns.leave(&name("a1"))), [""; 0]);
        assert_eq!(units(turns.leave(&name("b2"))), ["a3"]);
        assert_eq!(units(turns.leave(&name("nobody"))), [""; 0]);
        assert_eq!(turns.enter(&name("c1"), "c"), Turn::Waits);
    }

    #[test]
    fn more_than_may_be_run_before_the_limit_was_lowered() {
        let turns = turns(1, &["a1", "a2", "a3"], &["b1"]);
        let left = ["a1", "a2", "a3"].map(|text| units(turns.leave(&name(text))));
        assert_eq!(left, [vec![], vec![], vec!["b1".to_owned()]]);
    }
}
