//! `ebb logs --follow`: asks again and again for the tail of each log, and prints what is new in it.
//!
//! A tail has at most 256 KiB. As long as it begins before the end of the one that was seen last, no line is lost and
//! none is printed twice; when it does not, that is said. Only whole lines are printed before the log has ended.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ebb_protocol::api::{RunDetail, RunState, TargetDetail, TargetState, UnitDetail, UnitState};

use super::{LogsArgs, clean, heading};
use crate::client::{ApiClient, ApiClientError};
use crate::exit::{CliError, Exit};
use crate::output;
use crate::target::TargetRef;

const EVERY: Duration = Duration::from_millis(200);
/// A question that took long is asked again after so many times as long.
const SPARING: u32 = 3;
/// So many questions in a row may stay without answer: a server that restarts.
const PATIENCE: u32 = 25;

/// What has been printed of the logs of a target.
#[derive(Default)]
struct LogPrinter {
    units: BTreeMap<(String, String), UnitLog>,
    last: Option<(String, String, u32)>,
    /// The number of attempts that have a log.
    attempts_printed: usize,
    /// True if more than one unit is followed.
    several: bool,
}

/// The log of a unit.
struct UnitLog {
    /// The attempt that is being followed.
    attempt: u32,
    tail: LogPosition,
    is_over: bool,
}

impl LogsArgs {
    /// Prints until what was chosen is over.
    pub(super) async fn follow(&self, client: &ApiClient, target: &TargetRef) -> Result<Exit, CliError> {
        let mut printed = LogPrinter::default();
        let mut uid: Option<String> = None;
        let mut unanswered = 0;
        loop {
            let asked = Instant::now();
            match self.poll(client, target, &mut uid, &mut printed).await {
                Ok(FollowState::Again) => unanswered = 0,
                Ok(FollowState::Over(seen)) if printed.units.is_empty() && self.chosen(&seen).is_empty() => {
                    return Err(super::nothing_meant(target, &seen));
                }
                Ok(FollowState::Over(seen)) if printed.attempts_printed == 0 => {
                    let units: Vec<&UnitDetail> = self.chosen(&seen).into_iter().map(|(_, unit)| unit).collect();
                    return Err(super::no_log(&units, None));
                }
                Ok(FollowState::Over(_) | FollowState::Gone) => return Ok(Exit::Done),
                Err(FollowError::Api(error @ ApiClientError::Unreachable { .. })) => {
                    unanswered += 1;
                    if unanswered > PATIENCE {
                        return Err(error.into());
                    }
                }
                Err(FollowError::Api(error)) => return Err(error.into()),
                Err(FollowError::Other(trouble)) => return Err(trouble),
            }
            tokio::time::sleep(EVERY.max(asked.elapsed() * SPARING)).await;
        }
    }

    /// Prints what is new.
    async fn poll(
        &self,
        client: &ApiClient,
        target: &TargetRef,
        uid: &mut Option<String>,
        printed: &mut LogPrinter,
    ) -> Result<FollowState, FollowError> {
        let seen = match client.target(target).await? {
            Some(seen) if uid.as_ref().is_none_or(|uid| *uid == seen.info.uid) => seen,
            None if uid.is_none() => return Err(FollowError::Other(super::super::unknown(target))),
            // Its life is over, and its logs have gone with it.
            _ => return Ok(FollowState::Gone),
        };
        uid.get_or_insert_with(|| seen.info.uid.clone());
        let chosen: Vec<_> = self.chosen(&seen).into_iter().filter(|(_, unit)| unit.kind == "pod").collect();
        printed.several |= chosen.len() > 1;
        for (run, unit) in &chosen {
            printed.unit(client, run, unit).await?;
        }
        let is_over = match self.unit {
            Some(_) if !chosen.is_empty() => chosen.iter().all(|(run, unit)| has_ended(run, unit)),
            _ => is_settled(&seen),
        };
        Ok(if is_over { FollowState::Over(Box::new(seen)) } else { FollowState::Again })
    }
}

enum FollowState {
    Again,
    Over(Box<TargetDetail>),
    /// The target is not there any more.
    Gone,
}

enum FollowError {
    Api(ApiClientError),
    Other(CliError),
}

impl From<ApiClientError> for FollowError {
    fn from(error: ApiClientError) -> Self {
        Self::Api(error)
    }
}

/// Whether a unit says nothing more.
fn has_ended(run: &RunDetail, unit: &UnitDetail) -> bool {
    let is_open = matches!(run.state, RunState::Running | RunState::Cancelling);
    match unit.state {
        UnitState::Succeeded | UnitState::Skipped | UnitState::Failed => true,
        UnitState::Blocked | UnitState::Cancelled => !is_open,
        UnitState::Waiting | UnitState::Running | UnitState::Retrying => false,
    }
}

/// Whether all runs of a target are over and none is about to begin.
fn is_settled(seen: &TargetDetail) -> bool {
    let is_moving = matches!(seen.info.phase, TargetState::Starting | TargetState::Stopping);
    !is_moving && seen.runs.iter().all(|run| !matches!(run.state, RunState::Running | RunState::Cancelling))
}

impl LogPrinter {
    async fn unit(&mut self, client: &ApiClient, run: &RunDetail, unit: &UnitDetail) -> Result<(), FollowError> {
        let key = (run.id.clone(), unit.key.clone());
        if matches!(unit.state, UnitState::Waiting | UnitState::Blocked | UnitState::Skipped) {
            return Ok(());
        }
        // Attempts that ended before the start are not printed.
        let first = || UnitLog { attempt: unit.attempt, tail: LogPosition::default(), is_over: false };
        let mut followed = self.units.remove(&key).unwrap_or_else(first);
        let told = self.print_unit(client, run, unit, &mut followed).await;
        self.units.insert(key, followed);
        told
    }

