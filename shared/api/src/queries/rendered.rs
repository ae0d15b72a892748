//! Renders a unit again, as its dispatch did, for people.
//!
//! The rendered form depends only on the plan and on recorded outputs, so it is not stored. No sensitive value is
//! decrypted.

use ebb_documents::render::{self, InputValue, RenderValue, RenderedRequest, RequestBody, SealedValue, SecretRef};
use ebb_documents::{Action, RenderedUnit, UnitContext, UnitPlan, UnitRef};
use ebb_engine::{Attempt, AttemptRef, HeadState, Unit, lets_pass};
use ebb_protocol::{ErrorCode, OutputValue, RequestRendering, RunId, UnitRendering, limits, rfc3339, words};
use serde_json::{Value, json};

use ebb_flow::run::attempt::AttemptContext;
use ebb_flow::run::dispatch::{UnitInputs, unit_inputs};
use ebb_flow::run::records;
use ebb_flow::run::undo::NoDispatch;
use ebb_flow::{Env, InvocationCache, RequestError, Run};

use crate::queries::plans;

const SENSITIVE: &str = "<sensitive>";
/// Maximum characters of an input, and of an output.
const INPUT_LENGTH: usize = 2_000;
/// Maximum characters of a script.
const SCRIPT_LENGTH: usize = 64 << 10;
/// Maximum units that a message names.
const UNITS: usize = 20;

/// Returns the rendered form of an attempt of a unit. The default is the last attempt.
///
/// # Errors
/// Refuses a run, unit or attempt that does not exist, and a unit without a rendered form or with one that is too large.
pub(crate) async fn rendered(
    env: &Env,
    id: &RunId,
    key: &str,
    attempt: Option<u32>,
) -> Result<UnitRendering, RequestError> {
    let missing = |text: String| RequestError::refused(ErrorCode::NotFound, text);
    let unavailable = |text: String| RequestError::refused(ErrorCode::NotRendered, text);
    let run = Run::load(env, id).await?.ok_or_else(|| missing(format!("run {id} does not exist")))?;
    let (unit, planned) = run.find_unit(key).ok_or_else(|| missing(format!("run {id} has no unit {key}")))?;
    let head = run.read_head(env).await?;
    let last = head.attempt(unit);
    let number = attempt.map_or(last, Attempt);
    if number < Attempt::FIRST || number > last {
        return Err(missing(format!("{key} has no attempt {}; its last attempt is {}", number.0, last.0)));
    }
    if let Some(awaited) = awaited(&run, &head, unit) {
        let text = format!("{key} has no inputs yet: it waits for {awaited}; ask again when they have succeeded");
        return Err(unavailable(text));
    }
    let attempt = AttemptRef { unit, number, epoch: head.epoch };
    let cache = InvocationCache::default();
    let inputs = unit_inputs(AttemptContext { env, run: &run, attempt, unit: planned, cache: &cache }).await?;
    let shown = shown(&run, planned, attempt, &inputs);
    let mut shown = shown.map_err(|reason| unavailable(format!("{key} cannot be rendered: {reason}")))?;
    shown.outputs = records::shown_outputs(env, id, attempt).await?;
    shown.outputs.values_mut().for_each(shorten);
    let size = limits::lambda_event_size_of(&shown);
    if size > limits::API_RESPONSE {
        let most = limits::API_RESPONSE;
        let text = format!("the rendered form of {key} takes {size} bytes of a response; the limit is {most}");
        return Err(unavailable(text));
    }
    Ok(shown)
}

/// Returns the names of the units of the same run that have not succeeded and on which a unit depends, or `None`.
fn awaited(run: &Run, head: &HeadState, unit: Unit) -> Option<String> {
    let open = run.graph().dependencies(unit).iter().filter(|&&at| !lets_pass(run.graph(), head, at));
    let names: Vec<&str> = open.filter_map(|&at| Some(run.unit(at)?.key.as_str())).collect();
    (!names.is_empty()).then(|| words::first_named(&names, UNITS, names.len()))
}

