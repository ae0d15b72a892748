//! Checks of a plugin on its own.

use std::collections::{BTreeMap, HashMap, HashSet};

use ebb_engine::{Hook, MAX_UNITS};

use super::checked::{CheckedOutput, CheckedPlugin, CompiledUnit, PublicOutputs, check_field};
use super::collector::{DiagnosticCollector, ExpressionRead, StepCount, TextRole};
use super::defaults::{FEWER_UNITS, UNIT_STEPS};
use super::{Sensitivity, for_each, order, params, profile, sensitive, shared_keys, unit, unit_lints};
use crate::cel::{ReferenceSource, ReferenceUsage, RootVariable, Scope};
use crate::diagnostic::grouped;
use crate::model::{ActionDoc, Dialect, HookOwner, Named, OutputDoc, ParamKind, PodDoc, PublicOutputDoc};
use crate::{At, Diagnostic, Diagnostics, OutputFrom, PluginDoc, RequiredEvidence, template};

/// The maximum number of warnings of a plugin, before equal ones become one.
const MAX_WARNINGS: usize = 1_000;

/// Checks a plugin, or the own hooks of a target, which read the outputs of `resources`.
pub(super) fn check<'a>(
    plugin: &'a PluginDoc,
    resources: PublicOutputs<'a>,
    steps: &StepCount,
) -> Result<CheckedPlugin<'a>, Diagnostics> {
    let mut report = DiagnosticCollector::new(&plugin.source, steps);
    let mut declared = BTreeMap::new();
    for Named { name, inner: param } in &plugin.params {
        if report.is_full() {
            break;
        }
        declared.insert(name.value.as_str(), params::check_declaration(&mut report, name, param));
    }

    let mut units: Vec<CompiledUnit<'_>> = Vec::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    for (which, hook) in plugin.hooks() {
        report.units = match (plugin.owner, which) {
            (HookOwner::Plugin, Hook::Update(_)) => Scope::Update,
            (owner, _) => owner.scope(),
        };
        if let Some(excess) = hook.inner.get(MAX_UNITS) {
            let (name, count) = (&hook.name.value, hook.inner.len());
            let message = format!("`{name}` has {count} units; the limit is {MAX_UNITS}");
            report.push(report.error("limit", excess.name.at, message).help(FEWER_UNITS));
        }
        for doc in &hook.inner {
            if !report.spend(UNIT_STEPS, doc.name.at) {
                break;
            }
            if let Some(&first) = by_name.get(doc.name.value.as_str()) {
                let message = format!("unit `{}` is declared twice", doc.name.value);
                let help = "a unit's name is unique over all hooks of its document";
                let first = units[first].doc.name.at;
                report.push(report.error("duplicate", doc.name.at, message).related(first, "the first one").help(help));
                continue;
            }
            by_name.insert(&doc.name.value, units.len());
            units.push(unit::compile(&mut report, plugin, doc, which));
        }
    }
    (report.units, report.role) = (plugin.owner.scope(), TextRole::Public);
    let (params, outputs, warnings) = (declared, BTreeMap::new(), Vec::new());
    let mut checked = CheckedPlugin { plugin, units, by_name, params, outputs, resources, warnings };
    checked.name_after_and_undoes(&mut report);
    checked.check_uses(&mut report);
    checked.public_outputs(&mut report);
    checked.check_cycles(&mut report);
    profile::check(&mut report, &checked);
    checked.warn();
    if plugin.owner == HookOwner::Plugin {
        let shared = shared_keys::warn(&report, &checked);
        checked.warnings.extend(grouped(shared.into_iter().take(MAX_WARNINGS).collect()));
    }
    report.check(plugin.name.at).map(|()| checked)
}

impl<'a> CheckedPlugin<'a> {
    fn producer(&self, source: &ReferenceSource) -> Option<usize> {
        let ReferenceSource::Output { unit, .. } = source else { return None };
        self.by_name.get(unit.as_str()).copied()
    }

