//! Pictures made of characters.

use ascii_dag::RenderOptions;

use super::{HookDiagram, PlanDiagram};

/// More units than this are listed: a picture of them is wider than any terminal.
const DRAWN: usize = 60;
/// Columns beyond which a picture is replaced by a list.
const WIDTH: usize = 160;

/// The text, with a line end.
pub(super) fn text(graph: &PlanDiagram) -> String {
    let mut text = format!("{}\n", graph.title);
    for hook in &graph.hooks {
        text.push_str(&format!("\n{}\n", hook.name));
        text.push_str(&picture(hook).unwrap_or_else(|| list(hook)));
    }
    if graph.hooks.is_empty() {
        text.push_str("\nno units\n");
    }
    text
}

fn picture(hook: &HookDiagram) -> Option<String> {
    if hook.units.len() > DRAWN || hook.edges.is_empty() {
        return None;
    }
    let mut drawn = ascii_dag::Graph::new();
    for (position, unit) in hook.units.iter().enumerate() {
        drawn.add_node(position, unit.key.as_str());
    }
    for edge in &hook.edges {
        drawn.add_edge(edge.from, edge.to, None);
    }
    let text = drawn.compute_layout().render_string(&RenderOptions::plain());
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let fits = lines.iter().all(|line| console::measure_text_width(line) <= WIDTH);
    fits.then(|| lines.iter().map(|line| format!("  {line}\n")).collect())
}

fn list(hook: &HookDiagram) -> String {
    let mut text = String::new();
    for (position, unit) in hook.units.iter().enumerate() {
        let after: Vec<&str> = hook
            .edges
            .iter()
            .filter(|edge| edge.to == position)
            .map(|edge| hook.units[edge.from].key.as_str())
            .collect();
        let after = if after.is_empty() { String::new() } else { format!("  after {}", after.join(", ")) };
        text.push_str(&format!("  {}{after}\n", unit.key));
    }
    text
}
