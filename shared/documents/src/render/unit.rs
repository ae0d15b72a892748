//! Renders one unit with the known values.

use std::collections::BTreeMap;

use ::url::form_urlencoded::Serializer;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

use super::context::{MissingPolicy, NullPolicy, PendingOutputs, RenderContext, as_json, capped, mistyped, sensitive};
use super::{
    Answers, InputValue, LookupResult, MAX_VALUE_BYTES, OpenSealed, ProducerState, RenderError, RenderResult,
    RenderValue, RenderedInput, RenderedInstance, RenderedQuestion, RenderedRequest, RenderedUnit, RequestBody,
    UnitContext, evaluate, url,
};
use crate::body::{self, BodyFormat};
use crate::cel::convert::json_type;
use crate::plan::{Action, InfrakitAction, InputPlan, OutputRead, Template, UnitPlan, WebhookAction};
use crate::template::joinable;

/// Renders a unit: either it is skipped, or it runs with the returned values.
///
/// A unit that undoes another one is rendered with the values that exist. Missing inputs and fields of a body are
/// omitted, and so are those that must not be null. A `when` that reads such a value counts as true, because a resource
/// may exist. Such a value in a URL or manifest is still an error, because the URL or manifest would have another meaning.
///
/// Encrypted values that the recipient of the unit may have are decrypted with `open`. Without it, they are an error.
///
/// # Errors
/// Returns [`RenderError`] if a required value is missing, has the wrong type, is too large, or is sensitive, and
/// [`RenderError::Undecryptable`] if `open` returns nothing.
pub fn unit(context: UnitContext<'_>, open: Option<&OpenSealed<'_>>) -> RenderResult<RenderedUnit> {
    render(context, PendingOutputs::Missing, (None, open))
}

/// Renders a webhook unit whose request is repeated, after this answer to its question, otherwise like [`unit()`].
///
/// # Errors
/// Returns the errors of [`unit()`].
pub fn repeated_unit(
    context: UnitContext<'_>,
    poll: &Json,
    open: Option<&OpenSealed<'_>>,
) -> RenderResult<RenderedUnit> {
    render(context, PendingOutputs::Missing, (Some(poll), open))
}

/// Renders a unit for people, otherwise like [`unit()`].
///
/// An output that is not in `known` becomes a placeholder such as `<users/database.dsn>`, and so does the key of a resource
/// if that of the target is [`super::TargetFacts::UNKNOWN_KEY`], and values that depend on either. A sensitive value becomes
/// `<sensitive>`. A `when` that depends on unknown values counts as true.
///
/// # Errors
/// Returns the errors of [`unit()`] that do not depend on unknown values.
pub fn preview(context: UnitContext<'_>) -> RenderResult<RenderedUnit> {
    render(context, PendingOutputs::Shown, (None, None))
}

