//! Converts collections of InfraKit's resources to plugins.
//!
//! Each resource becomes a unit of preStart, and the order follows from the references. Every value that a reference
//! reads becomes an output of the unit that it refers to. A resource gets the tags that InfraKit gives it, so that the
//! programs of InfraKit find it.

use std::collections::{BTreeMap, HashMap};

use super::collection_text::{self, CollectionPart};
use super::{DiagnosticCollector, MAX_INPUTS, StepCount, order, unit};
use crate::load::names::{NameSyntax, valid_name};
use crate::model::{
    ActionDoc, CollectionDoc, CollectionEntry, CollectionForm, Entries, HookDoc, InfrakitDoc, Named, OutputFromDoc,
    OutputSpec, PublicOutputDoc, ResourceDoc, TemplateTree, UnitDoc, UnitSpec,
};
use crate::{At, Diagnostic, PluginDoc, PluginInterface, ReferenceSource, SandboxDoc, Scope, escaping, template};

/// The output that every resource has.
const ID: (&str, &str) = ("ID", "instance.ID");

/// Returns the plugin of a resource with a collection. It has no units if the collection has errors.
pub(super) fn plugin(
    report: &mut DiagnosticCollector,
    sandbox: &SandboxDoc,
    resource: &ResourceDoc,
    collection: &CollectionDoc,
    reads: &SandboxReads,
) -> PluginDoc {
    let before = report.found.len();
    let mut units = CollectionUnits::new(report, collection);
    units.publish(reads.get(&resource.name.value).map_or(&[], Vec::as_slice));
    let mut made: Vec<UnitDoc> =
        collection.resources.iter().enumerate().map(|(n, one)| units.unit(report, n, one)).collect();
    units.check_cycles(report);
    let outputs = units.add_outputs(&mut made);
    let at = collection.id.at;
    let plugin = PluginDoc {
        source: sandbox.source.clone(),
        name: resource.plugin.clone(),
        expanded: collection.text.clone(),
        ..PluginDoc::default()
    };
    if report.found.len() > before {
        return plugin;
    }
    let pre_start = HookDoc { name: At { value: "preStart".to_owned(), at }, inner: Entries(made) };
    PluginDoc { pre_start: Some(pre_start), outputs, ..plugin }
}

pub(super) type SandboxReads = HashMap<String, Vec<String>>;

/// Returns the outputs that the params, the environment and the own hooks of a sandbox read. Errors of the texts are
/// reported later.
pub(super) fn reads(sandbox: &SandboxDoc) -> SandboxReads {
    let mut scratch = DiagnosticCollector::new(&sandbox.source, &StepCount::default());
    for value in sandbox.resources.iter().flat_map(|resource| &resource.params.0) {
        scratch.tree(&value.inner.value, value.inner.at, Scope::Sandbox);
    }
    for variable in &sandbox.env {
        scratch.text(&variable.value.value, variable.value.at, Scope::Sandbox);
    }
    let mut uses = std::mem::take(&mut scratch.reads);
    for own in sandbox.own.iter().chain(&sandbox.bound) {
        scratch.units = own.owner.scope();
        for (hook, units) in own.hooks() {
            let compiled = units.iter().map(|doc| unit::compile(&mut scratch, own, doc, hook));
            uses.extend(compiled.flat_map(|unit| unit.uses));
        }
    }
    let mut reads = SandboxReads::new();
    for found in uses {
        if let ReferenceSource::Resource { resource, output } = found.source {
            reads.entry(resource).or_default().push(output);
        }
    }
    reads
}

struct CollectionUnits<'c> {
    collection: &'c CollectionDoc,
    by_name: HashMap<&'c str, usize>,
    names: Vec<String>,
    /// The outputs of each resource by path: expressions over `instance`, each with the position of its first reader.
    outputs: Vec<BTreeMap<String, At<String>>>,
    references: Vec<ResourceReference<'c>>,
}

struct ResourceReference<'c> {
    from: usize,
    to: usize,
    text: At<&'c str>,
    /// The byte offset in the text.
    offset: usize,
}

