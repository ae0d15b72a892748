//! Checks the slots of plugins and connections with `maxConcurrent`: each attempt in progress has one, and there are no more.

use super::*;

/// The deadline of an attempt is before the end of its timeout at the server, by less than this.
const DISPATCH_MS: u64 = 20_000;

fn holder(one: &AttemptEntry) -> String {
    id::short_digest(&[one.run.as_str(), &one.unit.unit.to_string(), &one.attempt.to_string()], 16)
}

impl Ledger {
    /// Checks the slots of a unit, of which an attempt has begun. By any clock, no more than the cap are in use, and each
    /// attempt in progress has one of them. An attempt that its sender has given up has none.
    pub(super) fn check_slots(&self, unit: &SimUnit) {
        let now = self.runtime.now().0 + self.bounds.skew;
        for (kind, name, most) in self.caps(unit) {
            let mut held = self.table.slots(kind, &name);
            held.retain(|_, end| *end > now);
            if held.len() > most {
                self.report_violation(format!("{} of {most} slots of {kind} {name} are in use", held.len()));
            }
            let is_active = |one: &&AttemptEntry| one.over.is_none() && one.result.is_none();
            let active: Vec<AttemptEntry> = self.state().attempts.iter().filter(is_active).cloned().collect();
            let is_capped =
                |one: &AttemptEntry| self.caps(&one.unit).iter().any(|cap| (cap.0, &cap.1) == (kind, &name));
            for one in active.iter().filter(|one| is_capped(one) && !held.contains_key(&holder(one))) {
                if self.needs_slot(one) {
                    let what = format!("{} #{} acts without a slot of {kind} {name}", one.unit.name, one.attempt);
                    self.report_violation(what);
                }
            }
        }
    }

    /// Returns the kind, the name and the number of slots of what limits a unit.
    fn caps(&self, unit: &SimUnit) -> Vec<(&'static str, String, usize)> {
        let plugin = unit.plugin_slots.clone().map(|(name, slots)| ("plugin", name, slots));
        let connection = unit.plan.action.connection().filter(|connection| connection.is_capped);
        let slots = self.state().connection_slots;
        let connection = connection.and_then(|connection| Some(("connection", connection.name.clone(), slots?)));
        plugin.into_iter().chain(connection).collect()
    }

    /// Returns false if the end of an attempt is known, or its sender may have given it up.
    fn needs_slot(&self, one: &AttemptEntry) -> bool {
        let (unit, attempt) = (Unit(one.unit.unit), Attempt(one.attempt));
        let task = TaskId { unit: TaskId::unit_of(&one.run, unit), attempt: one.attempt };
        let deadline = one.began + one.unit.plan.timeout_ms;
        let is_late = self.runtime.elapsed() + self.bounds.skew + DISPATCH_MS >= deadline;
        // A duplicate of a refused request may begin later.
        let is_refused = self.state().refused_tasks.contains(&task);
        if is_late || is_refused || self.is_given_up(one) || self.is_stopped(&one.run) {
            return false;
        }
        let table = self.table.state();
        let is_next =
            table.head(&one.run).is_some_and(|head| head.attempt(unit) <= attempt && !head.done.contains(&unit));
        let key = (one.run.clone(), unit, attempt);
        is_next && table.find(|table| table.records.get(&key)).is_none_or(|record| record.result.is_none())
    }
}
