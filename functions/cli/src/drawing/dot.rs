//! Pictures for Graphviz, in the language DOT.

use std::fmt::Write as _;

use super::PlanDiagram;

/// Returns a DOT graph that ends with a line break.
pub(super) fn text(graph: &PlanDiagram) -> String {
    let mut text = format!("digraph ebb {{\n  label={};\n  node [shape=box];\n", quoted(&graph.title));
    for (number, hook) in graph.hooks.iter().enumerate() {
        let _ = writeln!(text, "  subgraph cluster_{number} {{\n    label={};", quoted(&hook.name));
        for (position, unit) in hook.units.iter().enumerate() {
            let shape = match unit.kind.as_str() {
                "webhook" => " shape=oval",
                "object" => " shape=component",
                _ => "",
            };
            let _ = writeln!(text, "    e{number}u{position} [label={}{shape}];", quoted(&unit.key));
        }
        for edge in &hook.edges {
            let label = quoted(&edge.label);
            let _ = writeln!(text, "    e{number}u{} -> e{number}u{} [label={label}];", edge.from, edge.to);
        }
        text.push_str("  }\n");
    }
    text.push_str("}\n");
    text
}

/// Returns a DOT string. Backslashes are escaped: in labels, `\N` and similar have a meaning.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
