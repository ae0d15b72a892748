//! The graph of a run as SVG: a box for each unit, with its state and attempt. A large run has a box for each resource.
//!
//! The time of the layout depends on the units, on the edges and on the columns that edges cross. All three have limits,
//! because a document decides them.

use std::collections::{BTreeMap, BTreeSet};

use ebb_protocol::{RunDetail, UnitDetail, UnitState, limits};
use maud::{Markup, html};
use rust_sugiyama::configure::{Config, RankingType};
use rust_sugiyama::from_vertices_and_edges;

use crate::{paths, texts};

/// Maximum units with a box each.
const MAX_UNITS: usize = 60;
const MAX_BOXES: usize = 300;
const MAX_EDGES: usize = 2_000;
/// Maximum columns that edges cross, all together.
const MAX_CROSSED: usize = 2_000;
/// The size of a box, and the gaps between columns and rows.
const WIDTH: f64 = 200.0;
const HEIGHT: f64 = 46.0;
const COLUMN_GAP: f64 = 50.0;
const ROW_GAP: f64 = 14.0;
const MARGIN: f64 = 4.0;
/// Maximum characters of a line in a box.
const LINE: usize = 26;

struct GraphBox {
    name: String,
    note: String,
    state: UnitState,
    path: String,
}

/// An edge between boxes, by their positions.
type GraphEdge = (usize, usize);

/// Returns the graph of a run, or a sentence if it is too large.
pub(crate) fn graph(run: &RunDetail) -> Markup {
    if run.next_token.is_some() {
        return html! { p.none { "The run is too large for a graph." } };
    }
    let (boxes, edges) = if run.units.len() > MAX_UNITS { by_resource(run) } else { by_unit(run) };
    match place(boxes.len(), &edges) {
        Some((places, edges)) => drawn(&run.hook, &boxes, &places, &edges),
        None => html! { p.none { "The run is too large for a graph." } },
    }
}

fn by_unit(run: &RunDetail) -> (Vec<GraphBox>, Vec<GraphEdge>) {
    let positions: BTreeMap<&str, usize> =
        run.units.iter().enumerate().map(|(position, unit)| (unit.key.as_str(), position)).collect();
    let boxes = run.units.iter().map(|unit| GraphBox {
        name: unit.key.clone(),
        note: note(unit),
        state: unit.state,
        path: format!("#{}", row_id(&run.id, &unit.key)),
    });
    let edges = run.units.iter().enumerate().flat_map(|(position, unit)| {
        let before = unit.after.iter().filter_map(|key| positions.get(key.as_str()));
        before.map(move |&before| (before, position))
    });
    (boxes.collect(), edges.collect())
}

/// Returns a box for each resource, with the number of its units in each state.
fn by_resource(run: &RunDetail) -> (Vec<GraphBox>, Vec<GraphEdge>) {
    let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
    let mut members: Vec<(&str, Vec<&UnitDetail>)> = Vec::new();
    for unit in &run.units {
        let name = resource(&unit.key);
        let position = *positions.entry(name).or_insert_with(|| {
            members.push((name, Vec::new()));
            members.len() - 1
        });
        members[position].1.push(unit);
    }
    let boxes = members.iter().map(|(name, units)| {
        let done = units.iter().filter(|unit| matches!(unit.state, UnitState::Succeeded | UnitState::Skipped)).count();
        GraphBox {
            name: (*name).to_owned(),
            note: format!("{done} of {} units done", units.len()),
            state: worst(units),
            path: paths::run(&run.id, None),
        }
    });
    let edges = run.units.iter().flat_map(|unit| {
        let own = resource(&unit.key);
        unit.after.iter().map(|key| resource(key)).filter(move |other| *other != own).map(move |other| (other, own))
    });
    let edges: BTreeSet<GraphEdge> =
        edges.filter_map(|(before, after)| Some((*positions.get(before)?, *positions.get(after)?))).collect();
    (boxes.collect(), edges.into_iter().collect())
}

fn resource(key: &str) -> &str {
    key.split('/').next().unwrap_or(key)
}

