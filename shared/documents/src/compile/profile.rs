//! The profile `resource` of a plugin: it creates something in the setup, and undoes all of it.

use std::collections::HashSet;

use ebb_engine::Hook;

use super::{CheckedPlugin, CompiledUnit, DiagnosticCollector};
use crate::{ActionDoc, Diagnostic, Dialect, ResourceDoc, SandboxDoc, WebhookMethod};

/// A requirement that a plugin does not fulfil: a unit that can leave something and that nothing undoes, or `None`
/// without a setup unit.
type ProfileGap<'c, 'a> = Option<&'c CompiledUnit<'a>>;

fn message(gap: ProfileGap<'_, '_>) -> String {
    match gap {
        None => "it has no unit in preStart or postStart".to_owned(),
        Some(unit) => format!("nothing undoes `{}`", unit.doc.name.value),
    }
}

/// Returns the gaps in the order of the units. `can_leave` decides whether a unit without an undo is one.
fn gaps<'c, 'a>(
    checked: &'c CheckedPlugin<'a>,
    can_leave: impl Fn(&CompiledUnit<'a>) -> bool,
) -> Vec<ProfileGap<'c, 'a>> {
    let setup = || checked.units.iter().enumerate().filter(|(_, unit)| unit.hook <= Hook::PostStart);
    if setup().next().is_none() {
        return vec![None];
    }
    let teardown = || checked.units.iter().filter(|unit| unit.hook == Hook::PostStop);
    // Any step of Signadot's `delete` may be the undo.
    if checked.plugin.dialect == Dialect::Signadot && teardown().next().is_some() {
        return Vec::new();
    }
    let undone: HashSet<usize> = teardown().flat_map(|unit| unit.undoes.iter().copied()).collect();
    let left = setup().filter(|(at, unit)| !undone.contains(at) && unit.doc.cleanup.is_none() && can_leave(unit));
    left.map(|(_, unit)| Some(unit)).collect()
}

/// Returns true for a script, and for a request that can change something. Ebb removes the objects of object units and
/// the resources of InfraKit units.
pub(super) fn acts(unit: &CompiledUnit<'_>) -> bool {
    match &unit.doc.action {
        ActionDoc::Pod(_) => true,
        ActionDoc::Webhook(webhook) => webhook.method != WebhookMethod::Get,
        ActionDoc::Object(_) | ActionDoc::Infrakit(_) => false,
    }
}

/// Rejects a plugin that declares the profile and does not fulfil it.
pub(super) fn check(report: &mut DiagnosticCollector, checked: &CheckedPlugin<'_>) {
    let Some(profile) = &checked.plugin.profile else { return };
    for gap in gaps(checked, acts) {
        if report.is_full() {
            return;
        }
        let message = format!("the plugin does not have its profile `resource`: {}", message(gap));
        report.push(match gap {
            None => {
                report.error("profile", profile.at, message).help("add the units that create the resource to preStart")
            }
            Some(unit) => {
                let name = &unit.doc.name;
                let help =
                    format!("add a unit to postStop with `undoes: {0}`, or `cleanup: none` to `{0}`", name.value);
                report.error("profile", name.at, message).related(profile.at, "the profile").help(help)
            }
        });
    }
}

/// Returns a warning for a resource whose plugin declares no profile, and creates nothing or has outputs of units that
/// nothing undoes.
pub(super) fn warn(sandbox: &SandboxDoc, resource: &ResourceDoc, checked: &CheckedPlugin<'_>) -> Option<Diagnostic> {
    if checked.plugin.profile.is_some() || resource.collection.is_some() {
        return None;
    }
    let gap = *gaps(checked, |unit| acts(unit) && !unit.doc.outputs.is_empty()).first()?;
    let (plugin, name) = (&checked.plugin.name.value, &resource.name.value);
    let message = format!("plugin `{plugin}` of `{name}` does not have the profile of a resource: {}", message(gap));
    let warning = Diagnostic::warning("profile", &sandbox.source, resource.plugin.at, message);
    Some(warning.help("its author can declare `profile: resource`, which checks this when the plugin is published"))
}
