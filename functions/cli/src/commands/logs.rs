//! `ebb logs`: prints the logs of units.

mod follow;

pub(crate) use follow::LogPosition;

use std::collections::BTreeSet;

use ebb_documents::cel::nearest;
use ebb_protocol::api::{RunDetail, TargetDetail, UnitDetail, UnitState};
use jiff::Timestamp;
use serde::Serialize;

use crate::{ApiClient, CliError, Exit, OutputArgs, Result, TargetArgs, TargetRef, named, output, printable, timing};

#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Only units of this resource
    #[arg(long, value_name = "RESOURCE")]
    resource: Option<String>,
    /// Only the unit UNIT or RESOURCE/UNIT; repeatable
    #[arg(long = "unit", alias = "step", value_name = "UNIT")]
    units: Vec<String>,
    /// Only units of this hook, such as preStart
    #[arg(long, value_name = "HOOK")]
    hook: Option<String>,
    /// Number of the attempt, from 1; by default the last attempt with a log
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
    /// Print the last N lines of each log
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    /// Only attempts that run or have ended since this time: a duration before now, such as 10m or 1d, or RFC 3339
    #[arg(long, value_name = "DURATION|TIME", value_parser = timing::point)]
    since: Option<Timestamp>,
    /// Begin each line with the time at which its attempt ended, or the line was received
    #[arg(long, conflicts_with = "format")]
    timestamps: bool,
    /// Print new lines until the units have ended; without --unit, until all runs have ended
    #[arg(long, short, conflicts_with_all = ["attempt", "format"])]
    follow: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AttemptLog {
    run: String,
    hook: String,
    unit: String,
    attempt: u32,
    ended: Option<String>,
    log: String,
}

impl LogsArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let target = self.target.target()?;
        if self.follow {
            return self.follow(client, &target).await;
        }
        let seen = client.existing(&target).await?;
        let chosen = self.chosen(&seen);
        let is_missing = |wanted: &String| !chosen.iter().any(|(_, unit)| is_named(wanted, &unit.key));
        if chosen.is_empty() || self.units.iter().any(is_missing) {
            return Err(self.no_match(&target, &seen));
        }
        let (mut logs, mut has_older, mut unavailable) = (Vec::new(), false, None);
        for (run, unit) in &chosen {
            let log = match client.log(&run.id, &unit.key, self.attempt).await {
                // The relay of a running script does not return its log. Logs of other units can be read.
                Err(error) if error.has_code("relay-unavailable") => {
                    unavailable.get_or_insert(error);
                    continue;
                }
                log => log?,
            };
            if let Some(mut tail) = log {
                tail.log = last_lines(&tail.log, self.tail);
                let attempt = tail.attempt.unwrap_or(unit.attempt);
                // The end of an attempt without outputs and without a log is not stored.
                let is_silent = self.since.is_some() && tail.log.is_empty() && unit.state != UnitState::Running;
                if is_silent || self.is_before(unit, attempt) {
                    has_older = true;
                    continue;
                }
                if self.attempt.is_none() && attempt < unit.attempt {
                    let (last, key) = (unit.attempt, &unit.key);
                    let outage = seen.outage.as_ref().filter(|outage| outage.units.contains(&unit.key));
                    let state = match outage {
                        Some(outage) => format!("cannot be read while cluster {} does not respond", outage.cluster),
                        None => absence(unit).to_owned(),
                    };
                    output::status_line(&format!(
                        "attempt {last} of {key} {state}; this is the log of attempt {attempt}"
                    ));
                }
                let (hook, ended, unit) = (run.hook.clone(), ended(unit, attempt).cloned(), unit.key.clone());
                logs.push(AttemptLog { run: run.id.clone(), hook, unit, attempt, ended, log: tail.text() });
            }
        }
        match unavailable {
            Some(error) if logs.is_empty() => return Err(error),
            Some(error) => output::status_line(&printable(&error.message())),
            None => {}
        }
        if logs.is_empty() && !has_older {
            let units: Vec<&UnitDetail> = chosen.iter().map(|(_, unit)| *unit).collect();
            return Err(no_log(&units, self.attempt));
        }
        self.output.write(&logs, |logs| self.text(logs))
    }

    /// Returns one log without a heading. Writes a heading before each of several logs.
    fn text(&self, logs: &[AttemptLog]) -> String {
        let stamp = |log: &AttemptLog| if self.timestamps { stamp(log.ended.as_deref()) } else { String::new() };
        let lines = |log: &AttemptLog| clean(&log.log, &stamp(log));
        match logs {
            [log] => lines(log),
            logs => logs.iter().map(|log| heading(&log.hook, &log.unit, log.attempt) + &lines(log)).collect(),
        }
    }

    /// Returns true if an attempt ended before the time of `--since`.
    fn is_before(&self, unit: &UnitDetail, attempt: u32) -> bool {
        let ended = ended(unit, attempt).and_then(|at| at.parse::<Timestamp>().ok());
        ended.zip(self.since).is_some_and(|(ended, since)| ended < since)
    }

    fn chosen<'a>(&self, seen: &'a TargetDetail) -> Vec<(&'a RunDetail, &'a UnitDetail)> {
        let fits = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        let is_chosen = |unit: &UnitDetail| {
            let resource = unit.key.split_once('/').map_or(unit.key.as_str(), |(resource, _)| resource);
            let is_wanted = self.units.is_empty() || self.units.iter().any(|wanted| is_named(wanted, &unit.key));
            is_wanted && fits(&self.resource, resource)
        };
        let runs = seen.runs.iter().filter(|run| fits(&self.hook, &run.hook));
        let units = runs.flat_map(|run| run.units.iter().map(move |unit| (run, unit)));
        units.filter(|(_, unit)| is_chosen(unit)).collect()
    }

    fn no_match(&self, target: &TargetRef, seen: &TargetDetail) -> CliError {
        let [hook, resource] = [&self.hook, &self.resource].map(Option::as_slice);
        no_unit(target, seen, [("hook", hook), ("resource", resource), ("unit", &self.units)])
    }
}

