//! Detects objects and requests that two resources of one target would create under the same name.
//!
//! `target.key` is the same for all resources of a target. A name that consists of `target.key`, literals and params
//! with equal values is therefore equal in two resources. A name with `resource.key` or `resource.name` differs. Names
//! that depend on an output or on a computed param are not checked.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::Hook;
use serde_json::Value;

use super::{BoundResource, CheckedPlugin, CompiledUnit, DiagnosticCollector, plan_expressions};
use crate::diagnostic::{Diagnostic, Severity};
use crate::{Action, ObjectAction, ReferenceSource, Scope, Template, TemplatePiece, cel, template};

const HELP: &str = "`${resource.key}` and `${resource.name}` differ between the resources of a sandbox";
/// Variables of a script that differ between the resources of a target.
const OWN_VARIABLES: [&str; 4] = ["EBB_KEY", "EBB_IDEMPOTENCY_KEY", "EBB_RESOURCE", "SIGNADOT_RESOURCE_NAME"];

/// The identity of something that a unit creates, as far as it is known before the target exists: what two units would do,
/// and the parts that make it the same.
type UnitIdentity = (String, Vec<String>);

/// Rejects a sandbox in which two resources would create the same object or send the same request. Warns of equal
/// scripts.
pub(super) fn check(report: &mut DiagnosticCollector, instances: &[BoundResource<'_>], warnings: &mut Vec<Diagnostic>) {
    let mut bound: BTreeMap<&str, usize> = BTreeMap::new();
    for instance in instances {
        *bound.entry(instance.bound.digest).or_default() += 1;
    }
    let mut made: BTreeMap<UnitIdentity, (usize, &str)> = BTreeMap::new();
    for (number, instance) in instances.iter().enumerate() {
        let twice = bound.get(instance.bound.digest).is_some_and(|count| *count > 1);
        for unit in instance.checked.units.iter().filter(|unit| unit.hook <= Hook::PostStart) {
            if report.is_full() {
                return;
            }
            for identity in identities(report, instance, unit, twice) {
                let noun = identity.0.clone();
                let (first, other) = *made.entry(identity).or_insert((number, &unit.plan.key));
                if first == number {
                    continue;
                }
                let (here, there) = (instance, &instances[first]);
                let message = format!("`{}/{other}` and `{}/{}` {noun}", there.name, here.name, unit.plan.key);
                let found = report.error("shared-key", here.at, message);
                let found = found.related(there.at, "the other resource").help(HELP);
                match &unit.plan.action {
                    Action::Pod(_) => warnings.push(Diagnostic { severity: Severity::Warning, ..found }),
                    _ => report.push(found),
                }
            }
        }
    }
}

fn identities(
    report: &DiagnosticCollector,
    instance: &BoundResource<'_>,
    unit: &CompiledUnit<'_>,
    twice: bool,
) -> Vec<UnitIdentity> {
    let inputs = unit.plan.inputs.iter().map(|input| input.value.shown());
    // An identity exists only if all values are known and at least one of them names the target.
    let same = |noun: &str, values: Vec<Value>| {
        let mut parts = vec![instance.bound.digest.to_owned(), unit.plan.key.clone()];
        let mut names_target = false;
        // Units of one plugin with one name differ in the values of params only.
        for text in values.iter().flat_map(plan_expressions::strings) {
            let fixed = StaticText::of(report, Some(instance), text)?;
            names_target |= fixed.names_target;
            parts.push(fixed.text);
        }
        names_target.then(|| (noun.to_owned(), parts))
    };
    let found = match &unit.plan.action {
        Action::Object(object) => return objects(report, instance, unit, object),
        Action::Webhook(webhook) if twice => {
            let parts = std::iter::once(&webhook.url).chain(webhook.headers.values()).map(Template::shown);
            let values = parts.chain(webhook.body.clone()).chain(inputs).collect();
            same("would send the same request, with the same key", values)
        }
        Action::Pod(pod) if twice && !OWN_VARIABLES.iter().any(|name| pod.script.contains(name)) => {
            same("run the same script with the same key", inputs.collect())
        }
        Action::Webhook(_) | Action::Pod(_) | Action::Removal | Action::Infrakit(_) | Action::Destroy => None,
    };
    found.into_iter().collect()
}

/// Returns the identities of the objects of a unit whose names are known.
fn objects(
    report: &DiagnosticCollector,
    instance: &BoundResource<'_>,
    unit: &CompiledUnit<'_>,
    object: &ObjectAction,
) -> Vec<UnitIdentity> {
    let known = |value: &Value| match value {
        Value::String(text) => StaticText::of(report, Some(instance), text).map(|fixed| fixed.text),
        _ => None,
    };
    let cluster = super::clusters::of_unit(instance, unit).ok().flatten().unwrap_or_default();
    let identity = |manifest: &Value| {
        let metadata = &manifest["metadata"];
        let (kind, name) = (manifest["kind"].as_str()?, known(&metadata["name"])?);
        let namespace = match &metadata["namespace"] {
            Value::Null => String::new(),
            other => known(other)?,
        };
        let noun = format!("would both make the {kind} `{name}`");
        let group = manifest["apiVersion"].as_str().unwrap_or_default().split('/').next().unwrap_or_default();
        Some((noun, vec![group.to_owned(), namespace, cluster.clone()]))
    };
    object.manifests().iter().filter_map(identity).collect()
}

/// A text with resolved params. References to the target are kept as written.
#[derive(Clone, Debug, Default)]
struct StaticText {
    text: String,
    names_target: bool,
}

impl StaticText {
    /// Resolves a text for a resource. Without a resource, params count as known. Returns `None` for a text that
    /// depends on an output or on a computed param.
    fn of(report: &DiagnosticCollector, instance: Option<&BoundResource<'_>>, text: &str) -> Option<Self> {
        let mut fixed = Self::default();
        for piece in template::split(text).ok()? {
            match piece {
                TemplatePiece::Literal(text) => fixed.text.push_str(&text),
                TemplatePiece::Expression { text, .. } => fixed.expression(report, instance, &text)?,
            }
        }
        Some(fixed)
    }

    fn expression(
        &mut self,
        report: &DiagnosticCollector,
        instance: Option<&BoundResource<'_>>,
        text: &str,
    ) -> Option<()> {
        let parsed = cel::parse(text, Scope::Plugin).ok()?;
        report.count(parsed.steps);
        let mut params = BTreeSet::new();
        for reference in &parsed.references {
            match &reference.source {
                ReferenceSource::Target(field) => {
                    self.names_target |= ["key", "name", "uid"].contains(&field.as_str());
                }
                ReferenceSource::Param(name) => {
                    let Some(instance) = instance else { continue };
                    match instance.params.get(name.as_str()).map(|given| &given.value) {
                        Some(Template::Literal(value)) => params.insert((name.clone(), value.to_string())),
                        Some(_) => return None,
                        None => params.insert((name.clone(), String::new())),
                    };
                }
                _ => return None,
            }
        }
        // An expression that is exactly one param is shown as its value.
        match (parsed.whole(), params.first()) {
            (Some(_), Some((_, value))) => self.text.push_str(value.trim_matches('"')),
            (_, None) => self.text.push_str(&format!("${{{text}}}")),
            _ => self.text.push_str(&format!("${{{text}}} {params:?}")),
        }
        Some(())
    }
}

/// Returns warnings for names that two resources of the plugin in one sandbox would share.
pub(super) fn warn(report: &DiagnosticCollector, checked: &CheckedPlugin<'_>) -> Vec<Diagnostic> {
    let shared = |unit: &CompiledUnit<'_>| match &unit.plan.action {
        Action::Object(object) => object.manifests().iter().find_map(|manifest| {
            let name = manifest["metadata"]["name"].as_str()?;
            let shared = StaticText::of(report, None, name)?.names_target;
            shared.then(|| format!("the {} `{name}`", manifest["kind"].as_str().unwrap_or("object")))
        }),
        Action::Webhook(_) => {
            let reads = |of: fn(&ReferenceSource) -> bool| unit.uses.iter().any(|found| of(&found.source));
            let keyed = reads(|source| matches!(source, ReferenceSource::Target(field) if field == "key"));
            let own = reads(|source| matches!(source, ReferenceSource::OwnResource(_)));
            (keyed && !own).then(|| "the same `${target.key}`".to_owned())
        }
        Action::Pod(_) | Action::Removal | Action::Infrakit(_) | Action::Destroy => None,
    };
    let setup = checked.units.iter().filter(|unit| unit.hook <= Hook::PostStart);
    let warnings = setup.filter_map(|unit| {
        let name = &unit.doc.name;
        let what = shared(unit)?;
        let message = format!("two resources of this plugin in one sandbox would share {what} of `{}`", name.value);
        Some(Diagnostic::warning("shared-key", &report.source, name.at, message).help(HELP))
    });
    warnings.collect()
}