/// Returns the state that a reader must see first.
fn worst(units: &[&UnitDetail]) -> UnitState {
    const ORDER: [UnitState; 7] = [
        UnitState::Failed,
        UnitState::Retrying,
        UnitState::Running,
        UnitState::Cancelled,
        UnitState::Blocked,
        UnitState::Waiting,
        UnitState::Succeeded,
    ];
    ORDER.into_iter().find(|state| units.iter().any(|unit| unit.state == *state)).unwrap_or(UnitState::Skipped)
}

fn note(unit: &UnitDetail) -> String {
    let state = texts::word(&unit.state);
    if unit.attempt > 1 || unit.state == UnitState::Retrying {
        format!("{state}, attempt {} of {}", unit.attempt_in_series, unit.max_attempts)
    } else {
        state
    }
}

/// Returns the id of the row of a unit. It contains only letters, digits and `-`.
pub(crate) fn row_id(run: &str, unit: &str) -> String {
    format!("unit-{}", ebb_protocol::id::short_digest(&[run, unit], 12))
}

/// Returns the column of each box, and the edges without those that are in a cycle. Resources can depend on each other in
/// a cycle, although their units do not.
fn columns(count: usize, edges: &[GraphEdge]) -> (Vec<usize>, Vec<GraphEdge>) {
    let mut open = vec![0_usize; count];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); count];
    for &(from, to) in edges {
        open[to] += 1;
        after[from].push(to);
    }
    let mut columns = vec![0; count];
    let mut ready: Vec<usize> = (0..count).filter(|&one| open[one] == 0).collect();
    while let Some(one) = ready.pop() {
        for &next in &after[one] {
            columns[next] = columns[next].max(columns[one] + 1);
            open[next] -= 1;
            if open[next] == 0 {
                ready.push(next);
            }
        }
    }
    let kept: BTreeSet<GraphEdge> = edges.iter().copied().filter(|&(from, _)| open[from] == 0).collect();
    (columns, kept.into_iter().collect())
}

/// The centre of each box, and the edges that are drawn.
type PlacedGraph = (Vec<(f64, f64)>, Vec<GraphEdge>);

/// Returns the places of a graph. Returns `None` for a graph that is too large.
fn place(count: usize, edges: &[GraphEdge]) -> Option<PlacedGraph> {
    if count > MAX_BOXES || edges.len() > MAX_EDGES {
        return None;
    }
    let (columns, edges) = columns(count, edges);
    let crossed: usize = edges.iter().map(|&(from, to)| columns[to] - columns[from] - 1).sum();
    if crossed > MAX_CROSSED {
        return None;
    }
    let number = |position: usize| u32::try_from(position).unwrap_or(u32::MAX);
    // The library draws columns from top to bottom. Here they are from left to right, because names are wide.
    let vertices: Vec<(u32, (f64, f64))> =
        (0..count).map(|position| (number(position), (HEIGHT, WIDTH + COLUMN_GAP - ROW_GAP))).collect();
    let numbered: Vec<(u32, u32)> = edges.iter().map(|&(from, to)| (number(from), number(to))).collect();
    // Shorter edges take a search without a bound.
    let config = Config { vertex_spacing: ROW_GAP, ranking_type: RankingType::Up, ..Config::default() };
    let mut places = vec![(0.0_f64, 0.0_f64); count];
    let mut top = 0.0_f64;
    for (component, ..) in from_vertices_and_edges(&vertices, &numbered, &config) {
        let mut height = 0.0_f64;
        for (position, (across, along)) in component {
            *places.get_mut(position)? = (along, top + across);
            height = height.max(across);
        }
        top += height + HEIGHT + ROW_GAP;
    }
    // The library promises neither.
    let is_readable = places.iter().all(|(x, y)| x.is_finite() && y.is_finite()) && !overlap(&places);
    Some((if is_readable { places } else { in_columns(&columns) }, edges))
}

fn overlap(places: &[(f64, f64)]) -> bool {
    let near =
        |one: &(f64, f64), other: &(f64, f64)| (one.0 - other.0).abs() < WIDTH && (one.1 - other.1).abs() < HEIGHT;
    places.iter().enumerate().any(|(position, one)| places[position + 1..].iter().any(|other| near(one, other)))
}