impl<'c> CollectionUnits<'c> {
    /// Names the units. Reports resources with equal names, and names that are not literal.
    fn new(report: &mut DiagnosticCollector, collection: &'c CollectionDoc) -> Self {
        let mut by_unit: HashMap<String, &At<String>> = HashMap::new();
        let mut names = Vec::with_capacity(collection.resources.len());
        literal(report, &collection.id);
        for Named { name, .. } in &collection.resources {
            literal(report, name);
            let unit = valid_name(&name.value, NameSyntax::Ours);
            if let Some(first) = by_unit.insert(unit.clone(), name).filter(|_| !report.is_full()) {
                let message = match first.value == name.value {
                    true => format!("resource `{}` is declared twice", name.value),
                    false => format!("`{}` and `{}` would both be the unit `{unit}`", first.value, name.value),
                };
                let wrong = report.error("duplicate", name.at, message).related(first.at, "the first one");
                report.push(wrong.help("rename one of them: a unit's name has letters, digits, `-` and `_`"));
            }
            names.push(unit);
        }
        let first = |name: &At<String>| BTreeMap::from([(ID.0.to_owned(), At { value: ID.1.to_owned(), at: name.at })]);
        let outputs = collection.resources.iter().map(|resource| first(&resource.name)).collect();
        let by_name = collection.resources.iter().map(|resource| resource.name.value.as_str()).zip(0..).collect();
        Self { collection, by_name, names, outputs, references: Vec::new() }
    }

    /// Adds the outputs `UNIT.PATH` that the sandbox reads. Others are unknown outputs of the plugin.
    fn publish(&mut self, outputs: &[String]) {
        let by_unit: HashMap<&str, usize> = self.names.iter().map(String::as_str).zip(0..).collect();
        for (unit, path) in outputs.iter().filter_map(|output| output.split_once('.')) {
            if let Some(&to) = by_unit.get(unit)
                && let Ok(found) = collection_text::depend(&format!("{unit}/{path}"))
                && found.path == path
            {
                let at = self.collection.resources[to].name.at;
                self.outputs[to].entry(found.path).or_insert(At { value: found.expression, at });
            }
        }
    }

    fn unit(
        &mut self,
        report: &mut DiagnosticCollector,
        number: usize,
        resource: &'c Named<CollectionEntry>,
    ) -> UnitDoc {
        let Named { name, inner: entry } = resource;
        let text = |value: &'c At<String>| At { value: value.value.as_str(), at: value.at };
        let mut converted = |value: &'c At<String>| At { value: self.text(report, number, text(value)), at: value.at };
        let given = entry.tags.iter().chain(&entry.labels.0).chain(&entry.select.0);
        let mut tags: Vec<Named<At<String>>> =
            given.map(|tag| Named { name: tag.name.clone(), inner: converted(&tag.inner) }).collect();
        let init = entry.init.as_ref().map(&mut converted);
        let logical_id = entry.logical_id.as_ref().map(&mut converted);
        let [collection_tag, resource_tag] = match self.collection.form {
            CollectionForm::Plugin => ["infrakit.resources", "infrakit.resources.id"],
            CollectionForm::Controller => ["infrakit_collection", "infrakit_instance"],
        };
        for (tag, value) in [(collection_tag, &self.collection.id), (resource_tag, name)] {
            let value = At { value: escaping::escape(&value.value), at: name.at };
            tags.push(Named { name: At { value: tag.to_owned(), at: name.at }, inner: value });
        }
        let properties = entry.properties.as_ref().map(|tree| self.tree(report, number, tree));
        let attachments = entry.attachments.as_ref().map(|tree| self.tree(report, number, tree));
        let action = ActionDoc::Infrakit(InfrakitDoc {
            plugin: entry.plugin.clone(),
            interface: PluginInterface::Instance,
            properties,
            init,
            tags: Entries(tags),
            logical_id,
            attachments,
            max_processing_time: None,
        });
        let name = At { value: self.names[number].clone(), at: name.at };
        Named { name, inner: UnitSpec { action, ..UnitSpec::default() } }
    }

    fn tree(&mut self, report: &mut DiagnosticCollector, from: usize, tree: &'c At<TemplateTree>) -> At<TemplateTree> {
        let value = match &tree.value {
            TemplateTree::Scalar(value) => TemplateTree::Scalar(value.clone()),
            TemplateTree::Text(text) => TemplateTree::Text(self.text(report, from, At { value: text, at: tree.at })),
            TemplateTree::List(items) => {
                TemplateTree::List(items.iter().map(|item| self.tree(report, from, item)).collect())
            }
            TemplateTree::Map(entries) => {
                let converted = entries
                    .iter()
                    .map(|entry| Named { name: entry.name.clone(), inner: self.tree(report, from, &entry.inner) });
                TemplateTree::Map(Entries(converted.collect()))
            }
        };
        At { value, at: tree.at }
    }

