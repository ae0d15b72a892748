//! Checked plugins, and resources bound to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ebb_engine::Hook;
use semver::Version;

use super::{DiagnosticCollector, ExpressionRead, Sensitivity};
use crate::model::{Dialect, HookOwner, LineColumn, ParamDoc, PluginDoc, SandboxDoc, UnitDoc};
use crate::{Diagnostic, ReferenceSource, ReferenceUsage, RequiredEvidence, Template, TextPattern, UnitPlan, UnitRef};

#[derive(Clone)]
pub(crate) struct CheckedPlugin<'a> {
    pub(super) plugin: &'a PluginDoc,
    /// All units in the order of the document.
    pub(super) units: Vec<CompiledUnit<'a>>,
    pub(super) by_name: HashMap<&'a str, usize>,
    pub(super) params: BTreeMap<&'a str, CheckedParam<'a>>,
    pub(super) outputs: BTreeMap<&'a str, CheckedOutput>,
    /// The public outputs that the units can read. A plugin reads none.
    pub(super) resources: PublicOutputs<'a>,
    pub(super) warnings: Vec<Diagnostic>,
}

impl CheckedPlugin<'_> {
    pub(super) fn unit(&self, name: &str) -> Option<&CompiledUnit<'_>> {
        self.units.get(*self.by_name.get(name)?)
    }

    pub(super) fn optional_params(&self) -> BTreeSet<String> {
        self.params.iter().filter(|(_, param)| param.doc.optional).map(|(name, _)| (*name).to_owned()).collect()
    }

    /// Returns true if the units hand on every param and output whole, so that each may be sensitive. Steps of Signadot
    /// have no other use of a value.
    pub(super) fn hands_on_whole(&self) -> bool {
        self.plugin.dialect == Dialect::Signadot
    }

    pub(super) fn required_evidence(&self) -> Option<RequiredEvidence> {
        self.plugin.evidence.as_ref().map(|evidence| evidence.value)
    }
}

#[derive(Clone)]
pub(crate) struct CheckedParam<'a> {
    pub(super) doc: &'a ParamDoc,
    pub(super) pattern: Option<TextPattern>,
}

#[derive(Clone)]
pub(super) struct CheckedOutput {
    pub(super) value: Template,
    pub(super) sensitivity: Sensitivity,
    /// True if it is certainly a text.
    pub(super) is_text: bool,
    /// True if messages about the target link to the value.
    pub(super) is_link: bool,
    pub(super) uses: Vec<ExpressionRead>,
}

/// A unit with everything that it reads. The key in `plan` is the name of the unit, and `plan` has no edges yet.
#[derive(Clone)]
pub(crate) struct CompiledUnit<'a> {
    pub(super) doc: &'a UnitDoc,
    pub(super) hook: Hook,
    pub(super) plan: UnitPlan,
    pub(super) cluster: Option<UnitCluster>,
    /// The list over whose entries the unit exists, as an expression: its own, or that of the units that it undoes.
    pub(super) list: Option<String>,
    pub(super) uses: Vec<ExpressionRead>,
    /// The value of each input that consists of exactly one value.
    pub(super) wholes: Vec<Option<ReferenceSource>>,
    /// Units of the same plugin, by position.
    pub(super) after: Vec<usize>,
    /// Units of the same plugin, by position.
    pub(super) undoes: Vec<usize>,
}

pub(super) fn check_field(report: &mut DiagnosticCollector, found: &ExpressionRead, is_text: bool) {
    if is_text && found.usage == ReferenceUsage::Field {
        let source = &found.source;
        let help = match source {
            ReferenceSource::Output { .. } => {
                format!("add `json: true` to the output, or write `json.parse({source})`")
            }
            _ => format!("write `json.parse({source})` if it is JSON"),
        };
        let message = format!("`{source}` is a text, which has no fields");
        report.push(report.error_in("field", &found.spot, message).help(help));
    }
}

/// The cluster that the document sets for a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnitCluster {
    Named(String),
    /// The cluster that is the value of this param.
    Param(String),
}

/// The version of a plugin without one. Own units and built-in plugins have it.
pub(crate) static UNVERSIONED: Version = Version::new(0, 0, 0);

#[derive(Clone, Copy, Debug)]
pub struct BoundPlugin<'a> {
    pub plugin: &'a PluginDoc,
    pub version: &'a Version,
    /// The digest of the document after embedding: `sha256:…`.
    pub digest: &'a str,
}

