//! `ebb run`: creates a sandbox on this machine from files, and optionally deletes it.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stderr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_documents::{ConnectionDoc, PluginDoc, SandboxDoc, load};
use ebb_local::StackSettings;
use ebb_protocol::{ConnectionDetail, LifecycleType, OutputValue, RunDetail, TargetDetail, TargetPhase, UnitState};
use serde::Serialize;
use serde_json::json;

use super::open;
use crate::lifecycle::{data, named};
use crate::{
    BackendArgs, CliError, DocumentSource, Exit, FollowEnd, FollowGoal, FollowLimits, InterruptCount, LocalServer,
    OutputArgs, ProgressScreen, Result, SetArgs, TargetRef, WatchedInstance, documents, follow, fresh_uid, labels,
    offline, output, server, timing, why,
};

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// File with the sandbox; `-` reads standard input
    file: PathBuf,
    /// File with plugins; repeatable
    #[arg(long = "plugin", value_name = "FILE", num_args = 1..)]
    plugins: Vec<PathBuf>,
    /// File with a connection; repeatable
    #[arg(long = "connection", value_name = "FILE", num_args = 1..)]
    connections: Vec<PathBuf>,
    #[command(flatten)]
    sets: SetArgs,
    /// Delete the sandbox when it is ready
    #[arg(long)]
    rm: bool,
    /// Print a link to the page of the sandbox; in a terminal, open it and keep the console until Ctrl-C
    #[arg(long)]
    open: bool,
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
    backend: BackendArgs,
}

/// The output of `-o json|yaml`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RunReport {
    target: String,
    phase: TargetPhase,
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

struct LocalSandbox<'a> {
    args: &'a RunArgs,
    machine: &'a LocalServer,
    instance: WatchedInstance,
    interrupts: InterruptCount,
    last: Option<TargetDetail>,
    screen: ProgressScreen,
    /// True after an interrupt of the deletion: the program does not wait for the server to stop.
    is_left: bool,
}

impl RunArgs {
    pub(crate) async fn run(self) -> Result<Exit> {
        let vars = self.sets.vars()?;
        let document = documents::single_target(&self.file, &vars)?;
        let plugins = documents::all_plugins(&self.plugins, &vars)?;
        let connections = self.connections.iter().map(|path| -> Result<ConnectionDoc> {
            let DocumentSource { name, text, folder } = DocumentSource::read(path)?;
            Ok(load::connection(&name, &text, &folder, &vars)?)
        });
        let connections = connections.collect::<Result<Vec<_>>>()?;
        if offline::complete(&document, &plugins) {
            // Errors from the files have exact positions. The server reads expanded documents.
            documents::warn(&offline::plan(&document, &plugins)?.warnings);
        }
        let interrupts = InterruptCount::listen()?;
        let units = self.backend.clone().settings().await?;
        let is_own_state = !self.state.exists();
        let machine = LocalServer::start(StackSettings { state: self.state.clone(), ..units }).await?;
        let target = documents::target_of(&document, "sandbox");
        let mut sandbox = LocalSandbox {
            args: &self,
            machine: &machine,
            instance: WatchedInstance { target, uid: fresh_uid(), generation: 1 },
            interrupts: interrupts.clone(),
            last: None,
            screen: ProgressScreen::new(),
            is_left: false,
        };
        let ended = sandbox.run_to_end(&document, &plugins, &connections).await;
        let is_gone_for_certain = |TargetDetail { info, .. }: &TargetDetail| {
            info.phase == TargetPhase::Gone && info.unconfirmed == 0 && !info.overridden
        };
        let is_complete = ended.is_ok() && sandbox.last.as_ref().is_some_and(is_gone_for_certain);
        if sandbox.is_left {
            return ended;
        }
        let seen = interrupts.count();
        let lock = tokio::select! {
            lock = machine.stack.stop() => lock,
            () = interrupts.more_than(seen) => return ended,
        };
        if is_own_state && is_complete {
            // Nothing remains that it could delete or explain.
            lock.remove(&self.state).map_err(|error| {
                CliError::broken(format!("cannot remove {}", self.state.display())).with_causes(&error)
            })?;
        }
        ended
    }
}