    /// Returns a text of InfraKit as a template of Ebb. Records its references, and reports its first error.
    fn text(&mut self, report: &mut DiagnosticCollector, from: usize, text: At<&'c str>) -> String {
        // Finding the position of an error scans the document.
        if report.is_full() {
            return String::new();
        }
        self.template(report, from, text).unwrap_or_else(|wrong| {
            report.push(wrong);
            String::new()
        })
    }

    fn template(&mut self, report: &DiagnosticCollector, from: usize, text: At<&'c str>) -> Result<String, Diagnostic> {
        let error =
            |code, offset, message: String| report.error(code, template::place(&report.source, &text, offset), message);
        let parts = collection_text::parts(text.value)
            .map_err(|(offset, (message, help))| error("reference", offset, message).help(help))?;
        let mut made = String::new();
        for part in parts {
            let (offset, reference) = match part {
                CollectionPart::Literal(literal) => {
                    made += &escaping::escape(literal);
                    continue;
                }
                CollectionPart::Reference(offset, reference) => (offset, reference),
            };
            let name = reference.resource.as_str();
            let own = &self.collection.resources[from].name.value;
            let Some(&to) = self.by_name.get(name) else {
                let message = format!("`{own}` refers to the resource `{name}`, which does not exist");
                let wrong = error("unknown-resource", offset, message);
                return Err(report.found.suggest(wrong, name, self.by_name.keys().copied()));
            };
            if to == from {
                let wrong = error("cycle", offset, format!("`{own}` refers to itself"));
                return Err(wrong.help("a value of a resource exists only after it is made"));
            }
            let outputs = &mut self.outputs[to];
            if outputs.len() >= MAX_INPUTS && !outputs.contains_key(&reference.path) {
                return Err(error("limit", offset, format!("more than {MAX_INPUTS} values of `{name}` are read")));
            }
            made += &template::of_output(&self.names[to], &reference.path);
            outputs.entry(reference.path).or_insert(At { value: reference.expression, at: text.at });
            self.references.push(ResourceReference { from, to, text: At { ..text }, offset });
        }
        Ok(made)
    }

    fn check_cycles(&self, report: &mut DiagnosticCollector) {
        let mut dependencies = vec![Vec::new(); self.names.len()];
        self.references.iter().for_each(|reference| dependencies[reference.from].push(reference.to));
        let name = |number: usize| self.collection.resources[number].name.value.as_str();
        let step = |from: usize, to: usize| {
            let found = self.references.iter().find(|reference| reference.from == from && reference.to == to)?;
            let at = template::place(&report.source, &found.text, found.offset);
            Some((at, format!("`{}` refers to `{}`", name(from), name(to))))
        };
        let order = order::order_or_error(&report.source, &dependencies, |number| name(number).to_owned(), step);
        report.found.extend(order.err());
    }

    fn add_outputs(self, units: &mut [UnitDoc]) -> Entries<PublicOutputDoc> {
        let mut public = Vec::new();
        for (unit, outputs) in units.iter_mut().zip(self.outputs) {
            let at = unit.name.at;
            let named = |value: String| At { value, at };
            for (path, expression) in outputs {
                let from = OutputFromDoc::Value(At { value: format!("${{{}}}", expression.value), at: expression.at });
                let read = template::of_output(&unit.name.value, &path);
                let inner = PublicOutputDoc { value: named(read), show: None };
                public.push(Named { name: named(format!("{}.{path}", unit.name.value)), inner });
                let inner = OutputSpec::of(from);
                unit.inner.outputs.0.push(Named { name: named(path), inner });
            }
        }
        Entries(public)
    }
}

fn literal(report: &mut DiagnosticCollector, name: &At<String>) {
    if name.value.contains("{{") && !report.is_full() {
        let wrong = report.error("reference", name.at, "a name is literal, and Ebb runs no template function");
        report.push(wrong.help(collection_text::RENDER));
    }
}
