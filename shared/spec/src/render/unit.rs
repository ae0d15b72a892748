//! One unit with what is known.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::world::{Found, Lenience, Reader, Unknowns, World, capped};
use super::{
    Compiled, Facts, InputValue, Known, Produced, RenderError, Rendered, RenderedInput, Request, SkipReason,
    Value, url,
};
use crate::expr::convert::json_type;
use crate::plan::{Input, Plan, Template, UnitAt, UnitPlan, Webhook, Work};

/// What is to be done with a unit: skipped, or run with these values.
///
/// A unit that undoes another one takes what there is: a missing input is absent, a missing field of a body is left
/// out, and a `when` that cannot be decided lets it run, because something may exist. Only a URL or a manifest with a
/// missing value is an error there too: it would mean something else.
///
/// # Errors
/// [`RenderError`]: a value that is needed is missing, has the wrong type, is too large, or is sensitive.
pub fn unit(
    plan: &Plan,
    compiled: &Compiled,
    at: UnitAt,
    facts: &Facts,
    known: &Known,
) -> Result<Rendered, RenderError> {
    render(plan, compiled, at, facts, known, Unknowns::Missing)
}

pub(super) fn render(
    plan: &Plan,
    compiled: &Compiled,
    at: UnitAt,
    facts: &Facts,
    known: &Known,
    unknowns: Unknowns,
) -> Result<Rendered, RenderError> {
    let unit = plan.unit(at).ok_or(RenderError::NoUnit(at))?;
    let skipped =
        unit.reads.iter().find(|read| !read.optional && known.get(&read.at) == Some(&Produced::Skipped));
    if let Some(read) = skipped {
        let unit = plan.unit(read.at).map(|unit| unit.key.clone()).unwrap_or_default();
        return Ok(Rendered::Skipped(SkipReason::ReadsSkipped { unit, output: read.output.clone() }));
    }
    let resource = unit.key.split_once('/').map_or(unit.key.as_str(), |(resource, _)| resource);
    let world = World {
        plan,
        compiled,
        facts,
        known,
        unknowns,
        resource,
        reader: Reader::Cluster(plan.cluster(unit)),
    };
    let lenience = if unit.undoes.is_empty() { Lenience::Strict } else { Lenience::LeaveOut };
    if !wanted(world, unit, lenience)? {
        return Ok(Rendered::Skipped(SkipReason::WhenFalse));
    }
    match &unit.work {
        Work::Pod(_) => {
            let inputs: Result<Vec<RenderedInput>, RenderError> =
                unit.inputs.iter().map(|input| pod_input(world, input, lenience)).collect();
            Ok(Rendered::Pod { inputs: inputs? })
        }
        Work::Webhook(webhook) => request(world, unit, webhook, lenience).map(Rendered::Webhook),
        Work::Object(object) => {
            let manifest = world.tree(&object.manifest, "manifest", Lenience::Strict)?.unwrap_or_default();
            capped("manifest", manifest.to_string().len())?;
            let manifests = match manifest {
                Json::Array(manifests) => manifests,
                one => vec![one],
            };
            Ok(Rendered::Object { manifests })
        }
        Work::Removal => Ok(Rendered::Removal),
    }
}

fn wanted(world: World<'_>, unit: &UnitPlan, lenience: Lenience) -> Result<bool, RenderError> {
    let Some(when) = &unit.when else { return Ok(true) };
    let wrong = |got| RenderError::Type { place: "`when`".to_owned(), wanted: "true or false", got };
    match world.expression(world.compiled.parsed(when, "`when`")?, "`when`") {
        Ok(Found::Value(Value::Json(Json::Bool(wanted)))) => Ok(wanted),
        Ok(Found::Value(Value::Json(other))) => Err(wrong(json_type(&other))),
        Ok(Found::Value(_)) => Err(wrong("bytes or a Secret")),
        Ok(Found::Nothing) => Ok(false),
        Ok(Found::Placeholder(_)) => Ok(true),
        Err(RenderError::Missing { .. }) if lenience == Lenience::LeaveOut => Ok(true),
        Err(error) => Err(error),
    }
}

/// The value of an input, or nothing where that is allowed.
fn input_value(
    world: World<'_>,
    input: &Input,
    place: &str,
    lenience: Lenience,
) -> Result<Found, RenderError> {
    match world.template(&input.value, place) {
        Err(RenderError::Missing { .. }) if input.optional || lenience == Lenience::LeaveOut => {
            Ok(Found::Nothing)
        }
        other => other,
    }
}