    async fn print_unit(
        &mut self,
        client: &ApiClient,
        run: &RunDetail,
        unit: &UnitDetail,
        followed: &mut UnitLog,
    ) -> Result<(), FollowError> {
        loop {
            // The log of an attempt that has a successor is complete.
            let is_last = followed.attempt >= unit.attempt;
            let is_over = !is_last || has_ended(run, unit);
            if followed.is_over && is_last {
                return Ok(());
            }
            if !followed.is_over {
                let log = client.log(&run.id, &unit.key, Some(followed.attempt)).await?;
                let log = log.map(|(_, log)| log).unwrap_or_default();
                let new = followed.tail.news(&log, is_over);
                self.print(run, unit, followed.attempt, &new).map_err(FollowError::Other)?;
                followed.is_over = is_over;
            }
            if is_last {
                return Ok(());
            }
            *followed = UnitLog { attempt: followed.attempt + 1, tail: LogPosition::default(), is_over: false };
        }
    }

    fn print(&mut self, run: &RunDetail, unit: &UnitDetail, attempt: u32, new: &LogDelta) -> Result<(), CliError> {
        if new.has_gap {
            output::status_line(&format!(
                "lines of {} are left out here: it has said more than is kept between two looks",
                unit.key
            ));
        }
        if new.text.is_empty() {
            return Ok(());
        }
        let from = (run.id.clone(), unit.key.clone(), attempt);
        if self.last.as_ref() != Some(&from) {
            // The only one needs no name.
            if self.several || self.attempts_printed > 0 {
                output::print(&heading(&run.hook, &unit.key, attempt))?;
            }
            self.attempts_printed += 1;
            self.last = Some(from);
        }
        output::print(&clean(&new.text))
    }
}

/// What a log has new.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LogDelta {
    pub(crate) text: String,
    /// Something before it was not seen.
    has_gap: bool,
}

/// The end of a log as far as it has been printed.
#[derive(Debug, Default)]
pub(crate) struct LogPosition(String);

impl LogPosition {
    /// What of `log`, the tail as it is now, has not been printed; a line without an end only if nothing follows.
    pub(crate) fn news(&mut self, log: &str, is_over: bool) -> LogDelta {
        let lines = match log.rfind('\n') {
            _ if is_over => log,
            Some(end) => &log[..=end],
            None => "",
        };
        let (new, has_gap) = match lines.strip_prefix(self.0.as_str()) {
            Some(new) => (new, false),
            // Less than before: the end of the log is there already.
            None if self.0.ends_with(lines) => return LogDelta::default(),
            None => {
                // Its first line may be cut.
                let lines = lines.split_once('\n').map_or(lines, |(_, rest)| rest);
                match overlap(&self.0, lines) {
                    0 => (lines, true),
                    seen => (&lines[seen..], false),
                }
            }
        };
        let news = LogDelta { text: new.to_owned(), has_gap };
        lines.clone_into(&mut self.0);
        news
    }
}

/// Bytes at the start of `new` that are the end of `old`: the most that there can be.
fn overlap(old: &str, new: &str) -> usize {
    let (old, new) = (old.as_bytes(), new.as_bytes());
    // For each byte of `new`, how much of its start ends there (Knuth, Morris, Pratt).
    let mut starts = vec![0_usize; new.len()];
    let step = |starts: &[usize], mut length: usize, byte: u8| {
        while length > 0 && new.get(length) != Some(&byte) {
            length = starts[length - 1];
        }
        length + usize::from(new.get(length) == Some(&byte))
    };
    for at in 1..new.len() {
        starts[at] = step(&starts, starts[at - 1], new[at]);
    }
    old.iter().fold(0, |length, &byte| step(&starts, length, byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_new() {
        let new = |text: &str| LogDelta { text: text.to_owned(), has_gap: false };
        let gap = |text: &str| LogDelta { text: text.to_owned(), has_gap: true };
        for (steps, expected) in [
            (&["a\n", "a\n", "a\nb\n"][..], &[new("a\n"), new(""), new("b\n")][..]),
            (&["a\nb", "a\nbc\nd"], &[new("a\n"), new("bc\nd")]),
            (&["1\n2\n3\n", "\n3\n4\n"], &[new("1\n2\n3\n"), new("4\n")]),
            (&["1\n2\n3\n", "7\n8\n9\n"], &[new("1\n2\n3\n"), gap("8\n9\n")]),
            (&["", "a\n"], &[new(""), new("a\n")]),
            (&["a\nb\n", "b\n"], &[new("a\nb\n"), new("")]),
        ] {
            let mut tail = LogPosition::default();
            let last = steps.len() - 1;
            let told: Vec<LogDelta> = steps.iter().enumerate().map(|(at, log)| tail.news(log, at == last)).collect();
            assert_eq!(told, expected, "{steps:?}");
        }
    }

    proptest! {
        /// Whatever the window, every line is told once as long as it holds a line that was told.
        #[test]
        fn lines_are_told_once(looks in prop::collection::vec(0_usize..12, 1..20), window in 400_usize..600) {
            let line = |number: usize| format!("line {number:020}\n");
            let mut tail = LogPosition::default();
            let (mut log, mut told, mut count) = (String::new(), String::new(), 0);
            for (at, more) in looks.iter().enumerate() {
                for _ in 0..*more {
                    log += &line(count);
                    count += 1;
                }
                let news = tail.news(&log[log.len().saturating_sub(window)..], at + 1 == looks.len());
                prop_assert!(!news.has_gap);
                told += &news.text;
            }
            prop_assert_eq!(told, log);
        }
    }
}
