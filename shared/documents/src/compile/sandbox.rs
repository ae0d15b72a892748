//! Binds the resources of a sandbox to their plugins and params, and the sandbox to its own hooks. These, and the units of
//! `bind`, are compiled like plugins without params that are bound to the target itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::checked::{
    BoundPlugin, BoundResource, CheckedParam, CheckedPlugin, ParamBinding, PublicOutputs, UNKNOWN_RESOURCE,
    UNVERSIONED, check_field, own_units,
};
use super::collector::{DiagnosticCollector, ExpressionRead, whole};
use super::{MAX_RESOURCES, Sensitivity, params, plugin, profile, sensitive};
use crate::model::{Dialect, HookOwner, LineColumn, Named, ParamKind, ResourceDoc, TemplateTree, VariableSpec};
use crate::{At, Diagnostic, PlainLiteral, PluginDoc, ReferenceSource, ReferenceUsage, SandboxDoc, Scope, Template};

/// Binds the resources of a sandbox, in the order of the document. Without errors, the result has an entry for
/// every resource.
pub(super) fn instances<'a>(
    report: &mut DiagnosticCollector,
    sandbox: &'a SandboxDoc,
    plugins: &BTreeMap<String, BoundPlugin<'a>>,
    warnings: &mut Vec<Diagnostic>,
) -> Vec<BoundResource<'a>> {
    if sandbox.resources.len() > MAX_RESOURCES {
        let message = format!("{} resources are more than the limit of {MAX_RESOURCES}", sandbox.resources.len());
        report.push(report.error("limit", sandbox.name.at, message));
        return Vec::new();
    }
    // Each plugin is checked once. Most resources of a large sandbox share a few plugins.
    let mut checked: HashMap<*const PluginDoc, Option<Arc<CheckedPlugin<'a>>>> = HashMap::new();
    let mut seen: HashMap<&str, LineColumn> = HashMap::new();
    let mut instances = Vec::with_capacity(sandbox.resources.len());
    let lists = sandbox.target_kind.as_ref().is_some_and(|kind| kind.value == PluginDoc::INVENTORY);
    for resource in &sandbox.resources {
        let name = resource.name.value.as_str();
        if let Some(first) = seen.insert(name, resource.name.at) {
            let message = format!("resource `{name}` is declared twice");
            report.push(report.error("duplicate", resource.name.at, message).related(first, "the first one"));
            continue;
        }
        let Some(bound) = plugins.get(name) else {
            let wanted = match &resource.version {
                Some(version) => format!("{}@{version}", resource.plugin.value),
                None => resource.plugin.value.clone(),
            };
            let message = format!("plugin `{wanted}` is not published");
            let help = "publish it with `ebb apply -f FILE`, or see `ebb get plugins`";
            report.push(report.error("unknown-plugin", resource.plugin.at, message).help(help));
            continue;
        };
        let bound = match &bound.plugin.lister {
            _ if !lists => *bound,
            Some(lister) => BoundPlugin { plugin: lister, ..*bound },
            None => {
                let name = &bound.plugin.name.value;
                let message = format!("plugin `{name}` has no `inventory`, which this kind of target runs");
                let help = "publish a version with `inventory`: one of its units has the output `things`";
                report.push(report.error("inventory", resource.plugin.at, message).help(help));
                continue;
            }
        };
        let known = checked.entry(std::ptr::from_ref(bound.plugin)).or_insert_with(|| {
            let checked = plugin::check(bound.plugin, PublicOutputs::default(), &report.steps);
            let checked = checked.map_err(|wrong| report.found.extend(wrong)).ok()?;
            warnings.extend(checked.warnings.iter().cloned());
            warnings.extend(profile::warn(sandbox, resource, &checked));
            Some(Arc::new(checked))
        });
        let Some(checked) = known.clone() else { continue };
        let given = given(report, sandbox.dialect, resource, &checked);
        let protect = resource.protect.as_ref().map(|own| own.value).or(bound.plugin.protect.then_some(true));
        if protect == Some(true) && sandbox.ttl.is_some() {
            let at = resource.protect.as_ref().map_or(resource.name.at, |protect| protect.at);
            let message = format!("resource `{name}` is protected, and `ttl` would delete the target");
            let help = "remove `ttl`, or set `protect: false` for the resource";
            report.push(report.error("protected-ttl", at, message).help(help));
        }
        instances.push(BoundResource {
            name,
            at: resource.name.at,
            bound,
            checked,
            params: given,
            protect,
            unit_refs: Vec::new(),
        });
    }
    instances
}