    fn sensitivity(&self, source: &ReferenceSource) -> Sensitivity {
        match source {
            ReferenceSource::Resource { resource, output } => {
                self.resources.sensitivity(resource, output).unwrap_or(Sensitivity::Open)
            }
            ReferenceSource::Param(name) | ReferenceSource::OldParam(name)
                if self.params.get(name.as_str()).is_some_and(|param| param.doc.sensitive) =>
            {
                Sensitivity::Undecided
            }
            ReferenceSource::Output { unit, output } => {
                self.unit(unit).map_or(Sensitivity::Open, |unit| Sensitivity::of_output(&unit.plan, output))
            }
            _ => Sensitivity::Open,
        }
    }

    fn is_list(&self, reader: Option<&CompiledUnit<'_>>, source: &ReferenceSource) -> bool {
        let list = self.producer(source).and_then(|made| self.units[made].list.as_ref());
        list.is_some() && reader.and_then(|reader| reader.list.as_ref()) != list
    }

    /// Returns true for a value that is certainly a text. A sensitive one has its own errors.
    fn is_text(&self, reader: Option<&CompiledUnit<'_>>, source: &ReferenceSource) -> bool {
        match source {
            _ if self.is_list(reader, source) => false,
            ReferenceSource::Output { unit, output } => {
                let made = self.unit(unit).and_then(|unit| unit.plan.outputs.get(output));
                made.is_some_and(|made| {
                    !made.json && !made.sensitive && !matches!(made.from, OutputFrom::Expression(_))
                })
            }
            ReferenceSource::Resource { resource, output } => self.resources.is_text(resource, output),
            ReferenceSource::Param(name) | ReferenceSource::OldParam(name) => {
                let param = self.params.get(name.as_str()).map(|param| param.doc);
                param.is_some_and(|param| param.kind == ParamKind::String && !param.sensitive)
            }
            _ => false,
        }
    }

    /// Returns the sensitivity of a value that a unit reads. An input has that of its value.
    fn sensitivity_in(&self, unit: &CompiledUnit<'_>, source: &ReferenceSource) -> Sensitivity {
        let ReferenceSource::Input(name) = source else { return self.sensitivity(source) };
        let at = unit.doc.inputs.iter().position(|input| input.name.value == *name);
        let whole = at.and_then(|at| unit.wholes.get(at)).and_then(Option::as_ref);
        whole.map_or(Sensitivity::Open, |whole| self.sensitivity(whole))
    }

    fn unknown_unit(&self, report: &DiagnosticCollector, wrong: Diagnostic, name: &str) -> Diagnostic {
        report.found.suggest(wrong, name, self.units.iter().map(|unit| unit.doc.name.value.as_str()))
    }

