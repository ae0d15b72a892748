//! A sandbox whose units wait for a first one, and a last one for these; each has one that takes away what it has made.

use std::fmt::Write as _;

pub(crate) const NAME: &str = "priced";

/// The plugin, with so many units and as many that undo them.
pub(crate) fn plugin(units: u32) -> String {
    let mut text = "apiVersion: ebb.dev/v1\nkind: Plugin\nname: priced@1.0.0\npreStart:\n".to_owned();
    let last = units - 1;
    // Writing to a string does not fail.
    for unit in 0..units {
        let reads = match unit {
            0 => 0..0,
            unit if unit == last => 1..last,
            _ => 0..1,
        };
        let reads: Vec<_> = reads.map(|unit| format!("\"${{units.u{unit}.outputs.id}}\"")).collect();
        let reads = reads.join(", ");
        let _ = writeln!(
            text,
            "  u{unit}:\n    webhook: {{url: \"https://units.test/make\", body: {{read: [{reads}]}}}}"
        );
        text.push_str("    outputs: {id: {value: \"${response.body.id}\"}}\n");
    }
    text.push_str("postStop:\n");
    for unit in 0..units {
        let read = format!("\"${{units.u{unit}.outputs.id}}\"");
        let _ = writeln!(text, "  d{unit}:\n    undoes: u{unit}");
        let _ = writeln!(text, "    webhook: {{url: \"https://units.test/drop\", body: {{id: {read}}}}}");
    }
    text
}

/// The sandbox.
pub(crate) fn sandbox() -> String {
    format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {NAME}\nresources:\n  r: {{plugin: priced@1.0.0}}\n"
    )
}
