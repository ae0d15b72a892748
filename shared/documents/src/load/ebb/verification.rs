//! Makes a unit of the `verify` of each undo.

use std::collections::HashMap;

use crate::load::reader::DocumentReader;
use crate::model::{At, LineColumn, PluginDoc, UnitDoc};

/// The suffix to the name of an undo, for the unit that verifies it.
const SUFFIX: &str = "-verify";
const CODE: &str = "verify";

/// Adds a unit after each undo with `verify`. Reports each `verify` of a unit of another hook.
pub(super) fn add_units(reader: &DocumentReader<'_>, plugin: &mut PluginDoc) {
    let units = plugin.hooks().flat_map(|(_, hook)| hook.iter());
    let known: HashMap<String, LineColumn> = units.map(|unit| (unit.name.value.clone(), unit.name.at)).collect();
    let others = [&plugin.pre_start, &plugin.post_start, &plugin.update];
    let others = others.into_iter().flatten().chain(plugin.hooks.iter());
    for unit in others.flat_map(|hook| hook.iter()) {
        if let Some(verify) = &unit.verify {
            let message = format!("`{}` is not a unit of preStop or postStop, so it undoes nothing", unit.name.value);
            reader.note(reader.wrong(CODE, verify.at, message).help("move `verify` to the undo of the unit"));
        }
    }
    for hook in [&mut plugin.pre_stop, &mut plugin.post_stop].into_iter().flatten() {
        let mut units = Vec::with_capacity(hook.len());
        for undo in std::mem::take(&mut hook.inner.0) {
            let verification = verification(reader, &known, &undo);
            units.push(undo);
            units.extend(verification);
        }
        hook.inner.0 = units;
    }
}

fn verification(reader: &DocumentReader<'_>, known: &HashMap<String, LineColumn>, undo: &UnitDoc) -> Option<UnitDoc> {
    let verify = undo.verify.as_ref()?;
    let name = format!("{}{SUFFIX}", undo.name.value);
    if let Some(&at) = known.get(&name) {
        let message = format!("the name `{name}` belongs to the `verify` of `{}`", undo.name.value);
        let wrong = reader.wrong(CODE, at, message).related(verify.at, "the `verify`");
        reader.note(wrong.help("give the unit another name"));
        return None;
    }
    Some(verify.value.unit(At { value: name, at: verify.at }, undo))
}