    /// Checks that a value exists and that the reader's hook may read it.
    fn check_use(
        &self,
        report: &mut DiagnosticCollector,
        reader: Option<&CompiledUnit<'_>>,
        found: &ExpressionRead,
    ) -> Result<(), Diagnostic> {
        let wrong = |code, message| report.error_in(code, &found.spot, message);
        let (unit, output) = match &found.source {
            ReferenceSource::Param(name) | ReferenceSource::OldParam(name)
                if !self.params.contains_key(name.as_str()) =>
            {
                let diagnostic = wrong("unknown-param", format!("there is no param `{name}`"));
                return Err(match self.params.is_empty() {
                    true => diagnostic.help(format!("declare it: `params: {{{name}: {{type: string}}}}`")),
                    false => report.found.suggest(diagnostic, name, self.params.keys().copied()),
                });
            }
            ReferenceSource::Output { unit, output } => (unit, output),
            ReferenceSource::Resource { resource, output } => {
                return self.resources.check(report, (resource, output), wrong).map(drop);
            }
            ReferenceSource::Root(RootVariable::Item) if reader.is_none_or(|reader| reader.list.is_none()) => {
                let wrong = wrong(for_each::CODE, "`item` is the entry of a unit with `forEach`".to_owned());
                return Err(wrong.help("add `forEach: ${params.NAME}` to the unit"));
            }
            _ => return Ok(()),
        };
        let Some(producer) = self.unit(unit) else {
            return Err(self.unknown_unit(report, wrong("unknown-unit", format!("there is no unit `{unit}`")), unit));
        };
        if !producer.doc.outputs.iter().any(|declared| declared.name.value == *output) {
            let diagnostic = wrong("unknown-output", format!("unit `{unit}` has no output `{output}`"));
            let diagnostic = diagnostic.related(producer.doc.name.at, "the unit");
            return Err(match producer.doc.outputs.is_empty() {
                true => diagnostic.help("it declares none"),
                false => {
                    report.found.suggest(diagnostic, output, producer.doc.outputs.iter().map(|o| o.name.value.as_str()))
                }
            });
        }
        if self.is_list(reader, &found.source) && self.sensitivity(&found.source).is_sensitive() {
            let message = format!("`{}` is a list of sensitive values", found.source);
            return Err(
                wrong("sensitive", message).help("only a unit with the same `forEach` can read them, one by one")
            );
        }
        let Some(reader) = reader else { return Ok(()) };
        let name = &reader.doc.name.value;
        if name == unit {
            let diagnostic = wrong("cycle", format!("`{unit}` reads its own output `{output}`"));
            return Err(diagnostic.help("an output exists only after its unit has run"));
        }
        if !reader.hook.can_read(producer.hook) {
            let (own, other) = (reader.hook.name(), producer.hook.name());
            let (which, help) = match producer.hook {
                Hook::Update(_) => {
                    let help = "an update may never run; read the setup units, or let the update keep their outputs";
                    ("which runs", help.to_owned())
                }
                Hook::Event(_) => {
                    let earlier = Hook::ALL.into_iter().filter(|hook| *hook < reader.hook);
                    let earlier: Vec<String> = earlier.map(|hook| hook.to_string()).collect();
                    ("which runs", format!("a unit in {own} reads {own}, {}; other events never", earlier.join(", ")))
                }
                _ => ("which runs later,", "a hook reads its own outputs and those of earlier hooks".to_owned()),
            };
            let diagnostic = wrong("hook-order", format!("`{name}` in {own} reads `{unit}`, {which} in {other}"));
            return Err(diagnostic.related(producer.doc.name.at, "the unit").help(help));
        }
        Ok(())
    }

    /// Returns the sensitivity of an output of the target's own units that `env` or a param of a resource reads.
    pub(super) fn check_outside(
        &self,
        report: &mut DiagnosticCollector,
        found: &ExpressionRead,
    ) -> Result<Sensitivity, Diagnostic> {
        self.check_use(report, None, found)?;
        let late =
            self.producer(&found.source).map(|made| self.units[made].hook).filter(|hook| *hook > Hook::PostStart);
        if let Some(hook) = late {
            let wrong =
                report.error_in("hook-order", &found.spot, format!("`{}` is made in {}", found.source, hook.name()));
            return Err(wrong.help("what resources and `env` get is made in preStart or postStart"));
        }
        check_field(report, found, self.is_text(None, &found.source));
        Ok(self.sensitivity(&found.source))
    }

    fn check_uses(&mut self, report: &mut DiagnosticCollector) {
        for unit in &self.units {
            for found in &unit.uses {
                if report.is_full() {
                    break;
                }
                match self.check_use(report, Some(unit), found) {
                    Ok(()) => {
                        sensitive::check(report, found, self.sensitivity_in(unit, &found.source));
                        check_field(report, found, self.is_text(Some(unit), &found.source));
                    }
                    Err(diagnostic) => report.push(diagnostic),
                }
            }
        }
        let sensitive = |whole: &Option<ReferenceSource>| {
            let found = whole.as_ref().map_or(Sensitivity::Open, |source| self.sensitivity(source));
            !matches!(found, Sensitivity::Open | Sensitivity::InClusterByDefault)
        };
        let marks: Vec<Vec<bool>> = self.units.iter().map(|unit| unit.wholes.iter().map(sensitive).collect()).collect();
        for (unit, marks) in self.units.iter_mut().zip(marks) {
            for (input, sensitive) in unit.plan.inputs.iter_mut().zip(marks) {
                input.sensitive = sensitive;
            }
        }
    }

