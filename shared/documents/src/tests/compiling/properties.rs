//! Tests properties of random documents.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::fixtures::{alone, plan_edges};
use crate::compile::EdgeReason;

/// Returns a plugin with these edges, by an output or by `after`, and with units in this order.
fn document(count: usize, edges: &[(usize, usize, bool)], order: &[usize]) -> String {
    let mut text =
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: p\nrunners: {sh: {image: alpine}}\npreStart:\n".to_owned();
    for &unit in order.iter().filter(|&&unit| unit < count) {
        text += &format!(
            "  u{unit}:\n    pod: {{script: '#!/bin/sh'}}\n    outputs: {{o: {{file: /o}}}}\n    inputs:\n      none: x\n"
        );
        let mut after = Vec::new();
        for (first, _, data) in edges.iter().filter(|(_, to, _)| *to == unit) {
            match data {
                true => text += &format!("      i{first}: \"${{units.u{first}.outputs.o}}\"\n"),
                false => after.push(format!("u{first}")),
            }
        }
        text += &format!("    after: [{}]\n", after.join(", "));
    }
    text
}

fn dag() -> impl Strategy<Value = (usize, Vec<(usize, usize, bool)>, Vec<usize>)> {
    (1_usize..14).prop_flat_map(|count| {
        let pairs = prop::collection::btree_map((0..count, 0..count), any::<bool>(), 0..24);
        let edges = pairs.prop_map(|pairs| {
            let forward = pairs.into_iter().filter(|((from, to), _)| from < to);
            forward.map(|((from, to), data)| (from, to, data)).collect::<Vec<_>>()
        });
        (Just(count), edges, Just((0..count).collect::<Vec<_>>()).prop_shuffle())
    })
}

type Edges = BTreeSet<(String, String, EdgeReason)>;

fn graph(text: &str) -> Edges {
    let plan = alone(text);
    plan_edges(&plan).into_iter().map(|(_, from, to, reason)| (from.to_owned(), to.to_owned(), reason)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn plans_have_the_edges_of_the_document((count, written, order) in dag()) {
        let found = graph(&document(count, &written, &order));
        let wanted: Edges = written
            .iter()
            .map(|(from, to, data)| {
                let why = if *data { EdgeReason::Reads("o".to_owned()) } else { EdgeReason::After };
                (format!("r/u{from}"), format!("r/u{to}"), why)
            })
            .collect();
        prop_assert_eq!(&found, &wanted);
        let sorted: Vec<usize> = (0..count).collect();
        prop_assert_eq!(graph(&document(count, &written, &sorted)), found);
    }
}
