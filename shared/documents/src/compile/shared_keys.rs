//! Things that two resources of one target would make under the same name.
//!
//! `target.key` is the same for all resources of a target. A name that is made of it, of literals and of params with the
//! same values is therefore the same in two resources; one with `resource.key` or `resource.name` is not. Names that
//! depend on an output or on a computed param are not checked.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::checked::{BoundResource, CheckedPlugin, CompiledUnit};
use super::collector::DiagnosticCollector;
use crate::diagnostic::Diagnostic;
use crate::expr::{self, ReferenceSource, Scope};
use crate::model::SandboxDoc;
use crate::plan::{Action, HookName, ObjectAction, Template, WebhookAction};
use crate::template::{self, TemplatePiece};

const HELP: &str = "`${resource.key}` and `${resource.name}` differ between the resources of a sandbox";
/// Variables of a script that differ between the resources of a target.
const OWN_VARIABLES: [&str; 4] = ["EBB_KEY", "EBB_IDEMPOTENCY_KEY", "EBB_RESOURCE", "SIGNADOT_RESOURCE_NAME"];

/// The things that a unit makes, as far as they are known before the target exists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UnitIdentity {
    noun: String,
    parts: Vec<String>,
}

/// Refuses a sandbox in which two resources make the same thing.
pub(super) fn check(
    report: &mut DiagnosticCollector,
    sandbox: &SandboxDoc,
    instances: &[BoundResource<'_>],
    warnings: &mut Vec<Diagnostic>,
) {
    let mut bound: BTreeMap<&str, usize> = BTreeMap::new();
    for instance in instances {
        *bound.entry(instance.bound.digest).or_default() += 1;
    }
    let mut made: BTreeMap<UnitIdentity, (usize, &str)> = BTreeMap::new();
    for (number, instance) in instances.iter().enumerate() {
        let twice = bound.get(instance.bound.digest).is_some_and(|count| *count > 1);
        for unit in instance.checked.units.iter().filter(|unit| unit.hook <= HookName::PostStart) {
            if report.is_full() {
                return;
            }
            let script = matches!(unit.plan.action, Action::Pod(_));
            for identity in identities(report, instance, unit, twice) {
                let noun = identity.noun.clone();
                let (first, other) = *made.entry(identity).or_insert((number, &unit.plan.key));
                let (Some(here), Some(there)) = (sandbox.resources.get(number), sandbox.resources.get(first)) else {
                    continue;
                };
                if first == number {
                    continue;
                }
                let message =
                    format!("`{}/{other}` and `{}/{}` {noun}", there.name.value, here.name.value, unit.plan.key);
                let found = match script {
                    true => Diagnostic::warning("shared-key", &report.source, here.name.at, message),
                    false => report.error("shared-key", here.name.at, message),
                };
                let found = found.related(there.name.at, "the other resource").help(HELP);
                match script {
                    true => warnings.push(found),
                    false => report.push(found),
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
    match &unit.plan.action {
        Action::Object(object) => objects(report, instance, unit, object),
        Action::Webhook(webhook) if twice => request(report, instance, unit, webhook).into_iter().collect(),
        Action::Pod(pod) if twice && !OWN_VARIABLES.iter().any(|name| pod.script.contains(name)) => {
            script(report, instance, unit).into_iter().collect()
        }
        Action::Webhook(_) | Action::Pod(_) | Action::Removal => Vec::new(),
    }
}

/// The objects of a unit whose names are known.
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
    let cluster = super::clusters::known(instance, unit).unwrap_or_default();
    manifests(object)
        .iter()
        .filter_map(|manifest| {
            let metadata = &manifest["metadata"];
            let (kind, name) = (manifest["kind"].as_str()?, known(&metadata["name"])?);
            let namespace = match &metadata["namespace"] {
                Value::Null => String::new(),
                other => known(other)?,
            };
            let noun = format!("would both make the {kind} `{name}`");
            let group = manifest["apiVersion"].as_str().unwrap_or_default().split('/').next().unwrap_or_default();
            Some(UnitIdentity { noun, parts: vec![group.to_owned(), namespace, cluster.clone()] })
        })
        .collect()
}

fn manifests(object: &ObjectAction) -> &[Value] {
    match &object.manifest {
        Value::Array(manifests) => manifests,
        one => std::slice::from_ref(one),
    }
}

/// A request that names the target, if all of it is known.
fn request(
    report: &DiagnosticCollector,
    instance: &BoundResource<'_>,
    unit: &CompiledUnit<'_>,
    webhook: &WebhookAction,
) -> Option<UnitIdentity> {
    let mut all = StaticText::default();
    all.template(report, instance, &webhook.url)?;
    webhook.headers.values().try_for_each(|value| all.template(report, instance, value))?;
    webhook.body.iter().try_for_each(|body| all.tree(report, instance, body))?;
    unit.plan.inputs.iter().try_for_each(|input| all.template(report, instance, &input.value))?;
    let noun = "would send the same request, with the same key".to_owned();
    let parts = vec![instance.bound.digest.to_owned(), unit.plan.key.clone(), all.text];
    all.names_target.then_some(UnitIdentity { noun, parts })
}

/// The inputs of a script that names the target, if all of them are known.
fn script(report: &DiagnosticCollector, instance: &BoundResource<'_>, unit: &CompiledUnit<'_>) -> Option<UnitIdentity> {
    let mut all = StaticText::default();
    unit.plan.inputs.iter().try_for_each(|input| all.template(report, instance, &input.value))?;
    let noun = "run the same script with the same key".to_owned();
    let parts = vec![instance.bound.digest.to_owned(), unit.plan.key.clone(), all.text];
    all.names_target.then_some(UnitIdentity { noun, parts })
}

/// A text without what is computed from outputs: references to the target stay as they are written.
#[derive(Clone, Debug, Default)]
struct StaticText {
    text: String,
    names_target: bool,
}

impl StaticText {
    /// The text as it is in a resource. Without a resource, params count as known.
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
        let parsed = expr::parse(text, Scope::Plugin).ok()?;
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
        // One param alone reads better as its value.
        match (parsed.whole(), params.first()) {
            (Some(_), Some((_, value))) => self.text.push_str(value.trim_matches('"')),
            (_, None) => self.text.push_str(&format!("${{{text}}}")),
            _ => self.text.push_str(&format!("${{{text}}} {params:?}")),
        }
        Some(())
    }

    fn template(
        &mut self,
        report: &DiagnosticCollector,
        instance: &BoundResource<'_>,
        template: &Template,
    ) -> Option<()> {
        match template {
            Template::Literal(value) => self.push(&value.to_string()),
            Template::Secret { name, key } => self.push(&format!("{name}/{key}")),
            Template::Text(text) => self.add(Self::of(report, Some(instance), text)?),
            Template::Tree(tree) => self.tree(report, instance, tree)?,
        }
        Some(())
    }

    fn tree(&mut self, report: &DiagnosticCollector, instance: &BoundResource<'_>, tree: &Value) -> Option<()> {
        match tree {
            Value::String(text) => self.add(Self::of(report, Some(instance), text)?),
            Value::Array(items) => items.iter().try_for_each(|item| self.tree(report, instance, item))?,
            Value::Object(map) => {
                for (key, value) in map {
                    self.push(key);
                    self.tree(report, instance, value)?;
                }
            }
            scalar => self.push(&scalar.to_string()),
        }
        Some(())
    }

    fn add(&mut self, other: Self) {
        self.push(&other.text);
        self.names_target |= other.names_target;
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        // Two texts are never read as one.
        self.text.push('\0');
    }
}

/// Warns of the names in a plugin that two of its resources in one sandbox would share.
pub(super) fn warn(report: &DiagnosticCollector, checked: &CheckedPlugin<'_>) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    for unit in checked.units.iter().filter(|unit| unit.hook <= HookName::PostStart) {
        let what = match &unit.plan.action {
            Action::Object(object) => manifests(object).iter().find_map(|manifest| {
                let name = manifest["metadata"]["name"].as_str()?;
                let shared = StaticText::of(report, None, name).is_some_and(|fixed| fixed.names_target);
                shared.then(|| format!("the {} `{name}`", manifest["kind"].as_str().unwrap_or("object")))
            }),
            Action::Webhook(_) => {
                let keyed =
                    |source: &ReferenceSource| matches!(source, ReferenceSource::Target(field) if field == "key");
                let own = |source: &ReferenceSource| matches!(source, ReferenceSource::OwnResource(_));
                let reads =
                    |of: &dyn Fn(&ReferenceSource) -> bool| unit.uses.iter().any(|(_, found)| of(&found.source));
                (reads(&keyed) && !reads(&own)).then(|| "the same `${target.key}`".to_owned())
            }
            Action::Pod(_) | Action::Removal => None,
        };
        if let Some(what) = what {
            let name = &unit.doc.name;
            let message = format!("two resources of this plugin in one sandbox would share {what} of `{}`", name.value);
            warnings.push(Diagnostic::warning("shared-key", &report.source, name.at, message).help(HELP));
        }
    }
    warnings
}
