//! The chain as documents.

use std::fmt::Write as _;

/// What each script does: it says when it has ended, in milliseconds since 1970.
pub(crate) const SCRIPT: &str = "date +%s%3N >/tmp/end";

/// A plugin of units that each wait for the one before.
pub(crate) fn plugin(units: usize, image: &str) -> String {
    let mut text = format!(
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: chain@1.0.0\nrunners:\n  it: {{image: \"{image}\"}}\npreStart:\n"
    );
    for unit in 0..units {
        let inputs = match unit.checked_sub(1) {
            Some(before) => format!("    inputs: {{before: \"${{units.u{before}.outputs.end}}\"}}\n"),
            None => String::new(),
        };
        let _ = write!(
            text,
            "  u{unit}:\n    pod:\n      runner: it\n      script: |\n        #!/bin/sh -eu\n        {SCRIPT}\n{inputs}    \
             outputs: {{end: {{file: /tmp/end}}}}\n"
        );
    }
    text.push_str("outputs:\n");
    for unit in 0..units {
        let _ = writeln!(text, "  end{unit}: ${{units.u{unit}.outputs.end}}");
    }
    text
}

/// A sandbox with it.
pub(crate) fn sandbox(name: &str) -> String {
    format!("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\nresources: {{it: {{plugin: chain@1.0.0}}}}\n")
}
