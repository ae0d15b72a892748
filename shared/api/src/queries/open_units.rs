//! Says what the units of a run do or wait for that have not ended, and groups those that are alike.

use std::collections::{BTreeMap, HashMap};

use ebb_protocol::{OpenUnits, RunDetail, RunState, UnitDetail, UnitState, UnitWait, WaitResolution, words};

/// Maximum groups in an answer.
const GROUPS: usize = 20;
/// Maximum units that a group names.
const NAMED: usize = 10;
/// The reason of a unit whose time of the next request is known.
const SCHEDULED: &str = "its next request is scheduled";

/// The activity or the wait of a unit that has not ended.
pub(super) struct OpenReason {
    pub(super) text: String,
    pub(super) since: Option<String>,
    fails_at: Option<String>,
    /// The time of the next request.
    next: Option<String>,
    resolves: WaitResolution,
}

pub(super) struct OpenRun<'a> {
    run: &'a RunDetail,
    units: HashMap<&'a str, &'a UnitDetail>,
}

impl<'a> OpenRun<'a> {
    pub(super) fn new(run: &'a RunDetail) -> Self {
        Self { run, units: run.units.iter().map(|unit| (unit.key.as_str(), unit)).collect() }
    }

    /// Returns the reasons of a unit that has not ended: one for each wait. Returns nothing for another unit.
    pub(super) fn reasons(&self, unit: &UnitDetail) -> Vec<OpenReason> {
        let own = |text: String, since: Option<String>| {
            let fails_at = unit.deadline.clone();
            let next = unit.next.clone().filter(|_| text == SCHEDULED);
            vec![OpenReason { text, since, fails_at, next, resolves: WaitResolution::Itself }]
        };
        match unit.state {
            UnitState::Running if !unit.waits.is_empty() => {
                unit.waits.iter().map(|wait| self.wait(unit, wait)).collect()
            }
            UnitState::Running => {
                let text = match (&unit.accepted, &unit.next, &unit.progress) {
                    (Some(_), ..) => "its request was accepted (202); it waits for the callback".to_owned(),
                    (None, Some(_), Some(wait)) if unit.started.is_none() => words::one_line(wait),
                    (None, Some(_), _) => SCHEDULED.to_owned(),
                    // A note of a wait ends with its own time.
                    (None, None, Some(progress)) => {
                        let dated = progress.rsplit_once(", since ").filter(|(_, at)| at.ends_with('Z'));
                        format!("runs: {}", words::one_line(dated.map_or(progress, |(note, _)| note)))
                    }
                    (None, None, None) => "runs".to_owned(),
                };
                own(text, unit.accepted.clone().or_else(|| self.begun(unit)))
            }
            UnitState::Retrying => {
                let why = unit.reason.as_ref().map_or("it failed", |reason| reason.message.as_str());
                let failed = unit.earlier_attempts.last().and_then(|attempt| attempt.ended.clone());
                own(format!("waits for its next attempt after: {}", words::one_line(why)), failed)
            }
            UnitState::Cancelled if unit.ended.is_none() => {
                own("was cancelled and may still be active".to_owned(), self.begun(unit))
            }
            UnitState::Waiting => own(self.awaited(unit), Some(self.run.started.clone())),
            UnitState::Succeeded
            | UnitState::Skipped
            | UnitState::Failed
            | UnitState::Blocked
            | UnitState::Cancelled => Vec::new(),
        }
    }

    fn wait(&self, unit: &UnitDetail, wait: &UnitWait) -> OpenReason {
        let UnitWait { object, message, since, fails_at, resolves, .. } = wait;
        OpenReason {
            text: format!("{object}: {}", words::one_line(message)),
            since: since.clone().or_else(|| self.begun(unit)),
            fails_at: fails_at.clone().or_else(|| unit.deadline.clone()),
            next: None,
            resolves: *resolves,
        }
    }

    /// Returns the start of a unit, or else the time at which the last unit before it ended. A further attempt begins later,
    /// at a time that is not known before its start.
    fn begun(&self, unit: &UnitDetail) -> Option<String> {
        let ready = || {
            let before = unit.after.iter().filter_map(|key| self.units.get(key.as_str()));
            let ended: Option<Vec<&String>> = before.map(|before| before.ended.as_ref()).collect();
            Some(ended?.into_iter().max().unwrap_or(&self.run.started).clone())
        };
        unit.started.clone().or_else(|| if unit.attempt == 1 { ready() } else { None })
    }

    /// Names the units that a waiting unit depends on and that have not succeeded.
    fn awaited(&self, unit: &UnitDetail) -> String {
        let is_done = |key: &&String| {
            let before = self.units.get(key.as_str());
            before.is_some_and(|before| before.lets_pass())
        };
        let keys: Vec<&str> = unit.after.iter().filter(|key| !is_done(key)).map(String::as_str).collect();
        match keys.len() {
            0 => "is about to be dispatched".to_owned(),
            count => format!("waits for {}", words::named(&keys, count)),
        }
    }
}

