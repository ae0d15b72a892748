//! `ebb unit run` runs one unit alone. `ebb unit rendered` shows the rendered form of a unit of a sandbox.
//! `ebb unit force-complete` overrides one.

mod remote;
mod rendered;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use ebb_documents::model::PluginDoc;
use ebb_documents::plan::{Action, Plan, Template, UnitPlan, UnitRef};
use ebb_documents::render::{self, KnownOutputs, RenderError, RenderedInput, RenderedUnit, TargetFacts, UnitContext};
use ebb_flow::run::script_task;
use ebb_protocol::relay::{ScriptTask, TaskId};
use ebb_protocol::{Callback, CallbackStatus, ForceCompleteUnit, Hook, OutputValue, OverrideResponse, RunId, Unit, id};

use crate::selector::pair;
use crate::{
    ApiClient, BackendArgs, CliError, Exit, InterruptCount, OutputArgs, Result, SetArgs, TargetArgs, documents,
    fresh_uid, labels, offline, server, why,
};

use self::remote::SingleScript;

#[derive(Debug, Subcommand)]
pub(crate) enum UnitCommand {
    /// Run one pod unit; print its log to standard error, its outputs to standard output
    Run(Box<UnitRunArgs>),
    /// Print what a unit was rendered to: its manifests, request or inputs
    Rendered(rendered::RenderedArgs),
    /// Mark a failed teardown unit as complete
    ForceComplete(ForceCompleteArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct UnitRunArgs {
    /// File with the plugin; `-` reads standard input
    file: PathBuf,
    /// Name of the unit
    unit: String,
    /// Value of an input, instead of the plugin's; repeatable
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = pair)]
    inputs: Vec<(String, String)>,
    #[command(flatten)]
    sets: SetArgs,
    /// Folder for state, secrets and logs
    #[arg(long, value_name = "DIR", default_value = server::STATE)]
    state: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
    /// Cluster of --clusters to run in; by default `default`
    #[arg(long = "cluster", value_name = "NAME", requires = "clusters", help_heading = "Kubernetes")]
    named: Option<String>,
    #[command(flatten)]
    backend: BackendArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Remove the unit's resources first: Ebb does not check that they are gone. `ebb why` shows the unit as \
                  overridden, with your reason."
)]
pub(crate) struct ForceCompleteArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Failed unit, as `ebb why` prints it
    #[arg(value_name = "RESOURCE/UNIT")]
    unit: String,
    /// Reason for the override; stored with the unit
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Person who decided it
    #[arg(long, value_name = "NAME", env = "USER")]
    by: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

impl ForceCompleteArgs {
    pub(super) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let target = self.target.target()?;
        let request = ForceCompleteUnit { uid: None, unit: self.unit, reason: self.reason, by: self.by };
        let response: OverrideResponse = client.act(&target, "force-complete", &request).await?;
        self.output.write_status(&response, override_text)
    }
}

pub(crate) fn override_text(response: &OverrideResponse) -> String {
    match response.units.as_slice() {
        [] => format!("The run {} continues", response.run),
        [unit] => format!("{unit} counts as complete; the run {} continues", response.run),
        units => format!("{} count as complete; the run {} continues", units.join(", "), response.run),
    }
}

impl UnitRunArgs {
    pub(super) async fn run(self) -> Result<Exit> {
        let given = given(&self.inputs)?;
        let plugins = documents::plugins(&self.file, &self.sets.vars()?)?;
        let found = plugins.iter().find(|plugin| names(plugin).any(|name| name == self.unit));
        let plugin = found.ok_or_else(|| unknown_unit(&self.unit, &plugins))?;
        let planned = offline::plan_alone(plugin)?;
        let (script, timeout) = script(planned.plan, &self.unit, given)?;
        let interrupts = InterruptCount::listen()?;
        let settings = self.backend.clone().settings().await?;
        let run = RunId::new(&id::instance_key("sandbox", "alone", &fresh_uid()), 1, Hook::PreStart);
        let task = TaskId { unit: TaskId::unit_of(&run, Unit(0)), attempt: 1 };
        let single = SingleScript { task, script, timeout, cluster: self.named.clone() };
        let ended = single.run(&self.state, settings, &interrupts).await?;
        if let Some(ended) = ended { self.print_result(&ended) } else { Ok(Exit::Interrupted) }
    }

    fn print_result(&self, ended: &Callback) -> Result<Exit> {
        if ended.status != CallbackStatus::Succeeded {
            let reason = ended.reason.as_ref().map(labels::reason);
            let reason = reason.unwrap_or_else(|| "it reported no reason".to_owned());
            return Err(CliError::failed(format!("{} failed: {reason}", self.unit)));
        }
        let outputs = outputs(ended);
        self.output.write(&outputs, |outputs| why::value_lines("", outputs))
    }
}

fn given(inputs: &[(String, String)]) -> Result<BTreeMap<String, String>> {
    let mut given = BTreeMap::new();
    for (name, value) in inputs {
        if given.insert(name.clone(), value.clone()).is_some() {
            return Err(CliError::broken(format!("--input {name} is given twice")).with_hint("set each input once"));
        }
    }
    Ok(given)
}

fn names(plugin: &PluginDoc) -> impl Iterator<Item = &str> {
    plugin.hooks().flat_map(|(_, hook)| &hook.inner).map(|unit| unit.name.value.as_str())
}

