//! `ebb logs --follow`: polls the tail of each log and prints the new lines.
//!
//! A tail has at most 256 KiB. If it overlaps the previous tail, each line is printed once. If it does not, the command
//! reports a gap. Before a log has ended, only complete lines are printed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ebb_protocol::api::{RunDetail, RunState, TargetDetail, TargetPhase, UnitDetail, UnitState};

use super::{LogsArgs, clean, heading, last_lines, stamp};
use crate::{ApiClient, Exit, LONGEST_SILENCE, Result, ServerSilence, TargetRef, joined_lines, output, printable};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The pause after a slow request.
const LONG_INTERVAL: Duration = Duration::from_millis(400);

#[derive(Default)]
struct LogPrinter {
    units: BTreeMap<(String, String), UnitLog>,
    last: Option<(String, String, u32)>,
    attempts_printed: usize,
    /// True if more than one unit is followed.
    several: bool,
    /// The number of lines of a log that are printed from the time before the start. `None` after the first poll.
    tail: Option<usize>,
    /// True after the message that a relay does not return a log.
    is_unavailable: bool,
    has_timestamps: bool,
}

#[derive(Default)]
struct UnitLog {
    attempt: u32,
    tail: LogPosition,
    /// The number of lines to print of the first ones.
    limit: Option<usize>,
    /// The last printed lines about the state of the attempt, without digits.
    state: String,
    is_over: bool,
}

impl UnitLog {
    /// Returns true if `state` has other words than before. Ages and numbers are not compared.
    fn has_news(&mut self, state: &str) -> bool {
        let words: String = state.chars().filter(|it| !it.is_ascii_digit()).collect();
        let is_new = self.state != words && !words.is_empty();
        self.state = words;
        is_new
    }
}