/// Binds the own hooks and the `bind` of a target whose resources have these `outputs`. Leaves out what has errors, which
/// are reported.
pub(super) fn bind_own<'a>(
    report: &mut DiagnosticCollector,
    sandbox: &'a SandboxDoc,
    outputs: &PublicOutputs<'a>,
    warnings: &mut Vec<Diagnostic>,
) -> Vec<BoundResource<'a>> {
    let own = [
        (HookOwner::TARGET, "the target's own units", "own units", sandbox.own.as_deref()),
        (HookOwner::BIND, "the units of `bind`", "these units", sandbox.bound.as_deref()),
    ];
    let mut found = Vec::new();
    for (name, units, short, own) in own {
        let Some(own) = own else { continue };
        if let Some(taken) = sandbox.resources.iter().find(|resource| resource.name.value == name) {
            let message = format!("resource `{name}` has the name of {units}");
            let help = format!("give the resource another name: the keys of {short} begin with `{name}/`");
            report.push(report.error("duplicate", taken.name.at, message).help(help));
            continue;
        }
        match plugin::check(own, outputs.clone(), &report.steps) {
            Err(wrong) => report.found.extend(wrong),
            Ok(checked) => {
                warnings.extend(checked.warnings.iter().cloned());
                found.push(BoundResource {
                    name,
                    at: own.name.at,
                    bound: BoundPlugin { plugin: own, version: &UNVERSIONED, digest: "" },
                    checked: checked.into(),
                    params: BTreeMap::new(),
                    protect: None,
                    unit_refs: Vec::new(),
                });
            }
        }
    }
    found
}

fn given<'a>(
    report: &mut DiagnosticCollector,
    dialect: Dialect,
    resource: &'a ResourceDoc,
    checked: &CheckedPlugin<'a>,
) -> BTreeMap<&'a str, ParamBinding> {
    let mut given = BTreeMap::new();
    for Named { name, inner: value } in &resource.params {
        let Some((&declared, param)) = checked.params.get_key_value(name.value.as_str()) else {
            // Signadot ignores params without an input of that name.
            if checked.plugin.dialect == Dialect::Ebb {
                let message = format!("plugin `{}` has no param `{}`", checked.plugin.name.value, name.value);
                let diagnostic = report.error("unknown-param", name.at, message);
                report.push(report.found.suggest(diagnostic, &name.value, checked.params.keys().copied()));
            }
            continue;
        };
        if let Some((value, uses)) = param_value(report, dialect, name, param, value) {
            given.insert(declared, ParamBinding { value, uses, at: name.at });
        }
    }
    for (name, CheckedParam { doc: param, .. }) in &checked.params {
        if given.contains_key(name) || resource.params.iter().any(|given| given.name.value == *name) {
            continue;
        }
        if let Some(default) = &param.default {
            let value = Template::Literal(default.value.clone());
            given.insert(name, ParamBinding { value, uses: Vec::new(), at: resource.name.at });
        } else if !param.is_optional() {
            let message = format!("resource `{}` needs param `{name}`", resource.name.value);
            let kind = params::kind_name(param.kind);
            let help = match param.sensitive {
                true => format!("`{name}` is sensitive: give a value, `{{secret: NAME, key: KEY}}`, or one output"),
                false => format!("add `params: {{{name}: …}}`, of type {kind}"),
            };
            report.push(report.error("missing-param", resource.name.at, message).help(help));
        }
    }
    given
}

