//! Pictures for the terminal, drawn with characters.

use ascii_dag::RenderOptions;

use super::{HookDiagram, PlanDiagram};

/// The most units that are drawn. A picture of more is wider than terminals; they are listed.
const MAX_UNITS: usize = 60;
/// The widest picture, in columns. Wider ones are replaced by a list.
const MAX_WIDTH: usize = 160;

/// Returns a picture that ends with a line break.
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
    if hook.units.len() > MAX_UNITS || hook.edges.is_empty() {
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
    let fits = lines.iter().all(|line| console::measure_text_width(line) <= MAX_WIDTH);
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