fn unknown_unit(unit: &str, plugins: &[PluginDoc]) -> CliError {
    let all: Vec<&str> = plugins.iter().flat_map(names).collect();
    let error = CliError::failed(format!("the plugin has no unit `{unit}`"));
    match ebb_documents::cel::nearest(unit, all.iter().copied()) {
        Some(near) => error.with_hint(format!("did you mean `{near}`?")),
        None => error.with_hint(format!("units: {}", all.join(", "))),
    }
}

/// Returns the script of a unit, rendered with its inputs, and its timeout. `given` replaces inputs of the plan.
fn script(mut plan: Plan, name: &str, mut given: BTreeMap<String, String>) -> Result<(ScriptTask, Duration)> {
    let found = plan.hooks.iter().enumerate().find_map(|(hook, of)| {
        let unit = of.units.iter().position(|unit| unit.document_name() == name)?;
        Some((hook, unit))
    });
    let (hook, position) = found.ok_or_else(|| CliError::failed(format!("the plugin has no unit `{name}`")))?;
    let at = UnitRef { hook: plan.hooks[hook].hook, unit: u32::try_from(position).unwrap_or(u32::MAX) };
    let undone = plan.hooks[hook].units[position].undoes.first();
    let undone = undone.and_then(|&undone| Some(plan.unit(undone)?.key.clone()));
    let unit = &mut plan.hooks[hook].units[position];
    let Action::Pod(pod) = unit.action.clone() else {
        return Err(CliError::failed(format!("{name} is a {} unit; only pod units can run alone", unit.action.kind())));
    };
    for input in &mut unit.inputs {
        if let Some(value) = given.remove(&input.name) {
            input.value = Template::Literal(value.into());
            input.sensitive = false;
        }
    }
    if let Some(name) = given.keys().next() {
        let names: Vec<&str> = unit.inputs.iter().map(|input| input.name.as_str()).collect();
        return Err(CliError::broken(format!("the unit has no input `{name}`"))
            .with_hint(format!("inputs: {}", names.join(", "))));
    }
    // The user requests the unit explicitly, so its condition does not apply.
    unit.when = None;
    unit.undoes.clear();
    let unit = unit.clone();
    let inputs = rendered(&plan, at, &unit)?;
    let env = environment(&unit.key, undone.as_deref().unwrap_or(&unit.key), at.hook.name());
    Ok((script_task(&unit, &pod, env, inputs), Duration::from_millis(unit.timeout_ms)))
}

fn rendered(plan: &Plan, at: UnitRef, unit: &UnitPlan) -> Result<Vec<RenderedInput>> {
    let broken = |error: &RenderError| {
        CliError::failed("cannot compute the unit's inputs")
            .with_causes(error)
            .with_hint("set them with --input NAME=VALUE")
    };
    let facts = TargetFacts {
        kind: "sandbox".to_owned(),
        name: "alone".to_owned(),
        uid: "alone".to_owned(),
        namespace: plan.target.namespace.clone(),
        key: key(),
        generation: 1,
        ..TargetFacts::default()
    };
    let context = UnitContext { plan, at, facts: &facts, known: &KnownOutputs::new() };
    match render::unit(context, None).map_err(|error| broken(&error))? {
        RenderedUnit::Pod { inputs } => Ok(inputs),
        _ => Err(CliError::failed(format!("{} is skipped", unit.key))),
    }
}

/// Returns the instance key of the target. Names and labels are derived from it.
fn key() -> String {
    id::instance_key("sandbox", "alone", "alone")
}

/// Returns the variables that every script gets. An undo has the `EBB_KEY` of `undone`, the unit that it reverses.
fn environment(unit: &str, undone: &str, hook: &str) -> Vec<(String, String)> {
    let (resource, name) = unit.split_once('/').unwrap_or(("", unit));
    let (key_resource, key_unit) = undone.split_once('/').unwrap_or(("", undone));
    let key = key();
    let pairs = [
        ("EBB_KEY", id::unit_key(&key, key_resource, key_unit)),
        ("EBB_ATTEMPT", "1".to_owned()),
        ("EBB_HOOK", hook.to_owned()),
        ("EBB_RESOURCE", resource.to_owned()),
        ("EBB_UNIT", name.to_owned()),
        ("EBB_TARGET_KIND", "sandbox".to_owned()),
        ("EBB_TARGET_NAME", "alone".to_owned()),
        ("EBB_TARGET_UID", "alone".to_owned()),
        ("SIGNADOT_SANDBOX_ID", key.clone()),
        ("SIGNADOT_SANDBOX_NAME", "alone".to_owned()),
        ("SIGNADOT_SANDBOX_ROUTING_KEY", key.clone()),
        ("SIGNADOT_RESOURCE_NAME", resource.to_owned()),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

fn outputs(ended: &Callback) -> BTreeMap<String, OutputValue> {
    let plain = ended.outputs.iter().map(|(name, value)| (name.clone(), OutputValue::Value(value.clone())));
    let binary = ended.binary.iter().map(|(name, value)| (name.clone(), OutputValue::Base64(value.clone())));
    let secret = ended.secrets.iter().map(|(name, value)| (name.clone(), OutputValue::Secret(value.clone())));
    plain.chain(binary).chain(secret).collect()
}
