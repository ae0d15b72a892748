//! `ebb run`: the whole lifecycle of a sandbox on this machine, from files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ebb_documents::model::PluginDoc;
use ebb_local::StackSettings;
use ebb_protocol::api::{RunDetail, TargetDetail, TargetState, UnitState};
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::OutputValue;
use serde::Serialize;

use crate::client::ApiClient;
use crate::documents::{self, SetArgs, TargetDocument};
use crate::exit::{CliError, Exit};
use crate::interrupt::InterruptCount;
use crate::lifecycle::{explain, fresh_uid, is_alive, named, request};
use crate::local_server::LocalServer;
use crate::output::{self, OutputArgs};
use crate::progress::follow::{FollowEnd, FollowGoal, FollowLimits, WatchedInstance, follow};
use crate::progress::labels;
use crate::progress::screen::ProgressScreen;
use crate::{cluster, offline, pods, server, timing, why};

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The sandbox; `-` is standard input
    file: PathBuf,
    /// A file with plugins; may be given more than once
    #[arg(long = "plugin", value_name = "FILE", num_args = 1..)]
    plugins: Vec<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    /// Delete the sandbox once it is ready
    #[arg(long)]
    rm: bool,
    /// Folder for everything that is kept
    #[arg(long, value_name = "DIR", default_value = server::STATE)]
    state: PathBuf,
    /// How long it may take to become ready, and again to be deleted; without it as long as its units may
    #[arg(long, value_name = "DURATION", value_parser = timing::parse)]
    wait_timeout: Option<Duration>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: cluster::ClusterArgs,
    #[command(flatten)]
    pods: pods::PodsArgs,
}

/// What `-o` writes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunReport {
    target: String,
    phase: TargetState,
    outputs: BTreeMap<String, BTreeMap<String, OutputValue>>,
    env: BTreeMap<String, OutputValue>,
    units: Vec<UnitReport>,
}

#[derive(Debug, Serialize)]
struct UnitReport {
    hook: String,
    #[serde(flatten)]
    unit: ebb_protocol::api::UnitDetail,
}

/// What happens once the sandbox is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadyAction {
    Keep,
    Delete,
}

/// A sandbox that runs on this machine.
struct LocalSandbox<'a> {
    machine: &'a LocalServer,
    client: ApiClient,
    instance: WatchedInstance,
    interrupts: InterruptCount,
    timeout: Option<Duration>,
    last: Option<Box<TargetDetail>>,
    screen: ProgressScreen,
}

impl RunArgs {
    pub(crate) async fn run(self) -> Result<Exit, CliError> {
        let vars = self.sets.vars()?;
        let document = TargetDocument::read(&self.file, &vars)?;
        let plugins = documents::all_plugins(&self.plugins, &vars)?;
        if let TargetDocument::Sandbox(sandbox) = &document
            && offline::complete(sandbox, &plugins)
        {
            // The files tell more exactly what is wrong than the server, which sees expanded documents.
            for warning in offline::plan(sandbox, &plugins)?.warnings {
                output::status_line(warning.drawn(output::drawing()).trim_end());
            }
        }
        let interrupts = InterruptCount::listen()?;
        let units = self.cluster.settings(self.pods.containers().await?)?;
        let machine = LocalServer::start(StackSettings { state: self.state.clone(), ..units }).await?;
        let client = machine.client()?;
        let instance = WatchedInstance { target: document.target("sandbox"), uid: fresh_uid(), generation: 1 };
        let then = if self.rm { ReadyAction::Delete } else { ReadyAction::Keep };
        let mut running = LocalSandbox {
            machine: &machine,
            client,
            instance,
            interrupts: interrupts.clone(),
            timeout: self.wait_timeout,
            last: None,
            screen: ProgressScreen::new(),
        };
        let ended = running.run_to_end(&document, &plugins, then, self.output).await;
        // Whoever pressed Ctrl-C twice does not wait, nor whoever presses it now.
        if !matches!(ended, Ok(RunEnd::Interrupted)) {
            let seen = interrupts.count();
            tokio::select! {
                () = machine.stop() => {}
                () = interrupts.more_than(seen) => {}
            }
        }
        match ended? {
            RunEnd::Ended(exit) => Ok(exit),
            RunEnd::Interrupted => Ok(Exit::Interrupted),
        }
    }
}