    fn name_after_and_undoes(&mut self, report: &mut DiagnosticCollector) {
        for at in 0..self.units.len() {
            let unit = &self.units[at];
            let mut after = Vec::new();
            for name in &unit.doc.after.0 {
                if report.is_full() {
                    break;
                }
                let Some(first) = self.named(report, name) else { continue };
                if first == at {
                    report.push(report.error("cycle", name.at, format!("`{}` waits for itself", name.value)));
                } else if self.units[first].hook != unit.hook {
                    let message = format!("`{}` runs in {}", name.value, self.units[first].hook.name());
                    let help = "`after` is for units of the same hook; earlier hooks are over anyway";
                    report.push(report.error("hook-order", name.at, message).help(help));
                } else {
                    after.push(first);
                }
            }
            let undoes = match (&unit.doc.undoes, &unit.doc.verifies) {
                (_, Some(undo)) => self.verified(report, undo),
                (Some(names), None) => {
                    let mut undoes = Vec::new();
                    for name in &names.0 {
                        let Some(undone) = self.named(report, name) else { continue };
                        let undone_hook = self.units[undone].hook;
                        let is_event = matches!(undone_hook, Hook::Update(_) | Hook::Event(_));
                        if is_event || undone_hook >= unit.hook || unit.hook < Hook::PreStop {
                            let message = format!("`{}` cannot undo `{}`", unit.doc.name.value, name.value);
                            let help = match is_event {
                                true => "what an update or an event makes is not kept, so nothing undoes it",
                                false => "a unit of preStop or postStop undoes units of earlier hooks",
                            };
                            report.push(report.error("hook-order", name.at, message).help(help));
                        } else {
                            undoes.push(undone);
                        }
                    }
                    undoes
                }
                (None, None) => self.inferred(unit),
            };
            if let (Some(key), Some(&undone), true) = (&unit.doc.on_failure, undoes.first(), unit.plan.tolerated) {
                let (undo, undone) = (&unit.doc.name.value, &self.units[undone].doc.name.value);
                let message = format!("`{undo}` undoes `{undone}` and has `onFailure: continue`");
                let help = "leave it out: the target would be gone although what a failed undo leaves remains";
                report.push(report.error("on-failure", key.at, message).help(help));
            }
            let list = for_each::list_of(&self.units, unit, &undoes);
            let unit = &mut self.units[at];
            (unit.after, unit.undoes, unit.list) = (after, undoes, list);
        }
    }

    /// Returns the units that the verification of `undo` verifies: those that the undo undoes. It is before its
    /// verification.
    fn verified(&self, report: &mut DiagnosticCollector, undo: &At<String>) -> Vec<usize> {
        let undoes = self.unit(&undo.value).map(|undo| undo.undoes.clone()).unwrap_or_default();
        if undoes.is_empty() {
            let message = format!("`{}` has a `verify` and undoes nothing", undo.value);
            report.push(report.error("verify", undo.at, message).help("add `undoes: UNIT`, or leave `verify` out"));
        }
        undoes
    }

    fn is_verified(&self, undo: &CompiledUnit<'_>) -> bool {
        let mut verifications = self.units.iter().filter(|unit| unit.hook == undo.hook && unit.doc.verifies.is_some());
        verifications.any(|unit| unit.undoes.iter().any(|undone| undo.undoes.contains(undone)))
    }

    fn named(&self, report: &mut DiagnosticCollector, name: &At<String>) -> Option<usize> {
        let found = self.by_name.get(name.value.as_str()).copied();
        if found.is_none() {
            let wrong = report.error("unknown-unit", name.at, format!("there is no unit `{}`", name.value));
            report.push(self.unknown_unit(report, wrong, &name.value));
        }
        found
    }

    /// Returns the units that a unit without `undoes` undoes: in postStop, the setup units that it reads. A Signadot
    /// `delete` step that reads none undoes all of `create`, so that it is omitted only if no `create` step has
    /// started.
    fn inferred(&self, unit: &CompiledUnit<'_>) -> Vec<usize> {
        if unit.hook != Hook::PostStop {
            return Vec::new();
        }
        let mut undoes: Vec<usize> = unit
            .uses
            .iter()
            .filter_map(|found| self.producer(&found.source))
            .filter(|&read| self.units[read].hook <= Hook::PostStart)
            .collect();
        if undoes.is_empty() && self.plugin.dialect == Dialect::Signadot {
            undoes = (0..self.units.len()).filter(|&n| self.units[n].hook <= Hook::PostStart).collect();
        }
        undoes.sort_unstable();
        undoes.dedup();
        undoes
    }

