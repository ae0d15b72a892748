//! Pictures of plans: for the terminal, for Mermaid, for Graphviz.

mod dot;
mod mermaid;
mod terminal;

use clap::ValueEnum;
use ebb_documents::compile;
use ebb_documents::plan::Plan;

use crate::offline;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiagramFormat {
    /// A picture for the terminal.
    Text,
    /// A Mermaid flowchart.
    Mermaid,
    /// A Graphviz graph.
    Dot,
}

/// The units and edges of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanDiagram {
    pub(crate) title: String,
    /// The hooks, in the order of the lifecycle.
    pub(crate) hooks: Vec<HookDiagram>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HookDiagram {
    /// The name of the hook, such as `preStart`.
    pub(crate) name: String,
    /// The units, in the order of the plan.
    pub(crate) units: Vec<DiagramNode>,
    /// The edges, one per pair of units.
    pub(crate) edges: Vec<DiagramEdge>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiagramNode {
    pub(crate) key: String,
    /// `pod`, `webhook` or `object`.
    pub(crate) kind: String,
}

/// A dependency: the unit `to` starts after the unit `from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiagramEdge {
    /// Position of the unit that runs first.
    pub(crate) from: usize,
    /// Position of the unit that waits.
    pub(crate) to: usize,
    /// The reason, such as `bucket-name, region` or `after`.
    pub(crate) label: String,
}

impl PlanDiagram {
    pub(crate) fn new(title: &str, plan: &Plan) -> Self {
        let all = compile::edges(plan);
        let hooks = plan.hooks.iter().map(|hook| {
            let units: Vec<DiagramNode> = hook
                .units
                .iter()
                .map(|unit| DiagramNode { key: unit.key.clone(), kind: unit.action.kind().to_owned() })
                .collect();
            let positions: std::collections::HashMap<&str, usize> =
                units.iter().enumerate().map(|(position, node)| (node.key.as_str(), position)).collect();
            let mut edges: Vec<DiagramEdge> = Vec::new();
            for edge in all.iter().filter(|edge| edge.hook == hook.hook) {
                let (Some(&from), Some(&to)) = (positions.get(edge.from.as_str()), positions.get(edge.to.as_str()))
                else {
                    continue;
                };
                let label = match &edge.reason {
                    compile::EdgeReason::Reads(output) => output.clone(),
                    other => offline::reason(other),
                };
                match edges.last_mut() {
                    Some(last) if (last.from, last.to) == (from, to) => {
                        last.label.push_str(", ");
                        last.label.push_str(&label);
                    }
                    _ => edges.push(DiagramEdge { from, to, label }),
                }
            }
            HookDiagram { name: hook.hook.name().to_owned(), units, edges }
        });
        Self { title: title.to_owned(), hooks: hooks.collect() }
    }

    pub(crate) fn draw(&self, picture: DiagramFormat) -> String {
        match picture {
            DiagramFormat::Text => terminal::text(self),
            DiagramFormat::Mermaid => mermaid::text(self),
            DiagramFormat::Dot => dot::text(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> PlanDiagram {
        let node = |key: &str, kind: &str| DiagramNode { key: key.to_owned(), kind: kind.to_owned() };
        let edge = |from, to, label: &str| DiagramEdge { from, to, label: label.to_owned() };
        PlanDiagram {
            title: "a \"title\"\\".to_owned(),
            hooks: vec![
                HookDiagram {
                    name: "preStart".to_owned(),
                    units: vec![node("db/provision", "pod"), node("db/seed", "pod"), node("cache/up", "webhook")],
                    edges: vec![edge(0, 1, "bucket-name, <base>"), edge(0, 2, "say \"hi\"")],
                },
                HookDiagram { name: "postStop".to_owned(), units: vec![node("db/drop", "pod")], edges: Vec::new() },
            ],
        }
    }

    #[test]
    fn pictures() {
        insta::assert_snapshot!("terminal", graph().draw(DiagramFormat::Text));
        insta::assert_snapshot!("mermaid", graph().draw(DiagramFormat::Mermaid));
        insta::assert_snapshot!("dot", graph().draw(DiagramFormat::Dot));
    }

    #[test]
    fn a_large_graph_is_listed() {
        let mut graph = graph();
        let node = |number: usize| DiagramNode { key: format!("fan/u{number}"), kind: "pod".to_owned() };
        graph.hooks[0].units = (0..500).map(node).collect();
        graph.hooks[0].edges = (1..500).map(|to| DiagramEdge { from: 0, to, label: "x".to_owned() }).collect();
        let text = graph.draw(DiagramFormat::Text);
        assert!(text.contains("fan/u499  after fan/u0"), "{text}");
    }
}
