//! Compiles documents into previews of plans.

use std::collections::BTreeMap;

use ebb_documents::compile::{EdgeReason, edges};
use ebb_documents::model::RouteGroupDoc;
use ebb_documents::plan::{Action, InfrakitAction, Plan, PluginInterface, Template, UnitRef, UntilPlan, WebhookAction};
use ebb_documents::render::{self, KnownOutputs, RenderValue, RenderedUnit, RequestBody, TargetFacts, UnitContext};
use ebb_documents::{Document, DocumentVars, NoFiles, durations, load};
use ebb_protocol::{EdgePreview, HookPreview, OutputValue, PlanPreview, TargetKey, Unit, UnitPreview};
use serde_json::{Value, json};

use super::cluster_policies;
use crate::HttpProblem;
use ebb_flow::instance::changes::PinnedVersions;
use ebb_flow::instance::target_document::{DocumentNotes, compile_document, compiler_tools};
use ebb_flow::{CompiledPlan, Env, FlowResult, RequestError, offload, target_facts};

/// The kind of a target whose document names none.
const SANDBOX: &str = "sandbox";

/// Compiles a document with the published plugins and returns a preview of the plan. An invalid document is rejected
/// with its errors.
pub async fn preview(env: &Env, document: &str) -> Result<PlanPreview, RequestError> {
    let text = document.to_owned();
    let loaded = offload(move || load::document("document", &text, &NoFiles, &DocumentVars::none())).await?;
    let (kind, name) = match loaded? {
        Document::Sandbox(target) | Document::RouteGroup(RouteGroupDoc { target, .. }) => {
            (target.target_kind.map_or_else(|| SANDBOX.to_owned(), |kind| kind.value), target.name.value)
        }
        other => (SANDBOX.to_owned(), other.name().to_owned()),
    };
    let instance = TargetKey::new(&kind, &name).instance("");
    let (plan, notes) =
        compile_document(&env.store, compiler_tools(env), instance, document, PinnedVersions::Latest).await?;
    Ok(shown_plan(env, (kind, name), plan, &notes).await?)
}

/// Returns a preview of a compiled plan of the target `kind/name` with its warnings, and with violations of the policies of
/// its clusters.
pub(crate) async fn shown_plan(
    env: &Env,
    (kind, name): (String, String),
    plan: Plan,
    notes: &DocumentNotes,
) -> FlowResult<PlanPreview> {
    let mut warnings: Vec<_> = notes.warnings.iter().map(HttpProblem::document_error).collect();
    warnings.extend(cluster_policies::check(env, &notes.requests).await?);
    let preview = offload(move || show(&kind, &name, plan)).await??;
    Ok(PlanPreview { warnings, ..preview })
}

/// Returns a preview of a compiled plan for the target `kind/name`: order and edges of the units, and each unit with its known
/// inputs.
///
/// # Errors
/// Returns [`FlowError::Broken`](ebb_flow::FlowError::Broken) if the plan does not come from the compiler.
pub fn show(kind: &str, name: &str, plan: Plan) -> FlowResult<PlanPreview> {
    let digest = plan.digest();
    let loaded = CompiledPlan::of(plan, &digest)?;
    let plan = &loaded.plan;
    let instance = TargetKey::new(kind, name).instance("<uid>");
    let facts = TargetFacts { key: TargetFacts::UNKNOWN_KEY.to_owned(), ..target_facts(instance, 1, &plan.target) };
    let mut hooks = Vec::new();
    for hook in &plan.hooks {
        let Some((_, graph)) = loaded.hook_plan(hook.hook) else { continue };
        let mut units = Vec::new();
        for Unit(position) in graph.order() {
            let Some(unit) = hook.units.get(position as usize) else { continue };
            let at = UnitRef { hook: hook.hook, unit: position };
            let known = &KnownOutputs::new();
            let context = UnitContext { plan, at, facts: &facts, known };
            let rendered = match render::preview(context) {
                Ok(rendered) => shown(&unit.action, rendered),
                Err(error) => json!({ "error": error.to_string() }),
            };
            let after = edges(hook, unit).into_iter().map(|(first, reason)| EdgePreview {
                key: first.key.clone(),
                reason: match reason {
                    EdgeReason::Reads(output) => format!("reads {output}"),
                    EdgeReason::After => "after".to_owned(),
                    EdgeReason::TeardownOrder => "teardown order".to_owned(),
                },
            });
            units.push(UnitPreview {
                key: unit.key.clone(),
                kind: unit.action.kind().to_owned(),
                cluster: unit.cluster.clone(),
                after: after.collect(),
                rendered,
            });
        }
        hooks.push(HookPreview { hook: hook.hook.name().to_owned(), units });
    }
    Ok(PlanPreview { digest, hooks, env: known_env(plan, &facts), warnings: Vec::new() })
}