fn param_value(
    report: &mut DiagnosticCollector,
    dialect: Dialect,
    name: &At<String>,
    checked: &CheckedParam<'_>,
    value: &At<TemplateTree>,
) -> Option<(Template, Vec<ExpressionRead>)> {
    let (named, param) = (&name.value, checked.doc);
    if let Some((name, key)) = value.value.secret() {
        if !param.sensitive {
            let message = format!("param `{named}` is not sensitive, so it cannot get a Secret");
            let help = "give a value, or declare the param with `sensitive: true` if the plugin is yours";
            report.push(report.error("sensitive", value.at, message).help(help));
            return None;
        }
        return Some((Template::Secret { name: name.to_owned(), key: key.to_owned() }, Vec::new()));
    }
    let before = report.found.len();
    let template = report.tree(&value.value, value.at, Scope::Sandbox);
    let uses = std::mem::take(&mut report.reads);
    if report.found.len() > before {
        return None;
    }
    let is_null = template == Template::Literal(Value::Null);
    let is_secret = param.sensitive && !is_null;
    match template {
        Template::Literal(literal) => {
            let literal = converted(report, dialect, param.kind, literal, value.at);
            if let Err(wrong) = params::fits(report, checked, &literal) {
                let diagnostic = report.error("param-value", value.at, format!("`{named}` {wrong}"));
                let text = literal.as_str().unwrap_or_default();
                let unquoted = match param.kind {
                    ParamKind::Integer | ParamKind::Number => text.parse::<f64>().is_ok(),
                    ParamKind::Boolean => text == "true" || text == "false",
                    _ => false,
                };
                report.push(match unquoted {
                    // Errors and help do not repeat a sensitive value.
                    _ if is_secret => diagnostic,
                    true => diagnostic.help(crate::diagnostic::unquoted(text)),
                    false if is_null && param.default.is_some() => diagnostic.help("leave it out to get the default"),
                    false if is_null => {
                        let help = "give a value, or declare the param with `optional: true` if the plugin is yours";
                        diagnostic.help(help)
                    }
                    false => params::nearest(report, param, text, diagnostic),
                });
                return None;
            }
            let literal = if is_secret { Template::Plain(PlainLiteral(literal)) } else { Template::Literal(literal) };
            Some((literal, uses))
        }
        _ if is_secret && whole(&uses).is_none() => {
            let message = format!("param `{named}` is sensitive and cannot be put together");
            let help = "give a value, `{secret: NAME, key: KEY}`, or one output: `${resources.R.outputs.O}`";
            report.push(report.error("sensitive", value.at, message).help(help));
            None
        }
        Template::Text(text)
            if whole(&uses).is_none()
                && param.kind != ParamKind::String
                && !crate::template::split(&text).is_ok_and(|pieces| pieces.len() == 1) =>
        {
            let message = format!("`{named}` must be of type {}, not text put together", params::kind_name(param.kind));
            report.push(report.error("param-value", value.at, message).help("one `${…}` alone keeps its type"));
            None
        }
        template => Some((template, uses)),
    }
}

/// Converts a value to the type of its param. For a text param, an unquoted `5` or `yes` becomes text. All params in
/// Signadot's documents are texts, so they are parsed for number and boolean params.
fn converted(report: &DiagnosticCollector, dialect: Dialect, kind: ParamKind, value: Value, at: LineColumn) -> Value {
    match (&value, kind) {
        (Value::Number(_) | Value::Bool(_), ParamKind::String) => Value::String(report.source.scalar(at, &value)),
        (Value::String(text), ParamKind::Integer | ParamKind::Number | ParamKind::Boolean)
            if dialect == Dialect::Signadot =>
        {
            match serde_json::from_str::<Value>(text) {
                Ok(parsed @ (Value::Number(_) | Value::Bool(_))) => parsed,
                _ => value,
            }
        }
        _ => value,
    }
}

