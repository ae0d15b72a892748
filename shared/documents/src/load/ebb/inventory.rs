//! Makes a plugin of the `inventory` of a plugin. Its setup lists what exists, and it has no other hook.

use crate::load::reader::DocumentReader;
use crate::model::{
    ActionDoc, At, Cleanup, Entries, HookOwner, Named, PluginDoc, PublicOutputDoc, UnitDoc, WebhookMethod,
};
use crate::template;

const CODE: &str = "inventory";

/// Moves the units of `inventory` to [`PluginDoc::lister`], if the plugin has some.
pub(super) fn take(reader: &DocumentReader<'_>, plugin: &mut PluginDoc) {
    let Some(mut units) = plugin.inventory.take() else { return };
    for unit in &mut units.inner.0 {
        unit.cleanup = Some(Cleanup::None);
        if !asks_once(unit) {
            let message = format!("`{}` of `inventory` does not only ask, or not once", unit.name.value);
            let help = "ask by a `GET`, a `POST` or a `pod`, and leave out what repeats, ignores or undoes";
            reader.note(reader.wrong(CODE, unit.name.at, message).help(help));
        }
    }
    let outputs = units.iter().flat_map(|unit| unit.outputs.iter().map(move |output| (unit, output)));
    let makers: Vec<_> = outputs.filter(|(_, output)| output.name.value == PluginDoc::THINGS).collect();
    let &[(unit, output)] = makers.as_slice() else {
        let message = format!("{} units of `inventory` have the output `{}`", makers.len(), PluginDoc::THINGS);
        let help = "give it to exactly one: a list of texts, the name or tag of each thing";
        return reader.note(reader.wrong(CODE, units.name.at, message).help(help));
    };
    let value = At { value: template::of_output(&unit.name.value, &output.name.value), at: output.name.at };
    let things = Named { name: output.name.clone(), inner: PublicOutputDoc { value, show: None } };
    plugin.lister = Some(Box::new(PluginDoc {
        name: plugin.name.clone(),
        max_concurrent: plugin.max_concurrent.clone(),
        params: plugin.params.clone(),
        runners: plugin.runners.clone(),
        defaults: plugin.defaults.clone(),
        outputs: Entries(vec![things]),
        pre_start: Some(units),
        owner: HookOwner::Inventory,
        source: reader.source.clone(),
        ..PluginDoc::default()
    }));
}

/// Returns false for a unit that could change something, or whose result could be that of a part of its questions.
fn asks_once(unit: &UnitDoc) -> bool {
    let asks = match &unit.action {
        ActionDoc::Pod(_) => true,
        ActionDoc::Webhook(webhook) => {
            matches!(webhook.method, WebhookMethod::Get | WebhookMethod::Post) && webhook.describe.is_none()
        }
        ActionDoc::Object(_) | ActionDoc::Infrakit(_) => false,
    };
    let is_once = unit.until.is_none() && unit.repeat.is_none() && unit.for_each.is_none();
    asks && is_once && unit.on_failure.is_none() && unit.undoes.is_none() && unit.verify.is_none()
}