/// Returns the variables that are known before the first unit runs: those that read no outputs, and sensitive ones.
fn known_env(plan: &Plan, facts: &TargetFacts) -> BTreeMap<String, OutputValue> {
    let sealed = RenderValue::Sealed(render::SealedValue { place: String::new(), text: String::new() });
    // A sensitive output is passed on whole, so a variable with this value is sensitive.
    let sensitive = plan.visible_outputs(None).into_iter().filter_map(|(at, names)| {
        let made = &plan.unit(at)?.outputs;
        let names = names.into_iter().filter(|name| made.get(*name).is_some_and(|output| output.sensitive));
        Some((at, render::ProducerState::Outputs(names.map(|name| (name.to_owned(), sealed.clone())).collect())))
    });
    let (variables, _) = render::env(plan, facts, &sensitive.collect());
    let reads_outputs = |name: &str| matches!(&plan.env[name], Template::Text(text) if text.contains("outputs"));
    let known = variables.into_iter().filter_map(|(name, value)| match value {
        RenderValue::Json(json) => (!reads_outputs(&name)).then_some((name, OutputValue::Value(json))),
        RenderValue::Bytes(_) => None,
        RenderValue::Secret(secret) => Some((name, OutputValue::Secret(secret))),
        RenderValue::Sealed(_) => Some((name, OutputValue::Sensitive(true))),
    });
    known.collect()
}

/// Returns the state for which a webhook waits, with its expressions as the document writes them.
fn state(until: &UntilPlan) -> Value {
    let [every, max_every] = [until.every_ms, until.max_every_ms].map(durations::shown);
    let mut state = json!({ "asks": until.url.shown(), "every": every, "maxEvery": max_every });
    let conditions = [("ready", &until.ready), ("failed", &until.failed)];
    conditions.into_iter().filter(|(_, text)| text.is_some()).for_each(|(name, text)| state[name] = json!(text));
    if until.gone {
        state["gone"] = json!(true);
    }
    state
}

/// Returns a rendered unit as JSON without sensitive values.
pub(crate) fn shown(action: &Action, rendered: RenderedUnit) -> Value {
    match rendered {
        RenderedUnit::Skipped(reason) => json!({ "skipped": reason }),
        RenderedUnit::Pod { inputs } => {
            let list = inputs.into_iter().map(|input| {
                json!({ "name": input.name, "env": input.env, "path": input.path, "value": input.value.shown() })
            });
            json!({ "inputs": list.collect::<Vec<_>>() })
        }
        RenderedUnit::Webhook(request) => {
            let mut shown = json!({
                "method": request.method, "url": request.url, "headers": request.headers,
                "body": request.body.as_ref().map(RequestBody::shown),
            });
            if let Some(connection) = action.connection() {
                shown["connection"] = json!(connection.name);
            }
            if let Action::Webhook(WebhookAction { until, absent, failed, next, .. }) = action {
                shown["until"] = json!(until.as_ref().map(state));
                shown["absent"] = json!(absent);
                shown["failed"] = json!(failed);
                shown["next"] = json!(next);
            }
            shown
        }
        RenderedUnit::Object { mut manifests, .. } => match manifests.len() {
            1 => json!({ "manifest": manifests.remove(0) }),
            _ => json!({ "manifest": manifests }),
        },
        RenderedUnit::Infrakit(instance) => match action {
            Action::Infrakit(InfrakitAction { plugin, instance_type, interface, .. }) => json!({
                "plugin": if instance_type.is_empty() { plugin.clone() } else { format!("{plugin}/{instance_type}") },
                "interface": (*interface != PluginInterface::Instance).then_some(interface),
                "properties": instance.properties,
                "init": (!instance.init.is_empty()).then_some(instance.init),
                "tags": (!instance.tags.is_empty()).then_some(instance.tags),
                "logicalID": instance.logical_id,
                "attachments": instance.attachments,
            }),
            _ => json!({ "destroys": "the resource of the unit that it undoes" }),
        },
        RenderedUnit::Removal => json!({ "removes": "the objects of the unit that it undoes" }),
    }
}