/// Checks that all outputs that the sandbox reads exist, and that no use exposes a sensitive value.
pub(super) fn check_uses(
    report: &mut DiagnosticCollector,
    sandbox: &SandboxDoc,
    instances: &[BoundResource<'_>],
    outputs: &PublicOutputs<'_>,
    env: &[ExpressionRead],
) {
    let own = (sandbox, own_units(instances));
    for instance in instances {
        for (name, given) in &instance.params {
            let param = instance.checked.params[name].doc;
            for found in &given.uses {
                if report.is_full() {
                    return;
                }
                let sensitivity = check_use(report, outputs, own, found).unwrap_or(Sensitivity::Open);
                let is_whole = found.usage == ReferenceUsage::Whole && instance.checked.hands_on_whole();
                let may_get = param.sensitive || is_whole || found.usage == ReferenceUsage::Presence;
                if sensitivity.is_sensitive() && !may_get {
                    let message = format!(
                        "`{}` is sensitive, and param `{name}` of `{}` is not",
                        found.source, instance.checked.plugin.name.value
                    );
                    let help = match instance.checked.hands_on_whole() {
                        true => "hand it on whole, as all of the param",
                        false => "only a param with `sensitive: true` can get it",
                    };
                    report.push(report.error_in("sensitive", &found.spot, message).help(sensitivity.help(help)));
                }
            }
        }
    }
    for found in env {
        if report.is_full() {
            return;
        }
        if let Some(sensitivity) = check_use(report, outputs, own, found) {
            sensitive::check(report, found, sensitivity);
        }
    }
    for consumer in &sandbox.consumers {
        if report.is_full() {
            return;
        }
        let (resource, output) = (&consumer.resource, &consumer.output);
        let error = |code, message| {
            let at = if code == UNKNOWN_RESOURCE { resource.at } else { output.at };
            report.error(code, at, message)
        };
        if let Err(wrong) = outputs.check(report, (&resource.value, &output.value), error) {
            report.push(wrong);
        }
    }
}

/// Returns the sensitivity of a value that the sandbox reads. Reports a missing resource, own unit or output.
fn check_use(
    report: &mut DiagnosticCollector,
    outputs: &PublicOutputs<'_>,
    (sandbox, own): (&SandboxDoc, Option<&BoundResource<'_>>),
    found: &ExpressionRead,
) -> Option<Sensitivity> {
    let (resource, output) = match &found.source {
        ReferenceSource::Resource { resource, output } => (resource, output),
        ReferenceSource::Output { unit, .. } => {
            let checked = match own {
                Some(own) => own.checked.check_outside(report, found),
                // Its errors are reported.
                None if sandbox.own.is_some() => return None,
                None => {
                    let wrong = report.error_in("unknown-unit", &found.spot, format!("there is no own unit `{unit}`"));
                    Err(wrong.help("add it to `preStart`, or read a resource: `${resources.RESOURCE.outputs.OUTPUT}`"))
                }
            };
            return checked.map_err(|wrong| report.push(wrong)).ok();
        }
        _ => return Some(Sensitivity::Open),
    };
    let error = |code, message| report.error_in(code, &found.spot, message);
    let checked = outputs.check(report, (resource, output), error);
    check_field(report, found, outputs.is_text(resource, output));
    checked.map_err(|wrong| report.push(wrong)).ok()
}

/// Returns the environment of the sandbox, and the values that it reads.
pub(super) fn env(
    report: &mut DiagnosticCollector,
    sandbox: &SandboxDoc,
) -> (BTreeMap<String, Template>, Vec<ExpressionRead>) {
    let mut env = BTreeMap::new();
    for Named { name, inner: VariableSpec { value, .. } } in &sandbox.env {
        env.insert(name.value.clone(), report.text(&value.value, value.at, Scope::Sandbox));
    }
    (env, std::mem::take(&mut report.reads))
}