/// Returns the open units of a run in groups, those that a person has to help first, and the number of these units.
pub(super) fn groups(run: &RunDetail) -> (Vec<OpenUnits>, usize) {
    if !matches!(run.state, RunState::Running | RunState::Cancelling) {
        return (Vec::new(), 0);
    }
    let open = OpenRun::new(run);
    let mut groups: Vec<(OpenUnits, &str, Option<String>)> = Vec::new();
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = 0;
    for unit in &run.units {
        let reasons = open.reasons(unit);
        count += usize::from(!reasons.is_empty());
        for OpenReason { text, since, fails_at, next, resolves } in reasons {
            let position = *positions.entry(format!("{:?} {resolves:?} {text}", unit.state)).or_insert(groups.len());
            let Some((group, last, due)) = groups.get_mut(position) else {
                let units = vec![unit.key.clone()];
                let group = OpenUnits { units, count: 1, state: unit.state, reason: text, since, fails_at, resolves };
                groups.push((group, unit.key.as_str(), next));
                continue;
            };
            *due = earliest(due.take(), next);
            group.since = earliest(group.since.take(), since);
            group.fails_at = earliest(group.fails_at.take(), fails_at);
            if *last != unit.key {
                *last = unit.key.as_str();
                group.count += 1;
                if group.units.len() < NAMED {
                    group.units.push(unit.key.clone());
                }
            }
        }
    }
    let with_time = |(mut group, _, due): (OpenUnits, &str, Option<String>)| {
        group.reason += &due.map(|at| format!(" for {at}")).unwrap_or_default();
        group
    };
    let mut groups: Vec<OpenUnits> = groups.into_iter().map(with_time).collect();
    groups.sort_by_key(|group| match (group.resolves, group.state) {
        (WaitResolution::Person | WaitResolution::Never, _) => 0,
        (WaitResolution::Itself, UnitState::Running) => 1,
        (WaitResolution::Itself, UnitState::Retrying) => 2,
        (WaitResolution::Itself, UnitState::Waiting) => 4,
        (WaitResolution::Itself, _) => 3,
    });
    groups.truncate(GROUPS);
    (groups, count)
}

/// Returns the first group of the open units of the last run.
pub(super) fn first(runs: &[RunDetail]) -> Option<OpenUnits> {
    let open = runs.iter().rev().find(|run| matches!(run.state, RunState::Running | RunState::Cancelling))?;
    groups(open).0.into_iter().next()
}

/// Returns the earlier one of two times in the form of the API, which are ordered as texts.
fn earliest(one: Option<String>, other: Option<String>) -> Option<String> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run(units: &Value) -> RunDetail {
        let mut units = units.clone();
        for unit in units.as_array_mut().unwrap() {
            let mut full = json!({"kind": "pod", "attempt": 1, "maxAttempts": 2, "attemptInSeries": 1});
            full.as_object_mut().unwrap().extend(unit.as_object().unwrap().clone());
            *unit = full;
        }
        let run =
            json!({"id": "k-1-pre-start", "hook": "preStart", "state": "running", "started": at(0), "units": units});
        serde_json::from_value(run).unwrap()
    }

    fn at(second: u32) -> String {
        format!("2026-11-21T09:00:{second:02}.000Z")
    }

    fn wait(object: &str, since: u32, resolves: &str) -> Value {
        json!([{"object": object, "code": "imagePull", "message": "m", "since": at(since), "resolves": resolves}])
    }

    #[test]
    fn every_open_unit_has_its_reason_and_since() {
        let file = include_str!("../../tests/open_units.yaml");
        let cases: Vec<(Value, Vec<OpenUnits>, usize)> = serde_saphyr::from_str(file).unwrap();
        let first = first(&[run(&cases[0].0)]);
        assert_eq!(first.map(|group| group.units), Some(vec!["b/blocked".to_owned()]));
        for (units, expected, count) in cases {
            assert_eq!(groups(&run(&units)), (expected, count), "{units}");
        }
    }

    #[test]
    fn units_that_wait_for_the_same_are_one_group() {
        let units: Vec<Value> = (0..200)
            .map(|number| {
                let waits = wait("queue of cluster eu", 59 - number % 50, "itself");
                json!({"unit": format!("r/unit-{number:03}"), "state": "running", "waits": waits})
            })
            .collect();
        let (groups, count) = groups(&run(&json!(units)));
        let [group] = groups.as_slice() else { panic!("{groups:?}") };
        assert_eq!((count, group.count, group.units.len()), (200, 200, NAMED));
        assert_eq!(group.since, Some(at(10)));
    }

    #[test]
    fn the_groups_are_limited_and_an_ended_run_has_none() {
        let units = (0..500).map(|number| {
            json!({"unit": format!("r/unit-{number}"), "state": "running", "waits": wait(&format!("Pod n/{number}"), 1, "itself")})
        });
        let mut run = run(&Value::Array(units.collect()));
        let (found, count) = groups(&run);
        assert_eq!((found.len(), count), (GROUPS, 500));
        run.state = RunState::Failed;
        assert_eq!(groups(&run), (Vec::new(), 0));
        assert_eq!(first(&[run]), None);
    }
}