    fn public_outputs(&mut self, report: &mut DiagnosticCollector) {
        for Named { name, inner: PublicOutputDoc { value: text, show } } in &self.plugin.outputs {
            let value = report.text(&text.value, text.at, report.units);
            let uses = std::mem::take(&mut report.reads);
            let mut sensitivity = Sensitivity::Open;
            let mut is_text = false;
            let mut teardown = None;
            for found in &uses {
                if report.is_full() {
                    break;
                }
                if let Err(diagnostic) = self.check_use(report, None, found) {
                    report.push(diagnostic);
                    continue;
                }
                let of_source = self.sensitivity(&found.source);
                sensitive::check(report, found, of_source);
                check_field(report, found, self.is_text(None, &found.source));
                if found.usage == ReferenceUsage::Whole {
                    (sensitivity, is_text) = (of_source, self.is_text(None, &found.source));
                }
                let producer = self.producer(&found.source).map(|producer| &self.units[producer]);
                if let Some(producer) = producer.filter(|producer| producer.hook > Hook::PostStart) {
                    teardown = Some((found, &producer.doc.name.value, producer.hook));
                }
            }
            if let Some((found, unit, hook)) = teardown {
                // Signadot publishes the outputs of every step, but those of `delete` cannot be read.
                if self.plugin.dialect == Dialect::Signadot {
                    continue;
                }
                let message =
                    format!("public output `{}` is made by `{unit}`, which runs in {}", name.value, hook.name());
                let help = "what the sandbox gets is made in preStart or postStart";
                report.push(report.error_in("hook-order", &found.spot, message).help(help));
            }
            if let Some(show) = show.as_ref().filter(|_| sensitivity.is_sensitive()) {
                let message = format!("public output `{}` is sensitive, so no message can link to it", name.value);
                report.push(report.error("sensitive", show.at, message).help("remove `show: link`"));
            }
            let is_link = show.is_some();
            self.outputs.insert(&name.value, CheckedOutput { value, sensitivity, is_text, is_link, uses });
        }
    }

    fn check_cycles(&self, report: &mut DiagnosticCollector) {
        let targets = self.units.iter().enumerate().map(|(at, unit)| {
            let reads = unit.uses.iter().filter_map(|found| self.producer(&found.source));
            let reads = reads.filter(|&first| first != at && self.units[first].hook == unit.hook);
            reads.chain(unit.after.iter().copied()).collect()
        });
        let name = |unit: usize| self.units[unit].doc.name.value.as_str();
        let step = |from: usize, to: usize| {
            let (unit, own, first) = (&self.units[from], name(from), name(to));
            if let Some(found) = unit.uses.iter().find(|found| self.producer(&found.source) == Some(to)) {
                let text = format!("`{own}` reads `{}`", found.source);
                return Some((found.spot.pos(&report.source), text));
            }
            let at = unit.doc.after.0.iter().find(|after| after.value == first)?.at;
            Some((at, format!("`{own}` runs after `{first}`")))
        };
        let targets: Vec<Vec<usize>> = targets.collect();
        let order = order::order_or_error(&report.source, &targets, |unit| name(unit).to_owned(), step);
        report.found.extend(order.err());
    }