impl LocalSandbox<'_> {
    async fn run_to_end(
        &mut self,
        document: &SandboxDoc,
        plugins: &[PluginDoc],
        connections: &[ConnectionDoc],
    ) -> Result<Exit> {
        let output = self.args.output;
        self.refuse_existing().await?;
        for connection in connections {
            let path = ["connections", &connection.name.value];
            self.machine.client.put::<ConnectionDetail>(&path, &json!({"document": connection.expanded}), &[]).await?;
        }
        for plugin in plugins {
            // A version with the same content counts as success.
            if let Err(error) = self.machine.client.publish(&plugin.expanded).await {
                let immutable = || super::plugin::immutable(plugin).with_hint("or use another --state");
                return Err(if error.has_status(409) { immutable() } else { error });
            }
        }
        let preview = self.machine.client.preview(&document.expanded).await?;
        let after_ready = preview.hooks.iter().any(|hook| hook.hook == "postStart");
        let goal = if after_ready { FollowGoal::Settled } else { FollowGoal::Ready };
        let created = data(&self.instance, Some(&document.expanded));
        self.machine.client.lifecycle(LifecycleType::Created, &created).await?;
        if self.args.open {
            // The link signs in once. In a terminal, a browser opens the page.
            let page = self.machine.client.console(Some(&self.instance.target));
            let link = self.machine.client.console_link(&page).await;
            let line = link.map_or_else(|| format!("console {page}"), |link| format!("console {link} (signs in once)"));
            output::status_line(&line);
            if stderr().is_terminal() {
                open::in_browser(&page);
            }
        }
        let exit = match self.follow(goal, 0).await? {
            FollowEnd::Reached => Exit::Done,
            FollowEnd::Failed => self.explained("").await,
            FollowEnd::Deleted => {
                return Err(CliError::failed(format!("{} was deleted by another client", self.instance.target)));
            }
            FollowEnd::TimedOut => {
                self.explained("error: the sandbox is not ready after --wait-timeout").await;
                Exit::TimedOut
            }
            FollowEnd::Interrupted => {
                output::status_line("interrupted: deleting its resources; press Ctrl-C again to exit at once");
                return self.delete(Exit::Interrupted, 1).await;
            }
        };
        let reached = self.last.clone();
        // A closed standard output does not stop the deletion.
        let printed = match &reached {
            Some(seen) if exit == Exit::Done && output.format.is_none() => {
                output::print(&(why::output_lines(&seen.resources) + &why::value_lines("env.", &seen.env)))
            }
            _ => Ok(Exit::Done),
        };
        if let Some(problem) = reached.as_ref().and_then(|seen| seen.outputs_error.as_ref()) {
            output::status_line(&format!("warning: {problem}"));
        }
        let mut seen = 0;
        if self.args.open && stderr().is_terminal() {
            output::status_line("the console stays open until Ctrl-C");
            self.interrupts.more_than(seen).await;
            seen = self.interrupts.count();
        }
        let exit = if self.args.rm {
            self.delete(exit, seen).await?
        } else {
            output::status_line(&self.how_to_delete());
            exit
        };
        printed?;
        if let (false, Some(reached), Some(last)) = (self.is_left, &reached, &self.last) {
            output.write_data(&result(reached, last))?;
        }
        Ok(exit)
    }

    /// Prints the diagnosis and `line`. Returns the exit code of a failure.
    async fn explained(&self, line: &str) -> Exit {
        if let Ok(mut why) = self.machine.client.why(&self.instance.target).await {
            // They are commands for a server. This one ends with the command.
            why.next_steps.clear();
            output::status_line(&why::text(&why));
        }
        if !line.is_empty() {
            output::status_line(line);
        }
        Exit::Failed
    }

    async fn refuse_existing(&self) -> Result<()> {
        let target = &self.instance.target;
        let Some(seen) = self.machine.client.target(target).await? else { return Ok(()) };
        if seen.info.phase == TargetPhase::Gone {
            return Ok(());
        }
        let (phase, since) = (labels::name(&seen.info.phase), timing::clock(&seen.info.since));
        let next = if seen.info.phase.is_alive() { delete(target) } else { format!("ebb why {}", named(target)) };
        let next = format!("run `{}` and `{next}`, or use another --state", dev(&self.args.state));
        Err(CliError::failed(format!("{target} exists already, {phase} since {since}")).with_hint(next))
    }

    async fn follow(&mut self, goal: FollowGoal, interrupts: u32) -> Result<FollowEnd> {
        let limits = FollowLimits { timeout: self.args.wait_timeout, interrupts: (&self.interrupts, interrupts) };
        let (ended, seen) =
            follow(&self.machine.client, Some(self.machine), &self.instance, goal, limits, &mut self.screen).await?;
        self.last = seen.or(self.last.take());
        Ok(ended)
    }

    /// Deletes the sandbox.
    ///
    /// Returns `exit` if the deletion succeeds. `interrupts` is the number of interrupts so far.
    async fn delete(&mut self, exit: Exit, interrupts: u32) -> Result<Exit> {
        self.machine.client.lifecycle(LifecycleType::Deleted, &data(&self.instance, None)).await?;
        Ok(match self.follow(FollowGoal::Gone, interrupts).await? {
            FollowEnd::Reached | FollowEnd::Deleted => {
                if let Some(last) = &mut self.last {
                    last.info.phase = TargetPhase::Gone;
                }
                exit
            }
            FollowEnd::Failed => {
                let target = &self.instance.target;
                let (dev, name) = (dev(&self.args.state), named(target));
                self.explained(&format!("{target} is stuck; to continue, run `{dev}` and `ebb retry {name}`")).await
            }
            FollowEnd::TimedOut => {
                let line = "error: the sandbox is not deleted after --wait-timeout";
                self.explained(&format!("{line}\n{}", self.how_to_delete())).await;
                Exit::TimedOut
            }
            FollowEnd::Interrupted if interrupts == 0 => {
                output::status_line("interrupted: the deletion continues; press Ctrl-C again to exit at once");
                Box::pin(self.delete(Exit::Interrupted, 1)).await?
            }
            FollowEnd::Interrupted => {
                output::status_line(&remaining_text(self.last.as_ref(), &self.instance, &self.args.state));
                self.is_left = true;
                Exit::Interrupted
            }
        })
    }

    fn how_to_delete(&self) -> String {
        let (target, dev) = (&self.instance.target, dev(&self.args.state));
        format!("{target} remains; to delete it, run `{dev}` and `{}`", delete(target))
    }
}

