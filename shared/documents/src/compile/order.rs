//! The error for a cycle of a graph.

use std::sync::Arc;

use ebb_engine::topological_order;

use crate::diagnostic::Diagnostic;
use crate::model::{LineColumn, SourceText};

/// The place and the text of an edge of a cycle, for its error.
pub(super) type CycleStep = (LineColumn, String);

/// Returns an order in which each node comes after its dependencies, or the error for a cycle. `step` describes the edge from
/// a node to its dependency.
pub(super) fn order_or_error(
    source: &Arc<SourceText>,
    dependencies: &[Vec<usize>],
    name: impl Fn(usize) -> String,
    step: impl Fn(usize, usize) -> Option<CycleStep>,
) -> Result<Vec<usize>, Diagnostic> {
    topological_order(dependencies).map_err(|cycle| {
        let mut shown: Vec<String> = cycle.iter().map(|&node| format!("`{}`", name(node))).collect();
        if shown.len() > 21 {
            let left_out = format!("({} more)", shown.len() - 20);
            shown.splice(10..cycle.len() - 10, [left_out]);
        }
        let message = format!("these wait for each other: {}", shown.join(" → "));
        // The message names only the first steps, and finding a position scans the document.
        let steps: Vec<CycleStep> = cycle.windows(2).filter_map(|pair| step(pair[0], pair[1])).take(21).collect();
        let mut diagnostic = Diagnostic::error("cycle", source, steps.first().map(|step| step.0), message);
        diagnostic.related.extend(steps.iter().skip(1).cloned());
        let lines: Vec<String> = steps.iter().take(20).map(|(at, text)| format!("{text}, line {}", at.line)).collect();
        diagnostic.help(format!("{}; take one of these away", lines.join("; ")))
    })
}
