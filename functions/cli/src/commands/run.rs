//! `ebb run`: the whole life of a sandbox on this machine, from files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ebb_local::Settings;
use ebb_spec::model::Plugin;
use ebb_wire::api::{Phase, RunDetail, TargetDetail, UnitState};
use ebb_wire::cloudevents::Asked;
use ebb_wire::lifecycle::OutputValue;
use serde::Serialize;

use crate::client::Client;
use crate::documents::{self, SetArgs, TargetDocument};
use crate::exit::{Exit, Trouble};
use crate::interrupt::Interrupts;
use crate::lifecycle::{ask, explain, fresh_uid, lives, named};
use crate::machine::Machine;
use crate::output::{self, Output};
use crate::progress::follow::{Ended, Goal, Life, Limits, follow};
use crate::progress::screen::Screen;
use crate::progress::words;
use crate::{cluster, offline, pods, server, timing, why};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sandbox; `-` is standard input
    file: PathBuf,
    /// A file with plugins; may be given more than once
    #[arg(long = "plugin", value_name = "FILE", num_args = 1..)]
    plugins: Vec<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    /// Take everything away again once it is ready
    #[arg(long)]
    then_delete: bool,
    /// Folder for everything that is kept
    #[arg(long, value_name = "DIR", default_value = server::STATE)]
    state: PathBuf,
    /// How long it may take to become ready, and again to be taken away; without it as long as its units may
    #[arg(long, value_name = "TIME", value_parser = timing::parse)]
    wait_timeout: Option<Duration>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    cluster: cluster::ClusterArgs,
    #[command(flatten)]
    pods: pods::PodsArgs,
}

/// What `-o` writes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    target: String,
    phase: Phase,
    outputs: BTreeMap<String, BTreeMap<String, OutputValue>>,
    env: BTreeMap<String, OutputValue>,
    units: Vec<ResultUnit>,
}

#[derive(Debug, Serialize)]
struct ResultUnit {
    event: String,
    #[serde(flatten)]
    unit: ebb_wire::api::UnitDetail,
}

/// What happens once the sandbox is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Keep,
    Delete,
}

/// A sandbox that runs on this machine.
struct Running<'a> {
    machine: &'a Machine,
    client: Client,
    life: Life,
    interrupts: Interrupts,
    timeout: Option<Duration>,
    last: Option<Box<TargetDetail>>,
    screen: Screen,
}

impl Args {
    pub(crate) async fn run(self) -> Result<Exit, Trouble> {
        let vars = self.sets.vars()?;
        let document = TargetDocument::read(&self.file, &vars)?;
        let plugins = documents::all_plugins(&self.plugins, &vars)?;
        if let TargetDocument::Sandbox(sandbox) = &document
            && offline::complete(sandbox, &plugins)
        {
            // The files tell more exactly what is wrong than the server, which sees expanded documents.
            for warning in offline::plan(sandbox, &plugins)?.warnings {
                output::tell(warning.drawn(output::drawing()).trim_end());
            }
        }
        let interrupts = Interrupts::listen()?;
        let units = self.cluster.settings(self.pods.containers().await?)?;
        let machine = Machine::start(Settings { state: self.state.clone(), ..units }).await?;
        let client = machine.client()?;
        let life = Life { target: document.target("sandbox"), uid: fresh_uid(), generation: 1 };
        let then = if self.then_delete { Then::Delete } else { Then::Keep };
        let mut running = Running {
            machine: &machine,
            client,
            life,
            interrupts: interrupts.clone(),
            timeout: self.wait_timeout,
            last: None,
            screen: Screen::new(),
        };
        let ended = running.live(&document, &plugins, then, self.output).await;
        // Whoever pressed Ctrl-C twice does not wait, nor whoever presses it now.
        if !matches!(ended, Ok(Ran::Left)) {
            let seen = interrupts.count();
            tokio::select! {
                () = machine.stop() => {}
                () = interrupts.more_than(seen) => {}
            }
        }
        match ended? {
            Ran::Ended(exit) => Ok(exit),
            Ran::Left => Ok(Exit::Interrupted),
        }
    }
}

/// How it went.
enum Ran {
    /// To an end.
    Ended(Exit),
    /// The person has left at once.
    Left,
}

