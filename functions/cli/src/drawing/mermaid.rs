//! Pictures for Mermaid, as flowcharts.

use std::fmt::Write as _;

use super::PlanDiagram;

/// Returns a flowchart that ends with a line break.
pub(super) fn text(graph: &PlanDiagram) -> String {
    let mut text = format!("---\ntitle: {}\n---\nflowchart TD\n", yaml(&graph.title));
    for (number, hook) in graph.hooks.iter().enumerate() {
        let _ = writeln!(text, "  subgraph e{number} [\"{}\"]", escaped(&hook.name));
        for (position, unit) in hook.units.iter().enumerate() {
            let (open, close) = match unit.kind.as_str() {
                "webhook" => ("([", "])"),
                "object" => ("[[", "]]"),
                _ => ("[", "]"),
            };
            let _ = writeln!(text, "    e{number}u{position}{open}\"{}\"{close}", escaped(&unit.key));
        }
        for edge in &hook.edges {
            let label = escaped(&edge.label);
            let _ = writeln!(text, "    e{number}u{} -->|\"{label}\"| e{number}u{}", edge.from, edge.to);
        }
        text.push_str("  end\n");
    }
    text
}

/// Escapes characters with a meaning in Mermaid as entities, such as `#quot;`.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => escaped.push_str("#quot;"),
            '#' => escaped.push_str("#35;"),
            '<' => escaped.push_str("#lt;"),
            '>' => escaped.push_str("#gt;"),
            '&' => escaped.push_str("#amp;"),
            '`' => escaped.push_str("#96;"),
            '\\' => escaped.push_str("#92;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns a YAML string in double quotes. JSON strings have the same syntax.
fn yaml(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}
