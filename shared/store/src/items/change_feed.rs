//! The feed of changed targets as a value.

use ebb_protocol::engine::Timestamp;
use serde::{Deserialize, Serialize};

/// The last changes of targets. They are numbered from 1, and written only while a reader watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeFeed {
    /// The number of the last change. 0 before the first one.
    pub last: u64,
    /// Changes are written until this time.
    pub watched: Timestamp,
    /// The start of the present watch. Changes before it were not written.
    pub begun: Timestamp,
    pub ring: ChangeRing,
}

/// The targets of the changes after one number, up to another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRing {
    pub after: u64,
    pub last: u64,
    /// The number of the last change of each target, and the target as `KIND/NAME`. Ordered by number.
    pub changes: Vec<(u64, String)>,
}

impl ChangeFeed {
    /// Maximum targets of a ring.
    pub const MAX_TARGETS: usize = 64;
    /// Maximum bytes of a ring as JSON. The item then has less than 1 KiB, so that a change costs one write unit.
    pub const MAX_BYTES: usize = 900;

    /// Returns the targets that have changed after the change `since`, or `None` if they are not known.
    pub fn since(&self, since: u64) -> Option<Vec<&str>> {
        if since == self.last {
            return Some(Vec::new());
        }
        // A change without a place in the ring has raised the last number.
        let is_known = self.ring.last == self.last && (self.ring.after..self.last).contains(&since);
        let later = self.ring.changes.iter().filter(|(number, _)| *number > since);
        is_known.then(|| later.map(|(_, target)| target.as_str()).collect())
    }

    /// Returns the feed with one more change of each target, as `KIND/NAME`.
    pub fn with(&self, targets: &[&str]) -> Self {
        targets.iter().fold(self.clone(), |feed, target| {
            let ring = feed.ring_with(target);
            Self { last: ring.last, ring, ..feed }
        })
    }

    /// Returns the ring with one more change. Its `last` is the number of that change.
    fn ring_with(&self, target: &str) -> ChangeRing {
        let mut ring = match self.ring.last == self.last {
            true => self.ring.clone(),
            false => ChangeRing { after: self.last, ..ChangeRing::default() },
        };
        ring.last = self.last.saturating_add(1);
        ring.changes.retain(|(_, known)| known != target);
        ring.changes.push((ring.last, target.to_owned()));
        let bytes = |ring: &ChangeRing| serde_json::to_vec(ring).map_or(0, |json| json.len());
        while !ring.changes.is_empty() && (ring.changes.len() > Self::MAX_TARGETS || bytes(&ring) > Self::MAX_BYTES) {
            ring.after = ring.changes.remove(0).0;
        }
        ring
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(names: impl IntoIterator<Item = String>) -> ChangeFeed {
        let names: Vec<String> = names.into_iter().map(|name| format!("sandbox/{name}")).collect();
        ChangeFeed::default().with(&names.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn a_target_is_named_once_by_its_last_change() {
        let feed = feed(["a", "b", "a"].map(str::to_owned));
        assert_eq!(feed.since(0), Some(vec!["sandbox/b", "sandbox/a"]));
        assert_eq!(feed.since(2), Some(vec!["sandbox/a"]));
        assert_eq!((feed.since(3), feed.since(4)), (Some(vec![]), None));
        // A watch that begins, or a change that found no place in the ring, raises the number.
        let later = ChangeFeed { last: 4, ..feed };
        assert_eq!((later.since(3), later.since(4)), (None, Some(vec![])));
        let next = later.with(&["sandbox/c"]);
        assert_eq!((next.since(3), next.since(4)), (None, Some(vec!["sandbox/c"])));
    }

    #[test]
    fn a_ring_has_a_bounded_size() {
        for (name, most) in
            [("x", 64), ("a-preview-of-a-pull-request", 30), (&"n".repeat(300), 3), (&"\"".repeat(300), 1)]
        {
            let feed = feed((0..500).map(|number| format!("{name}{number}")));
            let kept = feed.ring.changes.len();
            assert!((1..=most).contains(&kept), "{kept} of {name}");
            assert!(serde_json::to_vec(&feed.ring).unwrap().len() <= ChangeFeed::MAX_BYTES);
            assert_eq!(feed.since(feed.ring.after).map(|targets| targets.len()), Some(kept));
            assert_eq!(feed.since(feed.ring.after - 1), None);
        }
    }
}