/// How it went.
enum RunEnd {
    /// To an end.
    Ended(Exit),
    /// The person has left at once.
    Interrupted,
}

impl LocalSandbox<'_> {
    async fn run_to_end(
        &mut self,
        document: &TargetDocument,
        plugins: &[PluginDoc],
        then: ReadyAction,
        output: OutputArgs,
    ) -> Result<RunEnd, CliError> {
        self.refuse_existing().await?;
        for plugin in plugins {
            publish(&self.client, plugin).await?;
        }
        let preview = self.client.preview(document.expanded()).await?;
        let after_ready = preview.hooks.iter().any(|hook| hook.hook == "postStart");
        let goal = if after_ready { FollowGoal::Settled } else { FollowGoal::Ready };
        request(&self.client, LifecycleType::Created, &self.instance, Some(document.expanded())).await?;
        let ended = self.follow(goal, 0).await?;
        let exit = match ended {
            FollowEnd::Reached(_) => Exit::Done,
            FollowEnd::Failed(_) => {
                explain(&self.client, &self.instance.target).await;
                Exit::Failed
            }
            FollowEnd::Deleted => {
                return Err(CliError::failed(format!("{} was deleted by another client", self.instance.target)));
            }
            FollowEnd::TimedOut(_) => {
                explain(&self.client, &self.instance.target).await;
                output::status_line("error: the time given with --wait-timeout is over");
                Exit::Failed
            }
            FollowEnd::Interrupted(_) => {
                output::status_line("interrupted: its resources are being deleted; Ctrl-C again leaves at once");
                return self.delete(Exit::Interrupted, 1).await;
            }
        };
        let reached = self.last.clone();
        // A reader that went away is no reason to leave things behind.
        let printed = match reached.as_deref() {
            Some(seen) if exit == Exit::Done && output.format().is_none() => output::print(&outputs(seen)),
            _ => Ok(()),
        };
        let ran = match then {
            ReadyAction::Delete => self.delete(exit, 0).await?,
            ReadyAction::Keep => {
                output::status_line(&self.how_to_delete());
                RunEnd::Ended(exit)
            }
        };
        printed?;
        if output.format().is_some()
            && let (RunEnd::Ended(_), Some(reached), Some(last)) = (&ran, &reached, &self.last)
        {
            output.write(&result(reached, last), |_| String::new())?;
        }
        Ok(ran)
    }

    /// A sandbox of this name that is left from before is not taken over.
    async fn refuse_existing(&self) -> Result<(), CliError> {
        let target = &self.instance.target;
        match self.client.target(target).await? {
            Some(seen) if seen.info.phase != TargetState::Gone => {
                let phase = labels::phase(seen.info.phase);
                let trouble = CliError::failed(format!(
                    "{target} is there already, {phase} since {}",
                    timing::clock(&seen.info.since)
                ));
                let delete = if is_alive(&seen) {
                    format!("ebb sandbox delete {}", named(target))
                } else {
                    format!("ebb why {}", named(target))
                };
                Err(trouble.with_hint(format!("`ebb dev` and then `{delete}`, or another --state")))
            }
            _ => Ok(()),
        }
    }

    async fn follow(&mut self, goal: FollowGoal, interrupts: u32) -> Result<FollowEnd, CliError> {
        let limits = FollowLimits { timeout: self.timeout, interrupts: (&self.interrupts, interrupts) };
        let ended = follow(&self.client, Some(self.machine), &self.instance, goal, limits, &mut self.screen).await?;
        let seen = match &ended {
            FollowEnd::Reached(seen) | FollowEnd::TimedOut(seen) | FollowEnd::Interrupted(seen) => seen.clone(),
            FollowEnd::Failed(seen) => Some(seen.clone()),
            FollowEnd::Deleted => None,
        };
        self.last = seen.or(self.last.take());
        Ok(ended)
    }

    /// Deletes the sandbox. `exit` is the code if that succeeds; `interrupts` have been seen before.
    async fn delete(&mut self, exit: Exit, interrupts: u32) -> Result<RunEnd, CliError> {
        request(&self.client, LifecycleType::Deleted, &self.instance, None).await?;
        match self.follow(FollowGoal::Gone, interrupts).await? {
            FollowEnd::Reached(_) | FollowEnd::Deleted => {
                if let Some(last) = &mut self.last {
                    last.info.phase = TargetState::Gone;
                }
                Ok(RunEnd::Ended(exit))
            }
            FollowEnd::Failed(_) => {
                explain(&self.client, &self.instance.target).await;
                let target = &self.instance.target;
                output::status_line(&format!(
                    "{target} is stuck; to continue: `ebb dev` and then `ebb retry {}`",
                    named(target)
                ));
                Ok(RunEnd::Ended(Exit::Failed))
            }
            FollowEnd::TimedOut(_) => {
                explain(&self.client, &self.instance.target).await;
                output::status_line("error: the time given with --wait-timeout is over before everything was gone");
                output::status_line(&self.how_to_delete());
                Ok(RunEnd::Ended(Exit::Failed))
            }
            FollowEnd::Interrupted(_) if interrupts == 0 => {
                output::status_line("interrupted: it is being deleted; Ctrl-C again leaves at once");
                Box::pin(self.delete(Exit::Interrupted, 1)).await
            }
            FollowEnd::Interrupted(_) => {
                output::status_line(&remaining_text(self.last.as_deref(), &self.instance));
                Ok(RunEnd::Interrupted)
            }
        }
    }

    fn how_to_delete(&self) -> String {
        let target = &self.instance.target;
        format!("{target} stays; to delete it: `ebb dev` and then `ebb sandbox delete {}`", named(target))
    }
}