fn pod_input(world: World<'_>, input: &Input, lenience: Lenience) -> Result<RenderedInput, RenderError> {
    let place = format!("input `{}`", input.name);
    let wrong = |wanted, got| Err(RenderError::Type { place: place.clone(), wanted, got });
    let value = match input_value(world, input, &place, lenience)? {
        Found::Nothing => InputValue::Absent,
        Found::Placeholder(name) => InputValue::Text(format!("<{name}>")),
        Found::Value(Value::Secret(secret)) => InputValue::Secret(secret),
        Found::Value(Value::Bytes(_)) if input.env.is_some() => {
            return wrong(
                "text for an environment variable",
                "bytes that are not UTF-8; give it a `path` alone",
            );
        }
        Found::Value(Value::Bytes(bytes)) => {
            capped(&place, bytes.len())?;
            InputValue::Bytes(bytes)
        }
        Found::Value(Value::Json(json)) => {
            let text = match json {
                Json::String(text) => text,
                other => other.to_string(),
            };
            capped(&place, text.len())?;
            if input.env.is_some() && text.contains('\0') {
                return wrong("text for an environment variable", "text with a NUL; give it a `path` alone");
            }
            InputValue::Text(text)
        }
    };
    Ok(RenderedInput { name: input.name.clone(), env: input.env.clone(), path: input.path.clone(), value })
}

fn request(
    world: World<'_>,
    unit: &UnitPlan,
    webhook: &Webhook,
    lenience: Lenience,
) -> Result<Request, RenderError> {
    let url = url::render(world, &webhook.url)?;
    let describe = webhook.describe.as_ref().map(|url| url::render(world, url)).transpose()?;
    let mut headers = BTreeMap::new();
    for (name, template) in &webhook.headers {
        let place = format!("header `{name}`");
        if let Some(text) = header(world, template, &place, lenience)? {
            headers.insert(name.clone(), text);
        }
    }
    let body = match &webhook.body {
        Some(body) => world.tree(body, "body", lenience)?,
        None if unit.inputs.is_empty() => None,
        None => Some(inputs_as_object(world, &unit.inputs, lenience)?),
    };
    if let Some(body) = &body {
        capped("body", body.to_string().len())?;
    }
    Ok(Request { method: webhook.method.clone(), url, headers, body, describe })
}

fn header(
    world: World<'_>,
    template: &Template,
    place: &str,
    lenience: Lenience,
) -> Result<Option<String>, RenderError> {
    let wrong = |got| Err(RenderError::Type { place: place.to_owned(), wanted: "text of one line", got });
    let text = match world.template(template, place) {
        Ok(Found::Value(Value::Json(Json::String(text)))) => text,
        Ok(Found::Value(Value::Json(json @ (Json::Number(_) | Json::Bool(_))))) => json.to_string(),
        Ok(Found::Value(Value::Json(other))) => return wrong(json_type(&other)),
        Ok(Found::Value(_)) => return wrong("bytes or a Secret"),
        Ok(Found::Nothing) => return Ok(None),
        Ok(Found::Placeholder(name)) => format!("<{name}>"),
        Err(RenderError::Missing { .. }) if lenience == Lenience::LeaveOut => return Ok(None),
        Err(error) => return Err(error),
    };
    match text.chars().any(|c| c.is_control() && c != '\t') {
        true => wrong("text with a control character"),
        false => Ok(Some(text)),
    }
}

fn inputs_as_object(world: World<'_>, inputs: &[Input], lenience: Lenience) -> Result<Json, RenderError> {
    let mut body = serde_json::Map::new();
    for input in inputs {
        let place = format!("input `{}`", input.name);
        let value = match input_value(world, input, &place, lenience)? {
            Found::Value(Value::Json(json)) => json,
            Found::Value(Value::Bytes(_)) => {
                return Err(RenderError::Type { place, wanted: "text", got: "bytes that are not UTF-8" });
            }
            Found::Value(Value::Secret(_)) => {
                return Err(RenderError::Sensitive { place, what: "its value".to_owned() });
            }
            Found::Nothing => continue,
            Found::Placeholder(name) => format!("<{name}>").into(),
        };
        body.insert(input.name.clone(), value);
    }
    Ok(body.into())
}