/// Returns the error about units that no run of a target has: the first wanted name that no run has, and those that it has.
pub(super) fn no_unit(target: &TargetRef, seen: &TargetDetail, wanted: [(&str, &[String]); 3]) -> CliError {
    let units = || seen.runs.iter().flat_map(|run| &run.units).map(|unit| unit.key.as_str());
    let resources = units().map(|key| key.split_once('/').map_or(key, |(resource, _)| resource));
    // A unit can be in several runs.
    let known: [BTreeSet<&str>; 3] =
        [seen.runs.iter().map(|run| run.hook.as_str()).collect(), resources.collect(), units().collect()];
    let listed = |names: &BTreeSet<&str>| Vec::from_iter(names.iter().copied()).join(", ");
    for ((noun, wanted), known) in wanted.into_iter().zip(&known) {
        let is_missing = |wanted: &&String| !known.iter().any(|key| is_named(wanted, key));
        if let (Some(missing), false) = (wanted.iter().find(is_missing), known.is_empty()) {
            let near = nearest(missing, known.iter().copied()).map(|near| format!("did you mean `{near}`? "));
            let hint = format!("{}{noun}s: {}", near.unwrap_or_default(), listed(known));
            return CliError::failed(format!("no run of {target} has the {noun} `{missing}`")).with_hint(hint);
        }
    }
    CliError::failed(format!("no unit of {target} matches")).with_hint(match known[2].is_empty() {
        true => format!("no unit has started: ebb why {}", named(target)),
        false => format!("units: {}", listed(&known[2])),
    })
}

/// Returns true for the name of a unit, or for its whole key.
pub(super) fn is_named(wanted: &str, key: &str) -> bool {
    wanted == key || key.split_once('/').is_some_and(|(_, name)| name == wanted)
}

fn no_log(units: &[&UnitDetail], attempt: Option<u32>) -> CliError {
    let Some(pod) = units.iter().find(|unit| unit.kind == "pod") else {
        let kinds = units.iter().map(|unit| match unit.kind.as_str() {
            "webhook" => format!("{} is a webhook", unit.key),
            _ => format!("{} is a set of objects", unit.key),
        });
        let kinds: Vec<String> = kinds.collect();
        return CliError::failed(format!("only scripts have logs: {}", kinds.join(", ")));
    };
    match attempt {
        Some(attempt) if attempt > pod.attempt => CliError::failed(format!(
            "attempt {attempt} of {} has not started; the last attempt is {}",
            pod.key, pod.attempt
        )),
        Some(attempt) => CliError::failed(format!("attempt {attempt} of {} has no log", pod.key)),
        None => CliError::failed(format!("{} {}", pod.key, absence(pod))),
    }
}

fn absence(unit: &UnitDetail) -> &'static str {
    match unit.state {
        UnitState::Skipped => "was skipped",
        UnitState::Succeeded | UnitState::Failed | UnitState::Cancelled => "has ended without a log",
        UnitState::Waiting | UnitState::Blocked | UnitState::Running | UnitState::Retrying => "has no log yet",
    }
}

fn ended(unit: &UnitDetail, attempt: u32) -> Option<&String> {
    let earlier = unit.earlier_attempts.iter().find(|earlier| earlier.attempt == attempt);
    earlier.map_or_else(|| unit.ended.as_ref().filter(|_| attempt == unit.attempt), |earlier| earlier.ended.as_ref())
}

fn heading(hook: &str, unit: &str, attempt: u32) -> String {
    format!("==> {hook} {unit} attempt {attempt} <==\n")
}

fn last_lines(log: &str, number: Option<usize>) -> String {
    let left_out = number.map_or(0, |number| log.lines().count().saturating_sub(number));
    log.split_inclusive('\n').skip(left_out).collect()
}

/// Returns the begin of a line that was written until a time, or is received now.
fn stamp(at: Option<&str>) -> String {
    at.map_or_else(|| format!("{:.3} ", timing::now()), |at| format!("{at} "))
}

/// Returns the lines of a log without control characters, each after `stamp`. `-o json` has them.
fn clean(log: &str, stamp: &str) -> String {
    log.lines().map(|line| format!("{stamp}{}\n", printable(line))).collect()
}
