//! Judges a complete observation of what exists at a sender: which targets of a source are missing, and which may end.

use std::collections::{BTreeMap, BTreeSet};

use ebb_protocol::{Millis, Timestamp};
use ebb_store::{MissingTarget, TargetHead};

/// A target that begins shortly before an observation may be missing in it.
const MIN_AGE: Millis = Millis(5 * 60 * 1000);
/// The missing targets that no guard refuses if each one is confirmed.
const ALWAYS: u64 = 10;
/// Maximum targets whose absence is remembered. The rest is found by later observations.
pub(super) const MAX_MISSING: usize = 5_000;

/// What is known at the end of an observation.
pub(super) struct Observation<'a> {
    pub(super) begun: Timestamp,
    pub(super) now: Timestamp,
    /// The number of living targets that the lists are about.
    pub(super) covered: u64,
    /// The percentage of them that may be missing at once.
    pub(super) shrink: u64,
    pub(super) grace: Millis,
    /// True if the thing of each target is asked for before its deletion.
    pub(super) is_confirmed: bool,
    /// True if an observation has had a living target of the source.
    pub(super) has_shown: bool,
    /// The UIDs whose deletion a person has asked for.
    pub(super) accepted: &'a BTreeSet<String>,
}

/// The targets that are missing now, and of these the ones that may end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ObservedDrift {
    pub(super) missing: Vec<MissingTarget>,
    pub(super) ended: Vec<MissingTarget>,
}

impl Observation<'_> {
    /// Compares the targets that are absent from the lists, each with the version of its desired state, with those that earlier
    /// observations lacked.
    ///
    /// # Errors
    /// Returns the reason why the observation is refused, with the missing targets. It changes nothing then.
    pub(super) fn judge(
        &self,
        absent: &[(TargetHead, u64)],
        before: &[MissingTarget],
    ) -> Result<ObservedDrift, (String, Vec<MissingTarget>)> {
        let is_old = |target: &TargetHead| target.created.plus(MIN_AGE) < self.begun;
        let absent = absent.iter().filter(|(target, _)| is_old(target));
        let (asked, others): (Vec<_>, Vec<_>) = absent.partition(|(target, _)| self.accepted.contains(&target.uid));
        let (unasked, covered) = (others.len() as u64, self.covered);
        let share = self.covered * self.shrink / 100;
        let most = share.max(if self.is_confirmed { ALWAYS } else { 1 });
        let known = before.iter().map(|one| ((&one.kind, &one.name, &one.uid, one.version), one.first));
        let known: BTreeMap<_, Timestamp> = known.collect();
        let first = |target: &TargetHead, version| {
            known.get(&(&target.kind, &target.name, &target.uid, version)).copied().unwrap_or(self.begun)
        };
        let refused = match () {
            () if unasked > 0 && !self.has_shown => {
                Some("the lists have not shown a target of the source yet; nothing is deleted".to_owned())
            }
            () if unasked > most => Some(format!(
                "{unasked} of {covered} targets are missing, and at most {most} may be; nothing is deleted"
            )),
            () => None,
        };
        // A person can ask for the others next.
        let ordered = if refused.is_some() { [others, asked] } else { [asked, others] };
        let missing = ordered.into_iter().flatten().take(MAX_MISSING).map(|(target, version)| MissingTarget {
            kind: target.kind.clone(),
            name: target.name.clone(),
            uid: target.uid.clone(),
            version: *version,
            first: first(target, *version),
        });
        let missing: Vec<MissingTarget> = missing.collect();
        if let Some(why) = refused {
            return Err((why, missing));
        }
        let may_end = |one: &&MissingTarget| {
            let is_asked = self.accepted.contains(&one.uid);
            one.first < self.begun && (is_asked || one.first.plus(self.grace) <= self.begun)
        };
        let ended = missing.iter().filter(may_end).cloned().collect();
        Ok(ObservedDrift { missing, ended })
    }

    /// Returns the time of the next observation: earlier than usual if a missing target waits for it.
    pub(super) fn next(&self, every: Millis, missing: &[MissingTarget]) -> Timestamp {
        let is_due = |one: &MissingTarget| one.first == self.begun && self.accepted.contains(&one.uid);
        let usual = if missing.iter().any(is_due) { self.now } else { self.begun.plus(every) };
        let waiting = missing.iter().map(|one| one.first.plus(self.grace)).filter(|at| *at > self.now).min();
        waiting.map_or(usual, |at| at.min(usual)).max(self.now.plus(Millis(60_000)))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, default)]
    #[derive(Default)]
    struct Row {
        /// The UIDs of absent targets, with the versions of their desired states.
        absent: Vec<(String, u64)>,
        /// The UIDs, versions and times of those that were missing before.
        before: Vec<(String, u64, u64)>,
        covered: u64,
        confirmed: bool,
        accepted: BTreeSet<String>,
        /// The UIDs and times of missing ones, and the UIDs of those that end.
        missing: Vec<(String, u64)>,
        ended: Vec<String>,
        refused: bool,
        unshown: bool,
    }

    /// Each row has an observation that began at minute 60, with a grace of 10 minutes and a share of 20 %.
    #[test]
    fn two_observations_end_a_target() {
        let rows: Vec<Row> = serde_json::from_str(include_str!("../../tests/drift.json")).unwrap();
        let minute = |at: u64| Timestamp(at * 60_000);
        for (number, row) in rows.into_iter().enumerate() {
            let head = |uid: &str| TargetHead { uid: uid.to_owned(), name: uid.to_owned(), ..TargetHead::default() };
            let absent: Vec<_> = row.absent.iter().map(|(uid, version)| (head(uid), *version)).collect();
            let before = row.before.iter().map(|(uid, version, first)| MissingTarget {
                kind: String::new(),
                name: uid.clone(),
                uid: uid.clone(),
                version: *version,
                first: minute(*first),
            });
            let observation = Observation {
                begun: minute(60),
                now: minute(61),
                covered: row.covered,
                shrink: 20,
                grace: Millis(600_000),
                is_confirmed: row.confirmed,
                has_shown: !row.unshown,
                accepted: &row.accepted,
            };
            let found = observation.judge(&absent, &before.collect::<Vec<_>>());
            assert_eq!(found.is_err(), row.refused, "{number}");
            let ObservedDrift { missing, ended } = found.unwrap_or_default();
            let missing: Vec<_> = missing.into_iter().map(|one| (one.uid, one.first.0 / 60_000)).collect();
            let ended: Vec<_> = ended.into_iter().map(|one| one.uid).collect();
            assert_eq!((missing, ended), (row.missing, row.ended), "{number}");
        }
    }
}