/// Returns the centres of boxes in columns, in the order of the plan.
fn in_columns(columns: &[usize]) -> Vec<(f64, f64)> {
    let mut next: BTreeMap<usize, u32> = BTreeMap::new();
    let places = columns.iter().map(|&column| {
        let row = next.entry(column).or_default();
        let y = f64::from(*row) * (HEIGHT + ROW_GAP);
        *row += 1;
        (f64::from(u32::try_from(column).unwrap_or(u32::MAX)) * (WIDTH + COLUMN_GAP), y)
    });
    places.collect()
}

fn drawn(hook: &str, boxes: &[GraphBox], places: &[(f64, f64)], edges: &[GraphEdge]) -> Markup {
    let (half_width, half_height) = (WIDTH / 2.0, HEIGHT / 2.0);
    let shifted: Vec<(f64, f64)> =
        places.iter().map(|(x, y)| (x + half_width + MARGIN, y + half_height + MARGIN)).collect();
    let width = shifted.iter().map(|place| place.0).fold(0.0, f64::max) + half_width + MARGIN;
    let height = shifted.iter().map(|place| place.1).fold(0.0, f64::max) + half_height + MARGIN;
    let line = |&(from, to): &GraphEdge| {
        let ((x1, y1), (x2, y2)) = (shifted[from], shifted[to]);
        let (x1, x2) = (x1 + half_width, x2 - half_width);
        let middle = f64::midpoint(x1, x2);
        format!("M{x1:.1} {y1:.1}C{middle:.1} {y1:.1} {middle:.1} {y2:.1} {x2:.1} {y2:.1}")
    };
    html! {
        div.wide tabindex="0" role="region" aria-label={ "Graph of " (hook) } {
            svg.graph role="group" aria-label={ "Units of " (hook) } width=(format!("{width:.0}")) height=(format!("{height:.0}"))
                viewBox=(format!("0 0 {width:.0} {height:.0}")) {
                @for edge in edges { path.edge d=(line(edge)) {} }
                @for (one, (x, y)) in boxes.iter().zip(&shifted) {
                    a href=(one.path) {
                        g.unit.(texts::word(&one.state)) {
                            title { (one.name) ": " (one.note) }
                            rect x=(format!("{:.1}", x - half_width)) y=(format!("{:.1}", y - half_height))
                                width=(WIDTH) height=(HEIGHT) rx="6" {}
                            text x=(format!("{:.1}", x - half_width + 10.0)) y=(format!("{:.1}", y - 4.0)) {
                                (limits::excerpt(&limits::printable(&one.name), LINE))
                            }
                            text.note x=(format!("{:.1}", x - half_width + 10.0)) y=(format!("{:.1}", y + 14.0)) {
                                (limits::excerpt(&one.note, LINE + 4))
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each graph has finite places without overlaps, and each edge leads to the right.
        #[test]
        fn every_graph_is_placed(count in 0_usize..40, raw in prop::collection::vec((0_usize..40, 0_usize..40), 0..120)) {
            let edges: Vec<GraphEdge> =
                raw.into_iter().filter(|(from, to)| from != to && *from < count && *to < count).collect();
            if let Some((places, kept)) = place(count, &edges) {
                prop_assert_eq!(places.len(), count);
                prop_assert!(places.iter().all(|(x, y)| x.is_finite() && y.is_finite()), "{:?}", places);
                prop_assert!(!overlap(&places), "{:?}", places);
                prop_assert!(kept.iter().all(|&(from, to)| places[from].0 < places[to].0), "{:?} {:?}", places, kept);
            }
        }
    }

    #[test]
    fn a_layout_is_the_same_each_time() {
        let edges: Vec<GraphEdge> = (0..60).flat_map(|one| [(one, one + 1), (one, (one + 7).min(61))]).collect();
        let first = place(62, &edges);
        for _ in 0..5 {
            assert_eq!(place(62, &edges), first);
        }
    }

    #[test]
    fn edges_of_a_cycle_are_not_drawn() {
        let (columns, kept) = columns(4, &[(0, 1), (1, 2), (2, 1), (2, 3)]);
        assert_eq!((columns[1], kept), (1, vec![(0, 1)]));
    }

    #[test]
    fn graphs_that_take_long_are_not_drawn() {
        assert!(place(MAX_BOXES + 1, &[]).is_none());
        let dense: Vec<GraphEdge> = (0..62).flat_map(|to| (0..to).map(move |from| (from, to))).collect();
        assert!(dense.len() < MAX_EDGES && place(62, &dense).is_none());
    }
}