    fn warn(&mut self) {
        let mut read: HashSet<(&str, &str)> = HashSet::new();
        let public = self.outputs.values().flat_map(|output| &output.uses);
        for found in self.units.iter().flat_map(|unit| &unit.uses).chain(public) {
            if let ReferenceSource::Output { unit, output } = &found.source {
                read.insert((unit, output));
            }
        }
        let undone: HashSet<usize> = self.units.iter().flat_map(|unit| unit.undoes.iter().copied()).collect();
        let mut warnings = Vec::new();
        let warning = |code, at, message: String, help: &str| {
            Diagnostic::warning(code, &self.plugin.source, at, message).help(help)
        };
        let ours = self.plugin.dialect == Dialect::Ebb;
        let has_teardown = self.units.iter().any(|unit| unit.hook == Hook::PostStop);
        for (at, unit) in self.units.iter().enumerate() {
            if warnings.len() >= MAX_WARNINGS {
                break;
            }
            let doc = unit.doc;
            let name = doc.name.value.as_str();
            // The sandbox can read those of own units.
            let is_own = self.plugin.owner == HookOwner::Target;
            let unused = |output: &&OutputDoc| ours && !is_own && !read.contains(&(name, output.name.value.as_str()));
            for output in doc.outputs.iter().filter(unused) {
                let message = format!("output `{}` of `{name}` is never read", output.name.value);
                let help = "read it in another unit, publish it under `outputs`, or leave it out";
                warnings.push(warning("unused-output", output.name.at, message, help));
            }
            if let ActionDoc::Pod(PodDoc { script, .. }) = &doc.action
                && ours
                && let Some(offset) = templated(&script.value)
            {
                let place = At { value: script.value.as_str(), at: script.at };
                let at = template::place(&self.plugin.source, &place, offset);
                let message =
                    format!("the script of `{name}` has a `${{…}}` that stays as it is: scripts are not templated");
                let help = "declare an input with this value, and read its variable";
                warnings.push(warning("script-template", at, message, help));
            }
            let elsewhere = unit.undoes.iter().map(|&undone| &self.units[undone]).find(|undone| {
                unit.plan.action.is_relayed() && undone.cluster.is_some() && undone.cluster != unit.cluster
            });
            if let Some(undone) = elsewhere {
                let message =
                    format!("`{name}` runs in another cluster than `{}`, which it undoes", undone.doc.name.value);
                let at = doc.cluster.as_ref().map_or(doc.name.at, |cluster| cluster.at);
                warnings.push(warning("undo-cluster", at, message, "if that is not meant, give it the same `cluster`"));
            }
            let asks = matches!(&doc.action, ActionDoc::Webhook(_)) && !profile::acts(unit);
            let is_unconfirmed = self.required_evidence() == Some(RequiredEvidence::Confirmed)
                && !unit.undoes.is_empty()
                && (doc.until.is_none() || asks)
                && !self.is_verified(unit);
            if is_unconfirmed {
                let shows = if asks { "shows no removal" } else { "can only report a removal" };
                let message = format!("`{name}` {shows}, and the plugin requires `evidence: confirmed`");
                let help = match &doc.action {
                    ActionDoc::Webhook(_) if asks => "add `verify` to an undo of the same unit, so that it decides",
                    ActionDoc::Webhook(_) => "add `verify` or `until` to it; without one, its targets get stuck",
                    _ => "add `verify` to it; without one, its targets get stuck",
                };
                warnings.push(warning("evidence", doc.name.at, message, help));
            }
            for (code, at, message, help) in unit_lints::of_unit(&self.plugin.source, &self.units, at) {
                warnings.push(warning(code, at, message, help));
            }
            let makes = profile::acts(unit) && !doc.outputs.is_empty();
            // Signadot's documents do not declare undos. Any step after the stop may be the undo.
            let known = ours || !has_teardown;
            if makes && known && doc.cleanup.is_none() && unit.hook <= Hook::PostStart && !undone.contains(&at) {
                let help = match ours {
                    true => format!("add a unit to postStop with `undoes: {name}`, or `cleanup: none` to `{name}`"),
                    false => format!("add a step to `delete` that removes what `{name}` makes"),
                };
                warnings.push(warning("no-undo", doc.name.at, format!("nothing undoes what `{name}` makes"), &help));
            }
        }
        self.warnings = grouped(warnings);
    }
}

/// Returns the byte offset of the first expression in a script. Scripts are not templates, so this is a likely mistake.
fn templated(script: &str) -> Option<usize> {
    let roots = ["units", "params", "old", "target", "resource"];
    let begins =
        |rest: &str| roots.iter().any(|root| rest.strip_prefix(root).is_some_and(|rest| rest.starts_with('.')));
    script.match_indices("${").map(|(at, _)| at).find(|at| begins(script[at + 2..].trim_start()))
}