fn render(
    context: UnitContext<'_>,
    unknowns: PendingOutputs,
    (poll, open): (Option<&Json>, Option<&OpenSealed<'_>>),
) -> RenderResult<RenderedUnit> {
    let UnitContext { plan, at, known, .. } = context;
    let unit = plan.unit(at).ok_or(RenderError::NoUnit(at))?;
    // A unit of preStop is skipped if a unit whose output it reads never started, or failed without outputs. An undo runs
    // without its missing inputs.
    let is_plain_pre_stop = unit.is_plain_pre_stop(at.hook);
    for read in unit.reads.iter().filter(|read| !read.optional) {
        let why = match known.get(&read.at) {
            Some(ProducerState::Skipped) => "is skipped",
            Some(ProducerState::Absent) if is_plain_pre_stop => "has none",
            _ => continue,
        };
        let key = plan.unit(read.at).map(|unit| unit.key.as_str()).unwrap_or_default();
        return Ok(RenderedUnit::Skipped(format!("reads output `{}` of `{key}`, which {why}", read.output)));
    }
    let answers = poll.map(|poll| (Answers { response: &Json::Null, poll: Some(poll) }, unit.inputs.as_slice()));
    let context = RenderContext::of_unit(context, unit);
    let lenience = if unit.undoes.is_empty() { MissingPolicy::Strict } else { MissingPolicy::LeaveOut };
    let context = RenderContext { unknowns, nulls: NullPolicy::Omitted, lenience, open, answers, ..context };
    if !wanted(context, unit)? {
        return Ok(RenderedUnit::Skipped("`when` is false".to_owned()));
    }
    // Also an output that may be null is not null because its unit failed.
    let is_lost = |read: &&OutputRead| !read.optional && known.get(&read.at) == Some(&ProducerState::Absent);
    let mut makers = unit.reads.iter().filter(is_lost).filter_map(|read| Some((read, plan.unit(read.at)?)));
    if let Some((read, maker)) = makers.find(|(_, maker)| maker.tolerated && unit.undoes.is_empty()) {
        let why = format!("reads output `{}` of `{}`, which did not succeed", read.output, maker.key);
        return Err(RenderError::Unfit(why));
    }
    match &unit.action {
        Action::Pod(_) => {
            let inputs: RenderResult<Vec<RenderedInput>> =
                unit.inputs.iter().map(|input| pod_input(context, input)).collect();
            Ok(RenderedUnit::Pod { inputs: inputs? })
        }
        Action::Webhook(webhook) => request(context, unit, webhook).map(RenderedUnit::Webhook),
        Action::Object(object) if object.bound => bound(context, &object.manifest),
        Action::Object(object) => {
            let manifest = context.closed().strict().tree(&object.manifest, "manifest")?;
            let manifest = manifest.unwrap_or_default();
            capped("manifest", manifest.to_string().len())?;
            let manifests = match manifest {
                Json::Array(manifests) => manifests,
                one => vec![one],
            };
            Ok(RenderedUnit::Object { manifests, fill: Vec::new() })
        }
        Action::Removal => Ok(RenderedUnit::Removal),
        Action::Infrakit(action) => instance(context, action).map(RenderedUnit::Infrakit),
        Action::Destroy => {
            let undone = unit.undoes.first().and_then(|&at| plan.unit(at));
            match undone.map(|undone| &undone.action) {
                Some(Action::Infrakit(action)) => instance(context, action).map(RenderedUnit::Infrakit),
                _ => Err(RenderError::NoUnit(at)),
            }
        }
    }
}

/// Renders an object of `bind`. A value that is in a Secret of the cluster is copied there.
fn bound(context: RenderContext<'_>, manifest: &Json) -> RenderResult<RenderedUnit> {
    let mut place = manifest.clone();
    let data = place.as_object_mut().and_then(|manifest| manifest.remove("data")).unwrap_or_default();
    let mut manifest = context.closed().strict().tree(&place, "manifest")?.unwrap_or_default();
    let is_secret = manifest["kind"] == "Secret";
    let is_shown = context.unknowns == PendingOutputs::Shown;
    let context = if is_secret { context } else { context.closed() };
    let (mut values, mut fill) = (serde_json::Map::new(), Vec::new());
    for (key, text) in data.as_object().into_iter().flatten() {
        let place = format!("`data.{key}`");
        let made = context.text(text.as_str().unwrap_or_default(), &place)?;
        let bytes = match context.disclosed(made, &place)? {
            LookupResult::Nothing => continue,
            LookupResult::Placeholder(name) => format!("<{name}>").into_bytes(),
            LookupResult::Value(RenderValue::Json(json)) => joinable(json).into_bytes(),
            LookupResult::Value(RenderValue::Bytes(bytes)) => bytes,
            LookupResult::Value(RenderValue::Secret(secret)) if is_secret => {
                fill.push((key.clone(), secret));
                continue;
            }
            LookupResult::Value(_) => return Err(sensitive(&place, "its value")),
        };
        capped(&place, bytes.len())?;
        let value = match String::from_utf8(bytes) {
            Ok(text) if !is_secret || is_shown => text,
            Ok(text) => STANDARD.encode(text),
            Err(error) if is_secret => STANDARD.encode(error.into_bytes()),
            Err(_) => return Err(mistyped(&place, "text", "bytes that are not UTF-8; bind it to a `secret`")),
        };
        values.insert(key.clone(), value.into());
    }
    // People read the values of a preview, so they are not encoded.
    manifest[if is_secret && is_shown { "stringData" } else { "data" }] = values.into();
    capped("manifest", manifest.to_string().len())?;
    Ok(RenderedUnit::Object { manifests: vec![manifest], fill })
}

fn wanted(context: RenderContext<'_>, unit: &UnitPlan) -> RenderResult<bool> {
    let Some(when) = &unit.when else { return Ok(true) };
    let wrong = |got| Err(mistyped("`when`", "true or false", got));
    match context.expression(&evaluate::expression(when, "`when`")?, "`when`") {
        Ok(LookupResult::Value(RenderValue::Json(Json::Bool(wanted)))) => Ok(wanted),
        Ok(LookupResult::Value(RenderValue::Json(other))) => wrong(json_type(&other)),
        Ok(LookupResult::Value(_)) => wrong("bytes or a Secret"),
        Ok(LookupResult::Nothing) => Ok(false),
        Ok(LookupResult::Placeholder(_)) => Ok(true),
        Err(RenderError::Missing { .. } | RenderError::Null { .. }) if context.lenience == MissingPolicy::LeaveOut => {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Returns the value of an input, or [`LookupResult::Nothing`] for a missing value that is not required.
fn input_value(context: RenderContext<'_>, input: &InputPlan, place: &str) -> RenderResult<LookupResult> {
    let lenience = if input.optional { MissingPolicy::LeaveOut } else { context.lenience };
    RenderContext { lenience, ..context }.lenient(context.template(&input.value, place))
}

fn pod_input(context: RenderContext<'_>, input: &InputPlan) -> RenderResult<RenderedInput> {
    let place = format!("input `{}`", input.name);
    let wrong = |got| Err(mistyped(&place, "text for an environment variable", got));
    // A list or mapping with a sensitive value in it could not be masked.
    let found = input_value(context.closed(), input, &place)?;
    let is_sealed = matches!(found, LookupResult::Value(RenderValue::Sealed(_)));
    let value = match context.disclosed(found, &place)? {
        // Only a literal is `null` here.
        LookupResult::Nothing | LookupResult::Value(RenderValue::Json(Json::Null)) => InputValue::Absent,
        LookupResult::Placeholder(name) => InputValue::Text(format!("<{name}>")),
        LookupResult::Value(RenderValue::Secret(secret)) => InputValue::Secret(secret),
        LookupResult::Value(RenderValue::Sealed(_)) => return Err(sensitive(&place, "its value")),
        LookupResult::Value(RenderValue::Bytes(_)) if input.env.is_some() => {
            return wrong("bytes that are not UTF-8; give it a `path` alone");
        }
        LookupResult::Value(RenderValue::Bytes(bytes)) => {
            capped(&place, bytes.len())?;
            InputValue::Bytes(bytes)
        }
        LookupResult::Value(RenderValue::Json(json)) => {
            let text = joinable(json);
            capped(&place, text.len())?;
            if input.env.is_some() && text.contains('\0') {
                return wrong("text with a NUL; give it a `path` alone");
            }
            InputValue::Text(text)
        }
    };
    let value = match value {
        InputValue::Text(text) if is_sealed => InputValue::Opened(text.into_bytes()),
        InputValue::Bytes(bytes) if is_sealed => InputValue::Opened(bytes),
        value => value,
    };
    Ok(RenderedInput { name: input.name.clone(), env: input.env.clone(), path: input.path.clone(), value })
}

fn request(context: RenderContext<'_>, unit: &UnitPlan, webhook: &WebhookAction) -> RenderResult<RenderedRequest> {
    let origin = webhook.connection.as_ref().map(|connection| connection.origin.as_str());
    let url = url::render(context, origin, &webhook.url)?;
    let shown = context.answers.map(|_| url::shown(context, origin, &webhook.url)).transpose()?;
    let line_feed = if url.contains("%0A") { url::line_feed(context, &webhook.url) } else { None };
    let describe = webhook.describe.as_ref().map(|describe| {
        let body = describe.body.as_ref().map(|body| context.closed().tree(body, "body")).transpose()?;
        let url = url::render(context, origin, &describe.url)?;
        RenderResult::Ok(RenderedQuestion { url, body: body.flatten() })
    });
    let describe = describe.transpose()?;
    let headers = headers(context, webhook)?;
    let content_type = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let format = BodyFormat::of(content_type.map(|(_, value)| value.as_str()));
    let body = match &webhook.body {
        Some(Json::String(text)) if format != BodyFormat::Json => text_body(context, text, format)?,
        Some(body) => context.tree(body, "body")?.map(|made| encoded(context, made, format)).transpose()?,
        None if unit.inputs.is_empty() => None,
        None => Some(encoded(context, inputs_as_object(context, &unit.inputs)?, format)?),
    };
    if let Some(body) = &body {
        capped("body", body.bytes().len())?;
    }
    Ok(RenderedRequest { method: webhook.method.clone(), url, shown, line_feed, headers, body, describe })
}

pub(super) fn headers(context: RenderContext<'_>, webhook: &WebhookAction) -> RenderResult<BTreeMap<String, String>> {
    let mut headers = BTreeMap::new();
    for (name, template) in &webhook.headers {
        let place = format!("header `{name}`");
        if let Some(text) = header(context, template, &place)? {
            headers.insert(name.clone(), text);
        }
    }
    Ok(headers)
}

/// Returns a body that is one text of the document. Its value can be of another type.
fn text_body(context: RenderContext<'_>, text: &str, format: BodyFormat) -> RenderResult<Option<RequestBody>> {
    let kept = RenderContext { nulls: NullPolicy::Kept, ..context };
    match context.disclosed(context.lenient(kept.text(text, "body"))?, "body")? {
        LookupResult::Value(RenderValue::Bytes(bytes)) => Ok(Some(RequestBody::Bytes(bytes))),
        made => {
            let made = as_json(made, "body", || "its value".to_owned())?;
            made.map(|made| encoded(context, made, format)).transpose()
        }
    }
}

/// Returns a body in its format. A form for people is not percent-encoded.
fn encoded(context: RenderContext<'_>, made: Json, format: BodyFormat) -> RenderResult<RequestBody> {
    Ok(match (format, made) {
        (BodyFormat::Json, made) => RequestBody::Json(made),
        (BodyFormat::Form, form @ Json::Object(_)) => {
            let large = || RenderError::Unfit(format!("body has more than {MAX_VALUE_BYTES} bytes"));
            let fields = body::fields(&form).ok_or_else(large)?;
            RequestBody::Text(match context.unknowns {
                PendingOutputs::Missing => Serializer::new(String::new()).extend_pairs(fields).finish(),
                PendingOutputs::Shown => {
                    fields.iter().map(|(name, text)| format!("{name}={text}")).collect::<Vec<_>>().join("&")
                }
            })
        }
        (BodyFormat::Form, made @ Json::Array(_)) => {
            return Err(mistyped("body", "a mapping, or the text of a form", json_type(&made)));
        }
        (BodyFormat::Form | BodyFormat::Plain, made) => RequestBody::Text(joinable(made)),
    })
}

fn instance(context: RenderContext<'_>, action: &InfrakitAction) -> RenderResult<RenderedInstance> {
    let tree = |context: RenderContext<'_>, tree: &Json, place: &str| {
        let made = context.tree(tree, place)?.unwrap_or_default();
        capped(place, made.to_string().len())?;
        Ok(made)
    };
    let mut tags = BTreeMap::new();
    for (name, template) in &action.tags {
        if let Some(value) = text(context.closed(), template, &format!("tag `{name}`"))? {
            tags.insert(name.clone(), value);
        }
    }
    let optional = |template: &Option<Template>, place: &str| {
        template.as_ref().map_or(Ok(None), |template| text(context.closed(), template, place))
    };
    Ok(RenderedInstance {
        properties: tree(context, &action.properties, "properties")?,
        init: optional(&action.init, "init")?.unwrap_or_default(),
        tags,
        logical_id: optional(&action.logical_id, "logicalID")?,
        attachments: action.attachments.as_ref().map(|it| tree(context.closed(), it, "attachments")).transpose()?,
    })
}

/// Returns the text of a template. Values of other types become JSON. Returns `None` for a missing value.
fn text(context: RenderContext<'_>, template: &Template, place: &str) -> RenderResult<Option<String>> {
    let made = context.lenient(context.template(template, place))?;
    let text = as_json(made, place, || "its value".to_owned())?.map(joinable);
    capped(place, text.as_ref().map_or(0, String::len))?;
    Ok(text)
}

fn header(context: RenderContext<'_>, template: &Template, place: &str) -> RenderResult<Option<String>> {
    let wrong = |got| Err(mistyped(place, "text of one line", got));
    let text = match context.disclosed(context.lenient(context.template(template, place))?, place)? {
        LookupResult::Value(RenderValue::Json(Json::String(text))) => text,
        LookupResult::Value(RenderValue::Json(json @ (Json::Number(_) | Json::Bool(_)))) => json.to_string(),
        LookupResult::Value(RenderValue::Json(other)) => return wrong(json_type(&other)),
        LookupResult::Value(_) => return wrong("bytes or a Secret"),
        LookupResult::Nothing => return Ok(None),
        LookupResult::Placeholder(name) => format!("<{name}>"),
    };
    match text.chars().any(|c| c.is_control() && c != '\t') {
        true => wrong("text with a control character"),
        false => Ok(Some(text)),
    }
}

fn inputs_as_object(context: RenderContext<'_>, inputs: &[InputPlan]) -> RenderResult<Json> {
    let context = RenderContext { nulls: NullPolicy::Kept, ..context };
    let mut body = serde_json::Map::new();
    for input in inputs {
        let place = format!("input `{}`", input.name);
        let found = context.disclosed(input_value(context, input, &place)?, &place)?;
        if let Some(value) = as_json(found, &place, || "its value".to_owned())? {
            body.insert(input.name.clone(), value);
        }
    }
    Ok(body.into())
}
