//! `ebb run`: creates a sandbox on this machine from files, and optionally deletes it.

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
#[command(
    after_help = "Examples:\n  ebb run sandbox.yaml --plugin plugin.yaml --rm\n  ebb run sandbox.yaml --plugin plugin.yaml --set region=eu-north-1 -o json"
)]
pub(crate) struct RunArgs {
    /// File with the sandbox; `-` reads standard input
    file: PathBuf,
    /// File with plugins; repeatable
    #[arg(long = "plugin", value_name = "FILE", num_args = 1..)]
    plugins: Vec<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    /// Delete the sandbox when it is ready
    #[arg(long)]
    rm: bool,
    /// Folder for state, secrets and logs
    #[arg(long, value_name = "DIR", default_value = server::STATE)]
    state: PathBuf,
    /// Longest time until the sandbox is ready, and again until it is deleted; by default only the timeouts of units
    /// apply
    #[arg(long, value_name = "DURATION", value_parser = timing::parse)]
    wait_timeout: Option<Duration>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    cluster: cluster::ClusterArgs,
    #[command(flatten)]
    pods: pods::PodsArgs,
}

/// The output of `-o json|yaml`.
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

/// The action after the sandbox is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadyAction {
    Keep,
    Delete,
}

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
            // The files locate errors better than the server, which reads expanded documents.
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
        // After a second Ctrl-C, the program does not wait for the server to stop.
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

enum RunEnd {
    Ended(Exit),
    /// The user pressed Ctrl-C again during the deletion.
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
                output::status_line("error: the sandbox is not ready after --wait-timeout");
                Exit::Failed
            }
            FollowEnd::Interrupted(_) => {
                output::status_line("interrupted: deleting its resources; press Ctrl-C again to exit at once");
                return self.delete(Exit::Interrupted, 1).await;
            }
        };
        let reached = self.last.clone();
        // A closed standard output does not stop the deletion.
        let printed = match reached.as_deref() {
            Some(seen) if exit == Exit::Done && output.format().is_none() => output::print(&outputs(seen)),
            _ => Ok(()),
        };
        let end = match then {
            ReadyAction::Delete => self.delete(exit, 0).await?,
            ReadyAction::Keep => {
                output::status_line(&self.how_to_delete());
                RunEnd::Ended(exit)
            }
        };
        printed?;
        if output.format().is_some()
            && let (RunEnd::Ended(_), Some(reached), Some(last)) = (&end, &reached, &self.last)
        {
            output.write(&result(reached, last), |_| String::new())?;
        }
        Ok(end)
    }

    /// Fails if a sandbox of this name exists already.
    async fn refuse_existing(&self) -> Result<(), CliError> {
        let target = &self.instance.target;
        match self.client.target(target).await? {
            Some(seen) if seen.info.phase != TargetState::Gone => {
                let phase = labels::phase(seen.info.phase);
                let error = CliError::failed(format!(
                    "{target} exists already, {phase} since {}",
                    timing::clock(&seen.info.since)
                ));
                let delete = if is_alive(&seen) {
                    format!("ebb sandbox delete {}", named(target))
                } else {
                    format!("ebb why {}", named(target))
                };
                Err(error.with_hint(format!("run `ebb dev` and `{delete}`, or use another --state")))
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

    /// Deletes the sandbox.
    ///
    /// Returns `exit` if the deletion succeeds. `interrupts` is the number of interrupts so far.
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
                    "{target} is stuck; to continue, run `ebb dev` and `ebb retry {}`",
                    named(target)
                ));
                Ok(RunEnd::Ended(Exit::Failed))
            }
            FollowEnd::TimedOut(_) => {
                explain(&self.client, &self.instance.target).await;
                output::status_line("error: the sandbox is not deleted after --wait-timeout");
                output::status_line(&self.how_to_delete());
                Ok(RunEnd::Ended(Exit::Failed))
            }
            FollowEnd::Interrupted(_) if interrupts == 0 => {
                output::status_line("interrupted: the deletion continues; press Ctrl-C again to exit at once");
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
        format!("{target} remains; to delete it, run `ebb dev` and `ebb sandbox delete {}`", named(target))
    }
}

/// Publishes a plugin. A version with the same content counts as success.
async fn publish(client: &ApiClient, plugin: &PluginDoc) -> Result<(), CliError> {
    match client.publish(&plugin.expanded).await {
        Ok(_) => Ok(()),
        Err(error) if error.refusal().is_some_and(|problem| problem.status == 409) => {
            Err(super::plugin::immutable(plugin).with_hint("or use another --state"))
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
    // A server can forget a target and its runs. The runs of the earlier response are kept.
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

/// The message after an immediate exit: units whose resources may remain, and how to continue.
fn remaining_text(last: Option<&TargetDetail>, instance: &WatchedInstance) -> String {
    let started: Vec<&str> = last.map(|seen| started_units(&seen.runs)).unwrap_or_default();
    let units = if started.is_empty() { "none".to_owned() } else { started.join(", ") };
    format!(
        "stopped at once; resources of these units may remain: {units}\n  to continue, run `ebb dev` and `ebb sandbox delete {}`",
        named(&instance.target)
    )
}

/// Returns the keys of the units that may have created resources.
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
    fn units_with_possible_resources_are_listed() {
        let view = fixtures::busy();
        assert_eq!(started_units(&view.runs), ["db/provision", "db/seed", "billing/register", "queue/create"]);
        let target = TargetRef { kind: "sandbox".to_owned(), name: "pr-1".to_owned() };
        let instance = WatchedInstance { target, uid: "a".to_owned(), generation: 1 };
        insta::assert_snapshot!(remaining_text(None, &instance), @r"
        stopped at once; resources of these units may remain: none
          to continue, run `ebb dev` and `ebb sandbox delete pr-1`
        ");
    }
}
