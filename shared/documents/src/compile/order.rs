//! The topological order of a graph, and the error for a cycle.

use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::model::{LineColumn, SourceText};

/// The place and the text of an edge of a cycle, for its error.
pub(super) type CycleStep = (LineColumn, String);

/// Returns an order in which each node comes after its dependencies, or a cycle: a path that ends where it begins, in
/// which each node waits for the next.
pub(super) fn order(dependencies: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut missing: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    let mut followers = vec![Vec::new(); dependencies.len()];
    for (at, list) in dependencies.iter().enumerate() {
        list.iter().for_each(|&first| followers[first].push(at));
    }
    let mut order: Vec<usize> = (0..dependencies.len()).filter(|&at| missing[at] == 0).collect();
    let mut next = 0;
    while let Some(&at) = order.get(next) {
        next += 1;
        for &follower in &followers[at] {
            missing[follower] -= 1;
            if missing[follower] == 0 {
                order.push(follower);
            }
        }
    }
    // Every remaining node depends on a cycle, directly or not, so following open dependencies leads into one.
    let Some(mut at) = missing.iter().position(|&missing| missing > 0) else { return Ok(order) };
    let mut step_of = vec![None; dependencies.len()];
    let mut path = Vec::new();
    loop {
        let first = step_of[at].replace(path.len());
        path.push(at);
        if let Some(first) = first {
            return Err(path.split_off(first));
        }
        at = dependencies[at].iter().copied().find(|&next| missing[next] > 0).unwrap_or(at);
    }
}

/// Returns the same order.
///
/// # Errors
/// Returns the error for a cycle. `step` describes the edge from a node to its dependency.
pub(super) fn order_or_error(
    source: &Arc<SourceText>,
    dependencies: &[Vec<usize>],
    name: impl Fn(usize) -> String,
    step: impl Fn(usize, usize) -> Option<CycleStep>,
) -> Result<Vec<usize>, Diagnostic> {
    order(dependencies).map_err(|cycle| {
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
