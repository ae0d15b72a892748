//! The outputs of a target's resources, its variables and the values of its workloads, for a reader.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::plan::{Plan, UnitRef, WorkloadRead};
use ebb_documents::render::{self, KnownOutputs, RenderValue};
use ebb_protocol::lifecycle::{OutputValue, WorkloadValue};
use ebb_protocol::{AttemptOutcome, Hook, OutputStorage, Outputs, Unit, UnitValue, WebhookKeys, limits};
use ebb_store::TargetHead;

use crate::run::records;
use crate::{CompiledPlan, Env, FlowResult, sealed_values, target_facts};

/// Maximum records with outputs in memory, each with at most [`limits::OUTPUTS_INLINE`] bytes.
const MAX_RECORDS: usize = 1_000;

/// The fix for outputs that are too large for a response.
pub const READ_LESS: &str =
    "read those of one resource with `?outputs=RESOURCE`, or one of them with `?outputs=RESOURCE/OUTPUT`";

/// The reason why some outputs have no value, as text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputsProblem {
    /// All together are too large. They can be read one by one.
    TooLarge(String),
    /// A value cannot be computed.
    Render(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetOutputs {
    pub outputs: BTreeMap<String, BTreeMap<String, OutputValue>>,
    pub env: BTreeMap<String, OutputValue>,
    pub workloads: BTreeMap<String, Vec<WorkloadValue>>,
    pub problem: Option<OutputsProblem>,
    /// The names of the sensitive values that are revealed: `RESOURCE.OUTPUT` or `env.NAME`.
    pub revealed: Vec<String>,
}

/// The treatment of the sensitive values that Ebb stores. No notification reveals them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SensitiveValues {
    Hidden,
    Revealed,
}

/// Returns the outputs of a target's resources that exist so far, without `env` if `only` limits them as in
/// [`Plan::public_outputs`](ebb_documents::plan::Plan::public_outputs). Reads only the units that they refer to.
pub async fn target_outputs(
    env: &Env,
    target: &TargetHead,
    loaded: &CompiledPlan,
    only: Option<&str>,
    sensitive: SensitiveValues,
) -> FlowResult<TargetOutputs> {
    let Some(known) = shown_outputs(env, target, loaded, only).await? else {
        let problem = too_large("the visible outputs of the resources");
        return Ok(TargetOutputs { problem, ..TargetOutputs::default() });
    };
    let instance = target.target_key().instance(&target.uid);
    let facts = target_facts(instance, target.generation, &loaded.plan.target);
    let mut result = TargetOutputs::default();
    let keys = (sensitive == SensitiveValues::Revealed).then_some(&env.settings.unit_keys);
    let mut shown = ShownValues { keys, revealed: Vec::new(), lost: Vec::new() };
    let failed = |errors: &[render::RenderError]| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Some(OutputsProblem::Render(limits::message(&errors.join("; "))))
    };
    match render::resource_outputs(&loaded.plan, &facts, &known, only) {
        Ok(values) => {
            result.outputs = values.into_iter().map(|(name, values)| (name.clone(), shown.of(&name, values))).collect();
        }
        Err(error) => result.problem = failed(&[error]),
    }
    if only.is_some() {
        return Ok(shown.noted(result));
    }
    let (variables, errors) = render::env(&loaded.plan, &facts, &known);
    result.env = shown.of("env", variables);
    if !errors.is_empty() {
        result.problem = failed(&errors);
    }
    match workload_values(&loaded.plan, &result.outputs) {
        Some(workloads) => result.workloads = workloads,
        None => result.problem = too_large("the values of the workloads"),
    }
    Ok(shown.noted(result))
}

fn too_large(what: &str) -> Option<OutputsProblem> {
    let most = limits::SHOWN_OUTPUTS >> 20;
    Some(OutputsProblem::TooLarge(format!("{what} have more than {most} MiB together; {READ_LESS}")))
}

