//! Outputs of targets, and lines that `ebb` prints.

use ebb_protocol::{OutputValue, TargetDetail};

/// Returns an output of a resource. Panics if the output is not text.
pub(crate) fn output<'a>(target: &'a TargetDetail, resource: &str, output: &str) -> &'a str {
    match &target.resources[resource].outputs[output] {
        OutputValue::Value(value) => value.as_str().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Returns the value of a name in lines of the form `NAME = VALUE`.
pub(crate) fn value<'a>(lines: &'a str, name: &str) -> &'a str {
    let found = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    found.unwrap_or_else(|| panic!("no {name} in:\n{lines}"))
}