impl Running<'_> {
    async fn live(
        &mut self,
        document: &TargetDocument,
        plugins: &[Plugin],
        then: Then,
        output: Output,
    ) -> Result<Ran, Trouble> {
        self.refuse_second_life().await?;
        for plugin in plugins {
            publish(&self.client, plugin).await?;
        }
        let preview = self.client.preview(document.expanded()).await?;
        let after_ready = preview.events.iter().any(|event| event.event == "postStart");
        let goal = if after_ready { Goal::Settled } else { Goal::Ready };
        ask(&self.client, Asked::Created, &self.life, Some(document.expanded())).await?;
        let ended = self.follow(goal, 0).await?;
        let exit = match ended {
            Ended::Reached(_) => Exit::Done,
            Ended::Failed(_) => {
                explain(&self.client, &self.life.target).await;
                Exit::Failed
            }
            Ended::TakenAway => {
                return Err(Trouble::failed(format!("{} was taken away by somebody else", self.life.target)));
            }
            Ended::TimedOut(_) => {
                explain(&self.client, &self.life.target).await;
                output::tell("error: the time given with --wait-timeout is over");
                Exit::Failed
            }
            Ended::Interrupted(_) => {
                output::tell("interrupted: what was made is taken away; Ctrl-C again leaves at once");
                return self.take_away(Exit::Interrupted, 1).await;
            }
        };
        let reached = self.last.clone();
        // A reader that went away is no reason to leave things behind.
        let printed = match reached.as_deref() {
            Some(seen) if exit == Exit::Done && output.format().is_none() => output::print(&outputs(seen)),
            _ => Ok(()),
        };
        let ran = match then {
            Then::Delete => self.take_away(exit, 0).await?,
            Then::Keep => {
                output::tell(&self.how_to_delete());
                Ran::Ended(exit)
            }
        };
        printed?;
        if output.format().is_some()
            && let (Ran::Ended(_), Some(reached), Some(last)) = (&ran, &reached, &self.last)
        {
            output.write(&result(reached, last), |_| String::new())?;
        }
        Ok(ran)
    }

    /// A sandbox of this name that is left from before is not taken over.
    async fn refuse_second_life(&self) -> Result<(), Trouble> {
        let target = &self.life.target;
        match self.client.target(target).await? {
            Some(seen) if seen.info.phase != Phase::Gone => {
                let phase = words::phase(seen.info.phase);
                let trouble = Trouble::failed(format!(
                    "{target} is there already, {phase} since {}",
                    timing::clock(&seen.info.since)
                ));
                let delete = if lives(&seen) {
                    format!("ebb sandbox delete {}", named(target))
                } else {
                    format!("ebb why {}", named(target))
                };
                Err(trouble.next(format!("`ebb dev` and then `{delete}`, or another --state")))
            }
            _ => Ok(()),
        }
    }

    async fn follow(&mut self, goal: Goal, interrupts: u32) -> Result<Ended, Trouble> {
        let limits = Limits { timeout: self.timeout, interrupts: (&self.interrupts, interrupts) };
        let ended =
            follow(&self.client, Some(self.machine), &self.life, goal, limits, &mut self.screen).await?;
        let seen = match &ended {
            Ended::Reached(seen) | Ended::TimedOut(seen) | Ended::Interrupted(seen) => seen.clone(),
            Ended::Failed(seen) => Some(seen.clone()),
            Ended::TakenAway => None,
        };
        self.last = seen.or(self.last.take());
        Ok(ended)
    }

    /// Takes away what was made. `exit` is the code if that works; `interrupts` have been seen before.
    async fn take_away(&mut self, exit: Exit, interrupts: u32) -> Result<Ran, Trouble> {
        ask(&self.client, Asked::Deleted, &self.life, None).await?;
        match self.follow(Goal::Gone, interrupts).await? {
            Ended::Reached(_) | Ended::TakenAway => {
                if let Some(last) = &mut self.last {
                    last.info.phase = Phase::Gone;
                }
                Ok(Ran::Ended(exit))
            }
            Ended::Failed(_) => {
                explain(&self.client, &self.life.target).await;
                let target = &self.life.target;
                output::tell(&format!(
                    "{target} is stuck; to go on: `ebb dev` and then `ebb retry {}`",
                    named(target)
                ));
                Ok(Ran::Ended(Exit::Failed))
            }
            Ended::TimedOut(_) => {
                explain(&self.client, &self.life.target).await;
                output::tell("error: the time given with --wait-timeout is over before everything was gone");
                output::tell(&self.how_to_delete());
                Ok(Ran::Ended(Exit::Failed))
            }
            Ended::Interrupted(_) if interrupts == 0 => {
                output::tell("interrupted: it is being taken away; Ctrl-C again leaves at once");
                Box::pin(self.take_away(Exit::Interrupted, 1)).await
            }
            Ended::Interrupted(_) => {
                output::tell(&left(self.last.as_deref(), &self.life));
                Ok(Ran::Left)
            }
        }
    }

    fn how_to_delete(&self) -> String {
        let target = &self.life.target;
        format!("{target} stays; to delete it: `ebb dev` and then `ebb sandbox delete {}`", named(target))
    }
}

