//! `ebb logs`.

mod follow;

pub(crate) use follow::LogPosition;

use ebb_protocol::api::{RunDetail, TargetDetail, UnitDetail};
use serde::Serialize;

use crate::client::ApiClient;
use crate::exit::{CliError, Exit};
use crate::lifecycle::named;
use crate::output::{self, OutputArgs};
use crate::target::{TargetArgs, TargetRef};
use crate::why::printable;

#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Only units of this resource
    #[arg(long, value_name = "RESOURCE")]
    resource: Option<String>,
    /// Only the unit of this name
    #[arg(long, alias = "step", value_name = "UNIT")]
    unit: Option<String>,
    /// Only units of this hook, such as preStart
    #[arg(long, value_name = "HOOK")]
    hook: Option<String>,
    /// This attempt, from 1; without it the last one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
    /// Print what is said from now on too, until the unit has ended; without --unit until the sandbox's run has
    #[arg(long, short, conflicts_with_all = ["attempt", "format"])]
    follow: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// The log of one attempt.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AttemptLog {
    run: String,
    hook: String,
    unit: String,
    attempt: u32,
    log: String,
}

impl LogsArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let target = self.target.target();
        if self.follow {
            return self.follow(client, &target).await;
        }
        let seen = client.target(&target).await?.ok_or_else(|| super::unknown(&target))?;
        let chosen = self.chosen(&seen);
        if chosen.is_empty() {
            return Err(nothing_meant(&target, &seen));
        }
        let mut logs = Vec::new();
        for (run, unit) in &chosen {
            if let Some((attempt, log)) = client.log(&run.id, &unit.key, self.attempt).await? {
                let attempt = attempt.unwrap_or(unit.attempt);
                if self.attempt.is_none() && attempt < unit.attempt {
                    output::status_line(&format!(
                        "attempt {} of {} has no log yet; this is the log of attempt {attempt}",
                        unit.attempt, unit.key
                    ));
                }
                logs.push(AttemptLog {
                    run: run.id.clone(),
                    hook: run.hook.clone(),
                    unit: unit.key.clone(),
                    attempt,
                    log,
                });
            }
        }
        if logs.is_empty() {
            let units: Vec<&UnitDetail> = chosen.iter().map(|(_, unit)| *unit).collect();
            return Err(no_log(&units, self.attempt));
        }
        match self.output.format() {
            Some(_) => self.output.write(&logs, |_| String::new())?,
            None => output::print(&text(&logs))?,
        }
        Ok(Exit::Done)
    }

    fn chosen<'a>(&self, seen: &'a TargetDetail) -> Vec<(&'a RunDetail, &'a UnitDetail)> {
        let fits = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        let mut chosen = Vec::new();
        for run in seen.runs.iter().filter(|run| fits(&self.hook, &run.hook)) {
            for unit in &run.units {
                let (resource, name) = unit.key.split_once('/').unwrap_or((&unit.key, ""));
                let is_named = fits(&self.unit, name) || fits(&self.unit, &unit.key);
                if is_named && fits(&self.resource, resource) {
                    chosen.push((run, unit));
                }
            }
        }
        chosen
    }
}

/// There is no such unit, or it has not begun.
fn nothing_meant(target: &TargetRef, seen: &TargetDetail) -> CliError {
    let keys = seen.runs.iter().flat_map(|run| run.units.iter().map(|unit| unit.key.as_str()));
    let keys: Vec<&str> = keys.collect();
    let trouble = CliError::failed(format!("no unit of {target} that has begun is meant by this"));
    if keys.is_empty() {
        trouble.with_hint(format!("nothing has begun yet: ebb why {}", named(target)))
    } else {
        trouble.with_hint(format!("there is {}", keys.join(", ")))
    }
}

/// None of these units has a log, or not of this attempt.
fn no_log(units: &[&UnitDetail], attempt: Option<u32>) -> CliError {
    let Some(pod) = units.iter().find(|unit| unit.kind == "pod") else {
        let kinds = units.iter().map(|unit| match unit.kind.as_str() {
            "webhook" => format!("{} is a webhook", unit.key),
            _ => format!("{} is a set of objects", unit.key),
        });
        let kinds: Vec<String> = kinds.collect();
        return CliError::failed(format!("only scripts have a log: {}", kinds.join(", ")));
    };
    match attempt {
        Some(attempt) if attempt > pod.attempt => CliError::failed(format!(
            "attempt {attempt} of {} has not begun; it is at attempt {}",
            pod.key, pod.attempt
        )),
        Some(attempt) => CliError::failed(format!("attempt {attempt} of {} has no log", pod.key)),
        None => CliError::failed(format!("{} has no log yet", pod.key)),
    }
}

/// One log as it is, several with a line before each.
fn text(logs: &[AttemptLog]) -> String {
    if let [log] = logs {
        return clean(&log.log);
    }
    let mut text = String::new();
    for log in logs {
        text.push_str(&heading(&log.hook, &log.unit, log.attempt));
        text.push_str(&clean(&log.log));
    }
    text
}

/// The line before a log where there are several.
fn heading(hook: &str, unit: &str, attempt: u32) -> String {
    format!("==> {hook} {unit} attempt {attempt} <==\n")
}

fn clean(log: &str) -> String {
    if console::user_attended() { log.lines().map(|line| printable(line) + "\n").collect() } else { ended(log) }
}

fn ended(log: &str) -> String {
    if log.is_empty() || log.ends_with('\n') { log.to_owned() } else { format!("{log}\n") }
}
