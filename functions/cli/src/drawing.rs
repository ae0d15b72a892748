//! Draws plans for terminals, and for documents as Mermaid.

use std::collections::HashMap;
use std::fmt::Write as _;

use clap::ValueEnum;
use ebb_protocol::api::PlanPreview;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiagramFormat {
    /// The units in the order of their dependencies.
    Text,
    /// A Mermaid flowchart.
    Mermaid,
}

/// Returns a picture of a plan that ends with a line break.
pub(crate) fn mermaid(title: &str, plan: &PlanPreview) -> String {
    // JSON strings have the syntax of YAML strings in double quotes.
    let mut text = format!("---\ntitle: {}\n---\nflowchart TD\n", serde_json::Value::from(title));
    let quoted = |text: &str| {
        let entities = [("\"", "quot"), ("<", "lt"), (">", "gt"), ("&", "amp"), ("`", "96"), ("\\", "92")];
        let text = text.replace(char::is_control, " ").replace('#', "#35;");
        entities.iter().fold(text, |text, (character, entity)| text.replace(character, &format!("#{entity};")))
    };
    for (number, hook) in plan.hooks.iter().enumerate() {
        let _ = writeln!(text, "  subgraph e{number} [\"{}\"]", quoted(&hook.hook));
        for (position, unit) in hook.units.iter().enumerate() {
            let (open, close) = match unit.kind.as_str() {
                "webhook" => ("([", "])"),
                "object" => ("[[", "]]"),
                _ => ("[", "]"),
            };
            let _ = writeln!(text, "    e{number}u{position}{open}\"{}\"{close}", quoted(&unit.key));
        }
        let positions: HashMap<&str, usize> =
            hook.units.iter().enumerate().map(|(position, unit)| (unit.key.as_str(), position)).collect();
        for (to, unit) in hook.units.iter().enumerate() {
            for edges in unit.after.chunk_by(|a, b| a.key == b.key) {
                let Some(from) = positions.get(edges[0].key.as_str()) else { continue };
                let reasons = edges.iter().map(|edge| edge.reason.strip_prefix("reads ").unwrap_or(&edge.reason));
                let label = quoted(&reasons.collect::<Vec<_>>().join(", "));
                let _ = writeln!(text, "    e{number}u{from} -->|\"{label}\"| e{number}u{to}");
            }
        }
        text += "  end\n";
    }
    text
}

/// Returns a plan as a list of units that ends with a line break. A unit follows those that it depends on, and has the
/// rendered data of its preview.
pub(crate) fn text(title: &str, plan: &PlanPreview) -> String {
    let mut text = format!("{title}\n");
    for hook in &plan.hooks {
        let _ = writeln!(text, "\n{}", hook.hook);
        for (position, unit) in hook.units.iter().enumerate() {
            let place = unit.cluster.as_ref().map(|cluster| format!(" in {cluster}")).unwrap_or_default();
            let _ = writeln!(text, "  {}. {}  {}{place}", position + 1, unit.key, unit.kind);
            for edges in unit.after.chunk_by(|a, b| a.key == b.key) {
                let reasons: Vec<&str> = edges.iter().map(|edge| edge.reason.as_str()).collect();
                let _ = writeln!(text, "       after {} ({})", edges[0].key, reasons.join(", "));
            }
            write_rendered(&mut text, &unit.rendered);
        }
    }
    if plan.hooks.is_empty() {
        text.push_str("\nno units\n");
    }
    text
}

fn write_rendered(text: &mut String, rendered: &Value) {
    let Value::Object(parts) = rendered else { return };
    for (part, value) in parts {
        match (part.as_str(), value) {
            (_, Value::Null) => {}
            ("headers", Value::Object(headers)) if headers.is_empty() => {}
            ("inputs", Value::Array(inputs)) => {
                for input in inputs {
                    let name = input["name"].as_str().unwrap_or_default();
                    let _ = writeln!(text, "       {name} = {}{}", scalar(&input["value"]), places(input));
                }
            }
            ("manifest" | "body" | "headers" | "until" | "properties" | "tags" | "attachments", value) => {
                let yaml = serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string());
                let _ = writeln!(text, "       {part}:");
                text.extend(yaml.lines().map(|line| format!("         {line}\n")));
            }
            (part, value) => {
                let _ = writeln!(text, "       {part} {}", scalar(value));
            }
        }
    }
}

/// Returns the variable and the path of a pod's input.
fn places(input: &Value) -> String {
    let named = |name: &str| input[name].as_str().map(|value| format!("{name} {value}"));
    let places: Vec<String> = [named("env"), named("path")].into_iter().flatten().collect();
    if places.is_empty() { String::new() } else { format!("  ({})", places.join(", ")) }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "(absent)".to_owned(),
        Value::String(text) if !text.is_empty() && !text.contains('\n') => text.clone(),
        other => other.to_string(),
    }
}