/// Returns the values of the workloads, without those that do not exist. Many workloads can read one value: returns
/// `None` if all together are larger than [`limits::SHOWN_OUTPUTS`].
fn workload_values(
    plan: &Plan,
    outputs: &BTreeMap<String, BTreeMap<String, OutputValue>>,
) -> Option<BTreeMap<String, Vec<WorkloadValue>>> {
    let mut size = 0;
    let mut workloads: BTreeMap<String, Vec<WorkloadValue>> = BTreeMap::new();
    for (name, read) in plan.workloads.iter().flat_map(|(name, reads)| reads.iter().map(move |read| (name, read))) {
        let Some(value) = outputs.get(&read.resource).and_then(|outputs| outputs.get(&read.output)) else { continue };
        size += limits::lambda_event_size_of(value);
        if size > limits::SHOWN_OUTPUTS {
            return None;
        }
        let WorkloadRead { env, container, file, .. } = read.clone();
        workloads.entry(name.clone()).or_default().push(WorkloadValue { env, container, file, value: value.clone() });
    }
    Some(workloads)
}

/// Returns the outputs that the target's resources refer to, by unit. Returns `None` if they are larger than
/// [`limits::SHOWN_OUTPUTS`].
async fn shown_outputs(
    env: &Env,
    target: &TargetHead,
    loaded: &CompiledPlan,
    only: Option<&str>,
) -> FlowResult<Option<KnownOutputs>> {
    let mut wanted: BTreeMap<Hook, BTreeMap<Unit, BTreeSet<&str>>> = BTreeMap::new();
    for (at, names) in loaded.plan.visible_outputs(only) {
        wanted.entry(at.hook).or_default().insert(Unit(at.unit), names);
    }
    let mut known = KnownOutputs::new();
    let mut remaining = limits::SHOWN_OUTPUTS;
    for (hook, wanted) in wanted {
        let run = target.run(hook);
        let units: Vec<Unit> = wanted.keys().copied().collect();
        for units in units.chunks(MAX_RECORDS) {
            let records = env.store.read_records(&run, units).await?;
            // Records are in the order of attempts, so the success of the highest attempt counts.
            let successes: BTreeMap<Unit, OutputStorage> = records
                .into_iter()
                .filter_map(|(unit, _, record)| Some((unit, record.result?)))
                .filter(|(_, result)| result.outcome == AttemptOutcome::Succeeded)
                .map(|(unit, result)| (unit, result.outputs))
                .collect();
            let keep = |unit: &Unit, outputs: Outputs| -> Outputs {
                let is_wanted = |name: &str| wanted.get(unit).is_some_and(|names| names.contains(name));
                outputs.into_iter().filter(|(name, _)| is_wanted(name)).collect()
            };
            for (unit, outputs) in records::read_all_outputs(env, successes, keep).await? {
                let bytes = outputs.values().map(UnitValue::size).sum();
                let Some(rest) = remaining.checked_sub(bytes) else { return Ok(None) };
                remaining = rest;
                known.insert(UnitRef { hook, unit: unit.0 }, records::produced(&run, unit, outputs));
            }
        }
    }
    Ok(Some(known))
}

/// Converts values for a reader. Decrypts those that Ebb stores encrypted if it has `keys`.
struct ShownValues<'a> {
    keys: Option<&'a WebhookKeys>,
    revealed: Vec<String>,
    /// The values whose root secret is missing.
    lost: Vec<String>,
}

impl ShownValues<'_> {
    fn of(&mut self, origin: &str, values: BTreeMap<String, RenderValue>) -> BTreeMap<String, OutputValue> {
        let shown = values.into_iter().map(|(name, value)| {
            let value = match (value, self.keys) {
                (RenderValue::Sealed(sealed), Some(keys)) => {
                    let opened = sealed_values::open(keys, &sealed);
                    let names = if opened.is_some() { &mut self.revealed } else { &mut self.lost };
                    names.push(format!("{origin}.{name}"));
                    opened.unwrap_or(UnitValue::Sealed(sealed.text))
                }
                (value, _) => records::from_rendered(value),
            };
            (name, OutputValue::from(value))
        });
        shown.collect()
    }

    /// Adds the names of revealed values and of lost ones to a result.
    fn noted(self, mut result: TargetOutputs) -> TargetOutputs {
        if !self.lost.is_empty() {
            let problem = format!(
                "{} cannot be decrypted, because the root secret that encrypted them is missing; restore it in the list of \
                 unit secrets (EBB_UNIT_SECRETS)",
                self.lost.join(", ")
            );
            result.problem.get_or_insert(OutputsProblem::Render(limits::message(&problem)));
        }
        result.revealed = self.revealed;
        result
    }
}