/// Renders a unit. Returns the reason why that is impossible.
fn shown(run: &Run, unit: &UnitPlan, attempt: AttemptRef, inputs: &UnitInputs) -> Result<UnitRendering, String> {
    let plan = &run.loaded.plan;
    let base = UnitRendering {
        run: run.id.to_string(),
        unit: unit.key.clone(),
        kind: unit.action.kind().to_owned(),
        attempt: attempt.number.0,
        cluster: run.cluster(attempt.unit).name.map(str::to_owned),
        undoes: unit.undoes.iter().filter_map(|&at| Some(plan.unit(at)?.key.clone())).collect(),
        ..UnitRendering::default()
    };
    let known = match inputs {
        Err(NoDispatch::Skipped(why)) => return Ok(UnitRendering { skipped: Some(why.clone()), ..base }),
        Err(NoDispatch::Later(at)) => {
            let at = rfc3339(*at);
            return Err(format!("a request of the unit that it undoes may arrive until {at}; ask again then"));
        }
        Ok((known, _)) => known,
    };
    let at = UnitRef { hook: run.hook(), unit: attempt.unit.0 };
    let facts = run.target_facts();
    let hide = |_: &SealedValue| Some(RenderValue::Json(SENSITIVE.into()));
    let rendered = render::unit(UnitContext { plan, at, facts: &facts, known }, Some(&hide));
    Ok(match rendered.map_err(|error| error.to_string())? {
        RenderedUnit::Skipped(reason) => UnitRendering { skipped: Some(reason), ..base },
        RenderedUnit::Pod { inputs } => {
            let inputs = inputs.into_iter().map(|input| (input.name, shown_input(input.value))).collect();
            let base = UnitRendering { inputs: Some(inputs), ..base };
            match &unit.action {
                Action::Pod(pod) => UnitRendering {
                    image: Some(pod.image.clone()),
                    namespace: pod.namespace.clone(),
                    script: Some(limits::excerpt(&pod.script, SCRIPT_LENGTH)),
                    ..base
                },
                _ => base,
            }
        }
        RenderedUnit::Webhook(request) => {
            let connection = unit.action.connection().map(|connection| connection.name.clone());
            let RenderedRequest { method, url, headers, body, .. } = request;
            let body = body.as_ref().map(RequestBody::shown);
            let request = Some(RequestRendering { method, url, connection, headers, body });
            UnitRendering { request, ..base }
        }
        RenderedUnit::Object { mut manifests, fill } => {
            manifests.iter_mut().for_each(hide_secret);
            if let Some(manifest) = manifests.first_mut() {
                for (key, secret) in fill {
                    manifest["data"][key] = reference(&secret);
                }
            }
            UnitRendering { manifests: Some(manifests), namespace: plan.target.namespace.clone(), ..base }
        }
        RenderedUnit::Removal => base,
        instance @ RenderedUnit::Infrakit(_) => {
            UnitRendering { instance: Some(plans::shown(&unit.action, instance)), ..base }
        }
    })
}

fn shorten(output: &mut OutputValue) {
    if let OutputValue::Value(value) = output
        && limits::lambda_event_size_of(value) > INPUT_LENGTH
    {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        *value = limits::excerpt(&text, INPUT_LENGTH).into();
    }
}

fn shown_input(value: InputValue) -> Value {
    match value {
        InputValue::Secret(secret) => reference(&secret),
        other => json!(other.shown().map(|text| limits::excerpt(&text, INPUT_LENGTH))),
    }
}

fn reference(secret: &SecretRef) -> Value {
    json!({ "secretKeyRef": { "name": secret.name, "key": secret.key } })
}

/// Replaces the values of a Secret. Authors may write values into one that they have not declared as sensitive.
fn hide_secret(manifest: &mut Value) {
    if manifest["kind"] != "Secret" {
        return;
    }
    for field in ["data", "stringData"] {
        if let Some(values) = manifest.get_mut(field).and_then(Value::as_object_mut) {
            values.values_mut().for_each(|value| *value = SENSITIVE.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_sensitive_inputs_are_hidden_and_long_ones_are_shortened() {
        let mut secret = json!({"kind": "Secret", "metadata": {"name": "a"}, "data": {"b": "aHVudGVyMg=="}, "stringData": {"c": {"d": 1}}});
        hide_secret(&mut secret);
        let expected = json!({"kind": "Secret", "metadata": {"name": "a"}, "data": {"b": SENSITIVE}, "stringData": {"c": SENSITIVE}});
        assert_eq!(secret, expected);
        let mut map = json!({"kind": "ConfigMap", "data": {"b": "c"}});
        hide_secret(&mut map);
        assert_eq!(map["data"]["b"], "c");
        let secret = SecretRef { cluster: None, namespace: None, name: "n".to_owned(), key: "k".to_owned() };
        for (value, expected) in [
            (InputValue::Opened(b"hunter2".to_vec()), json!(SENSITIVE)),
            (InputValue::Secret(secret), json!({"secretKeyRef": {"name": "n", "key": "k"}})),
            (InputValue::Bytes(vec![0xff; 3]), json!("<3 bytes>")),
            (InputValue::Absent, Value::Null),
            (InputValue::Text("a".repeat(INPUT_LENGTH + 1)), json!(format!("{}…", "a".repeat(INPUT_LENGTH)))),
        ] {
            assert_eq!(shown_input(value), expected);
        }
    }
}