/// Publishes a plugin; one that is published with the same content is fine.
async fn publish(client: &ApiClient, plugin: &PluginDoc) -> Result<(), CliError> {
    match client.publish(&plugin.expanded).await {
        Ok(_) => Ok(()),
        Err(error) if error.refusal().is_some_and(|problem| problem.status == 409) => {
            Err(super::plugin::immutable(plugin).with_hint("or use another --state, which has not seen this version"))
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

fn result(reached: &TargetDetail, last: &TargetDetail) -> RunReport {
    // A server that forgets a target forgets its runs: those that were seen before are kept.
    let mut runs: Vec<&RunDetail> = last.runs.iter().collect();
    for run in &reached.runs {
        if !runs.iter().any(|other| other.id == run.id) {
            runs.push(run);
        }
    }
    let units = runs
        .iter()
        .flat_map(|run| run.units.iter().map(|unit| UnitReport { hook: run.hook.clone(), unit: unit.clone() }));
    let outputs = reached.resources.iter().map(|(name, resource)| (name.clone(), resource.outputs.clone()));
    RunReport {
        target: format!("{}/{}", reached.info.kind, reached.info.name),
        phase: last.info.phase,
        outputs: outputs.collect(),
        env: reached.env.clone(),
        units: units.collect(),
    }
}

/// The text after an exit at once: units with resources that may remain, and how to continue.
fn remaining_text(last: Option<&TargetDetail>, instance: &WatchedInstance) -> String {
    let undone: Vec<&str> = last.map(|seen| started_units(&seen.runs)).unwrap_or_default();
    let what = if undone.is_empty() { "nothing that is known of".to_owned() } else { undone.join(", ") };
    format!(
        "left at once; resources of these units may remain: {what}\n  to continue: `ebb dev` and then `ebb sandbox delete {}`",
        named(&instance.target)
    )
}

/// Keys of the units that may have made something.
fn started_units(runs: &[RunDetail]) -> Vec<&str> {
    let before = runs.iter().filter(|run| matches!(run.hook.as_str(), "preStart" | "postStart"));
    let started = |state| !matches!(state, UnitState::Waiting | UnitState::Skipped | UnitState::Blocked);
    before.flat_map(|run| &run.units).filter(|unit| started(unit.state)).map(|unit| unit.key.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures;
    use crate::target::TargetRef;

    #[test]
    fn what_may_be_left_is_named() {
        let view = fixtures::busy();
        assert_eq!(started_units(&view.runs), ["db/provision", "db/seed", "billing/register", "queue/create"]);
        let target = TargetRef { kind: "sandbox".to_owned(), name: "pr-1".to_owned() };
        let instance = WatchedInstance { target, uid: "a".to_owned(), generation: 1 };
        insta::assert_snapshot!(remaining_text(None, &instance), @r"
        left at once; resources of these units may remain: nothing that is known of
          to continue: `ebb dev` and then `ebb sandbox delete pr-1`
        ");
    }
}