/// Publishes a plugin; one that is published with the same content is fine.
async fn publish(client: &Client, plugin: &Plugin) -> Result<(), Trouble> {
    match client.publish(&plugin.expanded).await {
        Ok(_) => Ok(()),
        Err(error) if error.refusal().is_some_and(|problem| problem.status == 409) => {
            Err(super::plugin::immutable(plugin)
                .next("or use another --state, which has not seen this version"))
        }
        Err(error) => Err(error.into()),
    }
}

fn outputs(seen: &TargetDetail) -> String {
    let mut text = why::output_lines(seen.resources.iter().map(|(name, resource)| (name, &resource.outputs)));
    for (name, value) in &seen.env {
        text.push_str(&format!("env.{name} = {}\n", why::value_line(value)));
    }
    text
}

fn result(reached: &TargetDetail, last: &TargetDetail) -> Outcome {
    // Who forgets a target forgets its runs: those that were seen before are kept.
    let mut runs: Vec<&RunDetail> = last.runs.iter().collect();
    for run in &reached.runs {
        if !runs.iter().any(|other| other.id == run.id) {
            runs.push(run);
        }
    }
    let units = runs.iter().flat_map(|run| {
        run.units.iter().map(|unit| ResultUnit { event: run.event.clone(), unit: unit.clone() })
    });
    let outputs = reached.resources.iter().map(|(name, resource)| (name.clone(), resource.outputs.clone()));
    Outcome {
        target: format!("{}/{}", reached.info.kind, reached.info.name),
        phase: last.info.phase,
        outputs: outputs.collect(),
        env: reached.env.clone(),
        units: units.collect(),
    }
}

/// What is left when somebody leaves at once, and how to go on.
fn left(last: Option<&TargetDetail>, life: &Life) -> String {
    let undone: Vec<&str> = last.map(|seen| made(&seen.runs)).unwrap_or_default();
    let what = if undone.is_empty() { "nothing that is known of".to_owned() } else { undone.join(", ") };
    format!(
        "left at once; what these units made may still be there: {what}\n  to go on: `ebb dev` and then `ebb sandbox delete {}`",
        named(&life.target)
    )
}

/// Keys of the units that may have made something.
fn made(runs: &[RunDetail]) -> Vec<&str> {
    let before = runs.iter().filter(|run| matches!(run.event.as_str(), "preStart" | "postStart"));
    let started = |state| !matches!(state, UnitState::Waiting | UnitState::Skipped | UnitState::Blocked);
    before
        .flat_map(|run| &run.units)
        .filter(|unit| started(unit.state))
        .map(|unit| unit.key.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures;
    use crate::target::Target;

    #[test]
    fn what_may_be_left_is_named() {
        let view = fixtures::busy();
        assert_eq!(made(&view.runs), ["db/provision", "db/seed", "billing/register", "queue/create"]);
        let target = Target { kind: "sandbox".to_owned(), name: "pr-1".to_owned() };
        let life = Life { target, uid: "a".to_owned(), generation: 1 };
        insta::assert_snapshot!(left(None, &life), @r"
        left at once; what these units made may still be there: nothing that is known of
          to go on: `ebb dev` and then `ebb sandbox delete pr-1`
        ");
    }
}
