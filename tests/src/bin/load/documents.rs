//! What is run: one unit, then [`WIDTH`] that wait for it, then one that waits for all of these.

use std::fmt::Write as _;

/// Units in the middle.
pub(crate) const WIDTH: usize = 20;
/// Units of a run.
pub(crate) const UNITS: usize = WIDTH + 2;

/// The names of the units.
pub(crate) fn units() -> impl Iterator<Item = String> {
    let middle = (0..WIDTH).map(|number| format!("u{number}"));
    std::iter::once("first".to_owned()).chain(middle).chain(std::iter::once("last".to_owned()))
}

/// What a unit makes, which those that wait for it have to get.
pub(crate) fn made(target: &str, unit: &str) -> String {
    format!("{unit}-of-{target}")
}

/// What a unit reads.
pub(crate) fn read(unit: &str) -> Vec<String> {
    match unit {
        "first" => Vec::new(),
        "last" => units().skip(1).take(WIDTH).collect(),
        _ => vec!["first".to_owned()],
    }
}

/// The plugin.
pub(crate) fn plugin() -> String {
    let mut text =
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: load@1.0.0\ndefaults: {timeout: 1h}\npreStart:\n"
            .to_owned();
    for unit in units() {
        let read: Vec<_> =
            read(&unit).iter().map(|unit| format!("\"${{units.{unit}.outputs.id}}\"")).collect();
        let read = read.join(", ");
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "  {unit}:\n    webhook: {{url: \"https://units.test/{unit}\", body: {{target: \"${{target.name}}\", read: [{read}]}}}}\n    \
             outputs: {{id: {{value: \"${{response.body.id}}\"}}}}\n"
        );
    }
    text
}

/// The name of a target.
pub(crate) fn target(number: usize) -> String {
    format!("load-{number}")
}

/// A target that binds the plugin.
pub(crate) fn sandbox(number: usize) -> String {
    let name = target(number);
    format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\nresources:\n  load: {{plugin: load@1.0.0}}\n"
    )
}
