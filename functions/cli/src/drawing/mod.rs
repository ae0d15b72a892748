//! Graphs of units as pictures: for the terminal, for Mermaid, for Graphviz.

mod dot;
mod mermaid;
mod terminal;

use clap::ValueEnum;
use ebb_spec::compile;
use ebb_spec::plan::Plan;

use crate::offline;

/// What a picture is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Picture {
    /// The terminal.
    Text,
    /// Mermaid.
    Mermaid,
    /// Graphviz.
    Dot,
}

/// The units and edges of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Graph {
    /// What it is the graph of.
    pub(crate) title: String,
    /// The events in the order of a life.
    pub(crate) events: Vec<Event>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// `preStart`, …
    pub(crate) name: String,
    /// Its units in the order of the plan.
    pub(crate) units: Vec<Node>,
    /// Its edges; one for each pair of units.
    pub(crate) edges: Vec<Edge>,
}

/// One unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// `resource/unit`.
    pub(crate) key: String,
    /// `pod`, `webhook` or `object`.
    pub(crate) kind: String,
}

/// One unit waits for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// Position of the unit that comes first.
    pub(crate) from: usize,
    /// Position of the one that waits.
    pub(crate) to: usize,
    /// Why: `bucket-name, region` or `after`.
    pub(crate) label: String,
}

impl Graph {
    /// The graph of a plan.
    pub(crate) fn new(title: &str, plan: &Plan) -> Self {
        let all = compile::edges(plan);
        let events = plan.events.iter().map(|event| {
            let units: Vec<Node> = event
                .units
                .iter()
                .map(|unit| Node { key: unit.key.clone(), kind: unit.work.kind().to_owned() })
                .collect();
            let positions: std::collections::HashMap<&str, usize> =
                units.iter().enumerate().map(|(position, node)| (node.key.as_str(), position)).collect();
            let mut edges: Vec<Edge> = Vec::new();
            for edge in all.iter().filter(|edge| edge.event == event.event) {
                let (Some(&from), Some(&to)) =
                    (positions.get(edge.from.as_str()), positions.get(edge.to.as_str()))
                else {
                    continue;
                };
                let label = match &edge.why {
                    compile::Why::Reads(output) => output.clone(),
                    other => offline::reason(other),
                };
                match edges.last_mut() {
                    Some(last) if (last.from, last.to) == (from, to) => {
                        last.label.push_str(", ");
                        last.label.push_str(&label);
                    }
                    _ => edges.push(Edge { from, to, label }),
                }
            }
            Event { name: event.event.clone(), units, edges }
        });
        Self { title: title.to_owned(), events: events.collect() }
    }

    /// Draws it.
    pub(crate) fn draw(&self, picture: Picture) -> String {
        match picture {
            Picture::Text => terminal::text(self),
            Picture::Mermaid => mermaid::text(self),
            Picture::Dot => dot::text(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Graph {
        let node = |key: &str, kind: &str| Node { key: key.to_owned(), kind: kind.to_owned() };
        let edge = |from, to, label: &str| Edge { from, to, label: label.to_owned() };
        Graph {
            title: "a \"title\"\\".to_owned(),
            events: vec![
                Event {
                    name: "preStart".to_owned(),
                    units: vec![
                        node("db/provision", "pod"),
                        node("db/seed", "pod"),
                        node("cache/up", "webhook"),
                    ],
                    edges: vec![edge(0, 1, "bucket-name, <base>"), edge(0, 2, "say \"hi\"")],
                },
                Event { name: "postStop".to_owned(), units: vec![node("db/drop", "pod")], edges: Vec::new() },
            ],
        }
    }

    #[test]
    fn pictures() {
        insta::assert_snapshot!("terminal", graph().draw(Picture::Text));
        insta::assert_snapshot!("mermaid", graph().draw(Picture::Mermaid));
        insta::assert_snapshot!("dot", graph().draw(Picture::Dot));
    }

    #[test]
    fn a_large_graph_is_listed() {
        let mut graph = graph();
        let node = |number: usize| Node { key: format!("fan/u{number}"), kind: "pod".to_owned() };
        graph.events[0].units = (0..500).map(node).collect();
        graph.events[0].edges = (1..500).map(|to| Edge { from: 0, to, label: "x".to_owned() }).collect();
        let text = graph.draw(Picture::Text);
        assert!(text.contains("fan/u499  after fan/u0"), "{text}");
    }
}