impl LogsArgs {
    /// Prints new lines until the selected units have ended.
    pub(super) async fn follow(&self, client: &ApiClient, target: &TargetRef) -> Result<Exit> {
        let mut printed = LogPrinter { tail: self.tail, has_timestamps: self.timestamps, ..LogPrinter::default() };
        let mut uid: Option<String> = None;
        let mut silence = ServerSilence::default();
        loop {
            let sent = Instant::now();
            match self.poll(client, target, &mut uid, &mut printed).await {
                Ok(FollowState::Again) => silence.note_response().into_iter().for_each(output::status_line),
                Ok(FollowState::Over(seen)) if printed.units.is_empty() && self.chosen(&seen).is_empty() => {
                    return Err(self.no_match(target, &seen));
                }
                Ok(FollowState::Over(seen)) if printed.attempts_printed == 0 && self.since.is_none() => {
                    let units: Vec<&UnitDetail> = self.chosen(&seen).into_iter().map(|(_, unit)| unit).collect();
                    return Err(super::no_log(&units, None));
                }
                Ok(FollowState::Over(_) | FollowState::Gone) => return Ok(Exit::Done),
                // Without a first response, the address may be wrong.
                Err(error) if error.is_unreachable() && uid.is_some() && silence.lasted() < LONGEST_SILENCE => {
                    silence.note_failure(sent).into_iter().for_each(output::status_line);
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(sent.elapsed().clamp(POLL_INTERVAL, LONG_INTERVAL)).await;
        }
    }

    /// Prints the lines since the last poll.
    async fn poll(
        &self,
        client: &ApiClient,
        target: &TargetRef,
        uid: &mut Option<String>,
        printed: &mut LogPrinter,
    ) -> Result<FollowState> {
        let seen = match uid {
            None => client.existing(target).await?,
            Some(uid) => match client.target(target).await? {
                Some(seen) if *uid == seen.info.uid => seen,
                // The instance has ended. Its logs are deleted with it.
                _ => return Ok(FollowState::Gone),
            },
        };
        uid.get_or_insert_with(|| seen.info.uid.clone());
        let is_followed = |unit: &UnitDetail| unit.kind == "pod" && !self.is_before(unit, unit.attempt);
        let chosen: Vec<_> = self.chosen(&seen).into_iter().filter(|(_, unit)| is_followed(unit)).collect();
        printed.several |= chosen.len() > 1;
        for (run, unit) in &chosen {
            printed.unit(client, run, unit).await?;
        }
        printed.tail = None;
        let is_over = match self.units.is_empty() {
            false if !chosen.is_empty() => chosen.iter().all(|(run, unit)| has_ended(run, unit)),
            // No other run follows.
            _ => {
                !matches!(seen.info.phase, TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping)
                    && seen.runs.iter().all(|run| !matches!(run.state, RunState::Running | RunState::Cancelling))
            }
        };
        Ok(if is_over { FollowState::Over(Box::new(seen)) } else { FollowState::Again })
    }
}

enum FollowState {
    Again,
    Over(Box<TargetDetail>),
    Gone,
}

/// Returns true if a unit writes no more log lines.
fn has_ended(run: &RunDetail, unit: &UnitDetail) -> bool {
    let is_open = matches!(run.state, RunState::Running | RunState::Cancelling);
    match unit.state {
        UnitState::Succeeded | UnitState::Skipped | UnitState::Failed => true,
        UnitState::Blocked | UnitState::Cancelled => !is_open,
        UnitState::Waiting | UnitState::Running | UnitState::Retrying => false,
    }
}

impl LogPrinter {
    async fn unit(&mut self, client: &ApiClient, run: &RunDetail, unit: &UnitDetail) -> Result<()> {
        let key = (run.id.clone(), unit.key.clone());
        if matches!(unit.state, UnitState::Waiting | UnitState::Blocked | UnitState::Skipped) {
            return Ok(());
        }
        // Logs of attempts that ended before the start are not printed.
        let first = || UnitLog { attempt: unit.attempt, limit: self.tail, ..UnitLog::default() };
        let mut followed = self.units.remove(&key).unwrap_or_else(first);
        let printed = self.print_unit(client, run, unit, &mut followed).await;
        self.units.insert(key, followed);
        printed
    }

    async fn print_unit(
        &mut self,
        client: &ApiClient,
        run: &RunDetail,
        unit: &UnitDetail,
        followed: &mut UnitLog,
    ) -> Result<()> {
        loop {
            // An attempt that has a successor has ended.
            let is_last = followed.attempt >= unit.attempt;
            let is_over = !is_last || has_ended(run, unit);
            if followed.is_over && is_last {
                return Ok(());
            }
            if !followed.is_over {
                let log = match client.log(&run.id, &unit.key, Some(followed.attempt)).await {
                    Err(error) if error.has_code("relay-unavailable") => {
                        if !std::mem::replace(&mut self.is_unavailable, true) {
                            output::status_line(&printable(&error.message()));
                        }
                        return Ok(());
                    }
                    log => log?,
                };
                self.is_unavailable = false;
                let (log, state) = log.map(|tail| (tail.log, tail.state)).unwrap_or_default();
                let mut new = followed.tail.advance(&log, is_over);
                new.text = last_lines(&new.text, followed.limit.take());
                self.print(run, unit, followed.attempt, &new)?;
                if followed.has_news(&state) {
                    output::status_line(&format!("{}: {}", unit.key, joined_lines(state.trim_end())));
                }
                followed.is_over = is_over;
            }
            if is_last {
                return Ok(());
            }
            *followed = UnitLog { attempt: followed.attempt + 1, ..UnitLog::default() };
        }
    }

    fn print(&mut self, run: &RunDetail, unit: &UnitDetail, attempt: u32, new: &LogDelta) -> Result<()> {
        let key = &unit.key;
        if new.has_gap {
            output::status_line(&format!("some lines of {key} are missing here: the log grew faster than it was read"));
        }
        if new.text.is_empty() {
            return Ok(());
        }
        let from = (run.id.clone(), key.clone(), attempt);
        if self.last.as_ref() != Some(&from) {
            // A single log needs no heading.
            if self.several || self.attempts_printed > 0 {
                output::print(&heading(&run.hook, key, attempt))?;
            }
            self.attempts_printed += 1;
            self.last = Some(from);
        }
        let stamp = if self.has_timestamps { stamp(None) } else { String::new() };
        output::print(&clean(&new.text, &stamp)).map(drop)
    }
}

/// The new part of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LogDelta {
    pub(crate) text: String,
    /// Lines before `text` were missed.
    pub(crate) has_gap: bool,
}

/// The last tail of a log, as far as it has been printed.
#[derive(Debug, Default)]
pub(crate) struct LogPosition(String);

impl LogPosition {
    /// Replaces the tail with `log` and returns the lines that have not been printed.
    ///
    /// A line without an end is returned only if `is_over`.
    pub(crate) fn advance(&mut self, log: &str, is_over: bool) -> LogDelta {
        let lines = match log.rfind('\n') {
            _ if is_over => log,
            Some(end) => &log[..=end],
            None => "",
        };
        let (new, has_gap) = match lines.strip_prefix(self.0.as_str()) {
            Some(new) => (new, false),
            // The server returned an older tail.
            None if self.0.ends_with(lines) => return LogDelta::default(),
            None => {
                // The first line of a tail may be incomplete.
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

/// Returns the length of the longest start of `new` that is an end of `old`, in bytes. It begins with a line of `old`.
fn overlap(old: &str, new: &str) -> usize {
    let lines = old.match_indices('\n').map(|(at, _)| &old[at + 1..]);
    std::iter::once(old).chain(lines).find(|end| new.starts_with(end)).map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::progress::fixtures::rows;

    #[test]
    fn only_new_lines_are_returned() {
        let rows = rows::<(Vec<String>, Vec<(String, bool)>)>("only_new_lines_are_returned");
        for (steps, expected) in rows {
            let mut tail = LogPosition::default();
            let last = steps.len() - 1;
            let printed = steps.iter().enumerate().map(|(at, log)| tail.advance(log, at == last));
            let printed: Vec<_> = printed.map(|new| (new.text, new.has_gap)).collect();
            assert_eq!(printed, expected, "{steps:?}");
        }
    }

    #[test]
    fn a_state_is_printed_when_its_words_change() {
        let mut followed = UnitLog::default();
        let states = ["", "waiting: 3 pods\n", "waiting: 2 pods\n", "waiting: no node\n", "", "waiting: no node\n"];
        let printed = states.map(|state| followed.has_news(state));
        assert_eq!(printed, [false, true, false, true, false, true]);
    }

    proptest! {
        /// For each window size, every line is printed once if consecutive tails overlap.
        #[test]
        fn lines_are_printed_once(polls in prop::collection::vec(0_usize..12, 1..20), window in 400_usize..600) {
            let line = |number: usize| format!("line {number:020}\n");
            let mut tail = LogPosition::default();
            let (mut log, mut printed, mut count) = (String::new(), String::new(), 0);
            for (at, more) in polls.iter().enumerate() {
                for _ in 0..*more {
                    log += &line(count);
                    count += 1;
                }
                let news = tail.advance(&log[log.len().saturating_sub(window)..], at + 1 == polls.len());
                prop_assert!(!news.has_gap);
                printed += &news.text;
            }
            prop_assert_eq!(printed, log);
        }
    }
}