/// A resource with its plugin, or the target with its own hooks.
pub(crate) struct BoundResource<'a> {
    pub(super) name: &'a str,
    pub(super) at: LineColumn,
    pub(super) bound: BoundPlugin<'a>,
    pub(super) checked: Arc<CheckedPlugin<'a>>,
    pub(super) params: BTreeMap<&'a str, ParamBinding>,
    pub(super) protect: Option<bool>,
    /// The plan reference of each unit of the plugin.
    pub(super) unit_refs: Vec<UnitRef>,
}

pub(crate) struct ParamBinding {
    pub(super) value: Template,
    pub(super) uses: Vec<ExpressionRead>,
    pub(super) at: LineColumn,
}

/// The public outputs of the resources of a target, by the name of the resource. A resource whose plugin is not known may
/// have any outputs.
#[derive(Clone, Default)]
pub(crate) struct PublicOutputs<'a>(BTreeMap<&'a str, Option<Arc<CheckedPlugin<'a>>>>);

pub(super) const UNKNOWN_RESOURCE: &str = "unknown-resource";

impl<'a> PublicOutputs<'a> {
    pub(super) fn of(instances: &[BoundResource<'a>]) -> Self {
        let resources = instances.iter().filter(|instance| !instance.is_target());
        Self(resources.map(|instance| (instance.name, Some(Arc::clone(&instance.checked)))).collect())
    }

    /// Returns the outputs of resources whose plugins are not known.
    pub(super) fn unknown(sandbox: &'a SandboxDoc) -> Self {
        Self(sandbox.resources.iter().map(|resource| (resource.name.value.as_str(), None)).collect())
    }

    /// Returns the sensitivity of an output, or `None` if the resource or the output does not exist.
    pub(super) fn sensitivity(&self, resource: &str, output: &str) -> Option<Sensitivity> {
        let Some(checked) = self.0.get(resource)? else { return Some(Sensitivity::Unknown) };
        Some(checked.outputs.get(output)?.sensitivity)
    }

    pub(super) fn is_text(&self, resource: &str, output: &str) -> bool {
        self.0.get(resource).and_then(|made| made.as_ref()?.outputs.get(output)).is_some_and(|output| output.is_text)
    }

    /// Returns the sensitivity of an output, or the error for a missing one, which `error` creates from a code and a message.
    pub(super) fn check(
        &self,
        report: &DiagnosticCollector,
        (resource, output): (&str, &str),
        error: impl Fn(&'static str, String) -> Diagnostic,
    ) -> Result<Sensitivity, Diagnostic> {
        let Some(checked) = self.0.get(resource) else {
            let wrong = error(UNKNOWN_RESOURCE, format!("the resource `{resource}` does not exist"));
            return Err(report.found.suggest(wrong, resource, self.0.keys().copied()));
        };
        let Some(checked) = checked else { return Ok(Sensitivity::Unknown) };
        checked.outputs.get(output).map(|output| output.sensitivity).ok_or_else(|| {
            let plugin = &checked.plugin.name.value;
            let message = format!("resource `{resource}` (plugin `{plugin}`) has no output `{output}`");
            report.found.suggest(error("unknown-output", message), output, checked.outputs.keys().copied())
        })
    }
}

/// Returns the target with its own hooks, if it has some.
pub(super) fn own_units<'i, 'a>(instances: &'i [BoundResource<'a>]) -> Option<&'i BoundResource<'a>> {
    instances.iter().find(|instance| instance.is_target() && instance.name == HookOwner::TARGET)
}

impl BoundResource<'_> {
    pub(super) fn is_target(&self) -> bool {
        self.checked.plugin.owner == HookOwner::Target
    }

    /// Returns the units with this name in the document whose outputs `reader` reads. A public output has no unit and
    /// reads those of all entries of a list.
    pub(super) fn makers(&self, unit: &str, reader: Option<&CompiledUnit<'_>>) -> Vec<UnitRef> {
        let Some(&first) = self.checked.by_name.get(unit) else { return Vec::new() };
        let units = self.checked.units.iter().zip(&self.unit_refs).skip(first);
        let named = units.take_while(|(made, _)| made.doc.name.value == unit);
        let read = named.filter(|(made, _)| reader.is_none_or(|reader| reader.plan.meets(&made.plan)));
        read.map(|(_, &at)| at).collect()
    }
}
