//! The outputs of an instance and of a resource, and the environment of the target.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::context::{RenderContext, capped};
use super::{KnownOutputs, LookupResult, RenderError, RenderResult, RenderValue, TargetFacts, evaluate};
use crate::cel::convert::from_json;
use crate::{Action, EvaluationError, Expression, OutputFrom, Plan, Template, UnitPlan};

/// Returns the declared outputs of an InfraKit unit from its instance: `ID`, `LogicalID`, `Tags` and `Properties`, or the
/// fields of the response for the other interfaces.
///
/// # Errors
/// Returns [`RenderError::NoOutput`] for the first missing output, in the order of names, or another error for an output
/// that is too large or too costly.
pub fn outputs_from_instance(unit: &UnitPlan, instance: &Json) -> RenderResult<BTreeMap<String, RenderValue>> {
    let variables = BTreeMap::from([("instance", from_json(instance))]);
    outputs_from(unit, |expression, place| evaluate::run(expression, &variables, place))
}

pub(super) fn outputs_from(
    unit: &UnitPlan,
    value: impl Fn(&Expression, &str) -> RenderResult<LookupResult>,
) -> RenderResult<BTreeMap<String, RenderValue>> {
    let mut outputs = BTreeMap::new();
    for (name, output) in &unit.outputs {
        let OutputFrom::Expression(text) = &output.from else { continue };
        let place = format!("output `{name}`");
        let none = |reason: String| RenderError::NoOutput { output: name.clone(), reason };
        let made = match value(&evaluate::expression(text, &place)?, &place) {
            Ok(LookupResult::Value(RenderValue::Json(Json::Null)) | LookupResult::Nothing)
            | Err(RenderError::Evaluation { error: EvaluationError::MissingValue(_), .. })
                if output.optional =>
            {
                RenderValue::Json(Json::Null)
            }
            Ok(LookupResult::Value(RenderValue::Json(Json::Null))) => {
                let fix = if matches!(unit.action, Action::Webhook(_)) { "wait for it with `until`, or " } else { "" };
                let why = format!("{place} is null: `{text}`; expected a value; {fix}add `optional: true`");
                return Err(RenderError::Unfit(why));
            }
            Ok(LookupResult::Value(value)) => value,
            Ok(LookupResult::Nothing | LookupResult::Placeholder(_)) => {
                return Err(none(format!("`{text}` has no value")));
            }
            Err(RenderError::Evaluation {
                error: EvaluationError::Evaluation(reason) | EvaluationError::MissingValue(reason),
                ..
            }) => return Err(none(format!("`{text}`: {reason}"))),
            Err(error) => return Err(error),
        };
        match &made {
            RenderValue::Json(json) => capped(&place, json.to_string().len())?,
            RenderValue::Bytes(bytes) => capped(&place, bytes.len())?,
            RenderValue::Secret(_) | RenderValue::Sealed(_) => {}
        }
        outputs.insert(name.clone(), made);
    }
    Ok(outputs)
}

/// Returns the public outputs of each resource, limited by `only` as in [`Plan::public_outputs`]. An output without a value is omitted: its unit was skipped or has not
/// run. A sensitive output is a reference.
///
/// # Errors
/// Returns [`RenderError`] if an expression fails on the existing values.
pub fn resource_outputs(
    plan: &Plan,
    facts: &TargetFacts,
    known: &KnownOutputs,
    only: Option<&str>,
) -> RenderResult<BTreeMap<String, BTreeMap<String, RenderValue>>> {
    let mut resources: BTreeMap<_, BTreeMap<_, _>> =
        plan.resources.keys().map(|resource| (resource.clone(), BTreeMap::new())).collect();
    for (resource, name, public) in plan.public_outputs(only) {
        let context = RenderContext::outside(plan, facts, known, resource, &public.reads);
        let place = format!("output `{name}` of `{resource}`");
        match context.template(&public.value, &place) {
            Ok(LookupResult::Value(value)) => {
                resources.entry(resource.to_owned()).or_default().insert(name.to_owned(), value);
            }
            Ok(LookupResult::Nothing | LookupResult::Placeholder(_))
            | Err(RenderError::Missing { .. } | RenderError::Null { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(resources)
}

/// Returns the environment of the target by variable, and the errors of the other variables in the order of their names. A
/// sensitive value is a reference. A variable without a value and an optional one that is null are omitted. The error of
/// another one is that it is null, or that an expression fails on the existing values.
pub fn env(
    plan: &Plan,
    facts: &TargetFacts,
    known: &KnownOutputs,
) -> (BTreeMap<String, RenderValue>, Vec<RenderError>) {
    let context = RenderContext::outside(plan, facts, known, "", &plan.env_reads);
    let (mut variables, mut errors) = (BTreeMap::new(), Vec::new());
    for (name, template) in &plan.env {
        let place = format!("env `{name}`");
        match (context.template(template, &place), template) {
            (Ok(LookupResult::Value(RenderValue::Json(Json::Null))) | Err(RenderError::Null { .. }), _)
                if plan.optional_env.contains(name) => {}
            (Ok(LookupResult::Value(RenderValue::Json(Json::Null))), Template::Text(text)) => {
                let fix = "to leave it out, write `{value: \"${…}\", optional: true}`";
                errors.push(RenderError::Null { place, what: format!("`{text}`"), fix });
            }
            (Ok(LookupResult::Value(value)), _) => drop(variables.insert(name.clone(), value)),
            (Ok(LookupResult::Nothing | LookupResult::Placeholder(_)) | Err(RenderError::Missing { .. }), _) => {}
            (Err(error), _) => errors.push(error),
        }
    }
    (variables, errors)
}