fn result(reached: &TargetDetail, last: &TargetDetail) -> RunReport {
    // A server can lose a target and its runs. The runs of the earlier response are kept.
    let lost = reached.runs.iter().filter(|run| !last.runs.iter().any(|other| other.id == run.id));
    let units =
        last.runs.iter().chain(lost).flat_map(|run| {
            run.units.iter().map(move |unit| UnitReport { hook: run.hook.clone(), unit: unit.clone() })
        });
    let outputs = reached.resources.iter().map(|(name, resource)| (name.clone(), resource.outputs.clone()));
    RunReport {
        target: TargetRef::from(&reached.info).to_string(),
        phase: last.info.phase,
        outputs: outputs.collect(),
        env: reached.env.clone(),
        units: units.collect(),
    }
}

/// Returns the message after an immediate exit, with units whose resources may remain and with the next command.
fn remaining_text(last: Option<&TargetDetail>, instance: &WatchedInstance, state: &Path) -> String {
    let started: Vec<&str> = last.map(|seen| started_units(&seen.runs)).unwrap_or_default();
    let units = if started.is_empty() { "none".to_owned() } else { started.join(", ") };
    let (dev, delete) = (dev(state), delete(&instance.target));
    format!("stopped at once; resources of these units may remain: {units}\n  to continue, run `{dev}` and `{delete}`")
}

fn dev(state: &Path) -> String {
    if state == Path::new(server::STATE) {
        "ebb dev".to_owned()
    } else {
        format!("ebb dev --state {}", state.display())
    }
}

fn delete(TargetRef { kind, name }: &TargetRef) -> String {
    format!("ebb delete {kind} {name}")
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

    #[test]
    fn units_with_possible_resources_are_listed() {
        let view = fixtures::target("busy");
        assert_eq!(started_units(&view.runs), ["db/provision", "db/seed", "billing/register", "queue/create"]);
        insta::assert_snapshot!(remaining_text(None, &fixtures::instance(), Path::new("/s")), @r"
        stopped at once; resources of these units may remain: none
          to continue, run `ebb dev --state /s` and `ebb delete sandbox pr-1`
        ");
    }
}
