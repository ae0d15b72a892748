//! What a simulation is to do: units with edges, durations and failures, written as documents of our own format.

use std::fmt::Write as _;

use proptest::prelude::*;

/// How a unit runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioAction {
    Pod,
    /// A webhook that answers with its result.
    AtOnce,
    /// A webhook that answers 202 and calls back.
    Later,
}

/// The hook of a setup unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupHook {
    /// `preStart`.
    Pre,
    /// `postStart`.
    Post,
}

/// How its attempts end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFate {
    /// The first so many fail, the others succeed.
    Fails(u32),
    Never,
    /// It is skipped: its `when` is false.
    Skipped,
}

/// What its attempts make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioEffect {
    /// The same thing, half way through, whether the attempt then fails or not.
    Once,
    /// A new thing with each success.
    PerAttempt,
}

/// A unit that takes away what another one made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoUnit {
    pub kind: ScenarioAction,
    /// How long, in milliseconds.
    pub millis: u64,
    pub fate: AttemptFate,
}

/// A unit of `preStart` or `postStart`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupUnit {
    pub stage: SetupHook,
    pub kind: ScenarioAction,
    /// How long an attempt takes, in milliseconds.
    pub millis: u64,
    /// Units whose output it reads; lower positions only.
    pub reads: Vec<usize>,
    /// Units of its hook that it comes after without reading them; lower positions only.
    pub after: Vec<usize>,
    pub fate: AttemptFate,
    pub makes: ScenarioEffect,
    pub undo: UndoUnit,
}

/// Units and a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The units, each after what it waits for.
    pub units: Vec<SetupUnit>,
    /// Everything that is random follows from it.
    pub seed: u64,
}

pub(super) const ATTEMPTS: u32 = 3;

/// A part of a scenario by its name.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScenarioUnit<'a> {
    Setup(&'a SetupUnit),
    Undo(usize, &'a UndoUnit),
}

impl ScenarioUnit<'_> {
    pub(super) fn kind(self) -> ScenarioAction {
        match self {
            ScenarioUnit::Setup(unit) => unit.kind,
            ScenarioUnit::Undo(_, undo) => undo.kind,
        }
    }

    pub(super) fn millis(self) -> u64 {
        match self {
            ScenarioUnit::Setup(unit) => unit.millis,
            ScenarioUnit::Undo(_, undo) => undo.millis,
        }
    }

    pub(super) fn fails(self, attempt: u32) -> bool {
        let (ScenarioUnit::Setup(SetupUnit { fate, .. }) | ScenarioUnit::Undo(_, UndoUnit { fate, .. })) = self;
        match fate {
            AttemptFate::Fails(first) => attempt <= *first,
            AttemptFate::Never => true,
            AttemptFate::Skipped => false,
        }
    }
}

impl SetupUnit {
    /// A unit of `preStart` of this kind that succeeds after `millis`, reads `reads`, and whose undo is of the same
    /// kind.
    pub fn plain(kind: ScenarioAction, millis: u64, reads: &[usize]) -> Self {
        Self {
            stage: SetupHook::Pre,
            kind,
            millis,
            reads: reads.to_vec(),
            after: vec![],
            fate: AttemptFate::Fails(0),
            makes: ScenarioEffect::Once,
            undo: UndoUnit { kind, millis, fate: AttemptFate::Fails(0) },
        }
    }
}

impl Scenario {
    /// A scenario of these units.
    pub fn of(units: Vec<SetupUnit>) -> Self {
        Self { units, seed: 1 }
    }

    pub(super) fn unit(&self, name: &str) -> Option<ScenarioUnit<'_>> {
        let (letter, position) = name.split_at_checked(1)?;
        let position: usize = position.parse().ok()?;
        let unit = self.units.get(position)?;
        match letter {
            "u" => Some(ScenarioUnit::Setup(unit)),
            "x" => Some(ScenarioUnit::Undo(position, &unit.undo)),
            _ => None,
        }
    }

    /// How the unit of this name runs; `None`: there is none.
    pub fn kind_of(&self, name: &str) -> Option<ScenarioAction> {
        self.unit(name).map(ScenarioUnit::kind)
    }

    /// What a unit waits for within its own hook.
    pub fn waits_for(&self, unit: usize) -> Vec<usize> {
        let own = &self.units[unit];
        let reads = own.reads.iter().filter(|&&read| self.units[read].stage == own.stage);
        let mut all: Vec<usize> = reads.chain(&own.after).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The undos that the undo of `unit` waits for: those of what depends on it.
    pub fn undo_waits_for(&self, unit: usize) -> Vec<usize> {
        let depends = |other: &SetupUnit| other.reads.contains(&unit) || other.after.contains(&unit);
        let others = self.units.iter().enumerate().filter(|(_, other)| depends(other));
        others.map(|(position, _)| position).collect()
    }

    /// Returns true if a unit is skipped: by itself, or because it reads one that is.
    pub fn is_skipped(&self, unit: usize) -> bool {
        let own = &self.units[unit];
        own.fate == AttemptFate::Skipped || own.reads.iter().any(|&read| self.is_skipped(read))
    }

    /// Returns true if a unit that is not skipped succeeds at last.
    pub fn succeeds(&self, unit: usize) -> bool {
        match self.units[unit].fate {
            AttemptFate::Fails(first) => first < ATTEMPTS,
            AttemptFate::Never => false,
            AttemptFate::Skipped => true,
        }
    }

    /// The plugin's document.
    pub fn plugin(&self) -> String {
        let mut text = format!(
            "apiVersion: ebb.dev/v1\nkind: Plugin\nname: world@1.0.0\nparams:\n  off: {{type: boolean, default: false}}\n\
             runners:\n  shell: {{image: \"busybox:1.37\"}}\n\
             defaults: {{timeout: 5m, retry: {{attempts: {ATTEMPTS}, backoff: 1s, maxBackoff: 4s}}}}\n"
        );
        for (stage, name) in [(SetupHook::Pre, "preStart"), (SetupHook::Post, "postStart")] {
            let units: Vec<usize> = (0..self.units.len()).filter(|&unit| self.units[unit].stage == stage).collect();
            if !units.is_empty() {
                writeln!(text, "{name}:").expect("strings take everything");
            }
            for unit in units {
                text.push_str(&self.setup(unit));
            }
        }
        text.push_str("postStop:\n");
        for unit in 0..self.units.len() {
            text.push_str(&self.undo(unit));
        }
        text
    }

    fn setup(&self, unit: usize) -> String {
        let own = &self.units[unit];
        let mut text = format!("  u{unit}:\n");
        if own.fate == AttemptFate::Skipped {
            text.push_str("    when: ${params.off}\n");
        }
        text.push_str(&after(&own.after, 'u'));
        let value = |read: &usize| format!("      u{read}: ${{units.u{read}.outputs.id}}\n");
        let values: String = own.reads.iter().map(value).collect();
        match own.kind {
            ScenarioAction::Pod => {
                text.push_str("    pod: {runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}\n");
                if !values.is_empty() {
                    write!(text, "    inputs:\n{values}").expect("strings take everything");
                }
                text.push_str("    outputs: {id: {file: /out/id}}\n");
            }
            ScenarioAction::AtOnce | ScenarioAction::Later => {
                let pairs = own.reads.iter().map(|read| format!("u{read}: \"${{units.u{read}.outputs.id}}\""));
                let pairs: Vec<String> = pairs.collect();
                writeln!(
                    text,
                    "    webhook: {{url: \"https://outside.test/u{unit}\", body: {{{}}}}}\n    outputs: {{id: {{value: \"${{response.body.id}}\"}}}}",
                    pairs.join(", ")
                )
                .expect("strings take everything");
            }
        }
        text
    }

    fn undo(&self, unit: usize) -> String {
        let mut text = format!("  x{unit}:\n    undoes: u{unit}\n{}", after(&self.undo_waits_for(unit), 'x'));
        let id = format!("${{units.u{unit}.outputs.id}}");
        match self.units[unit].undo.kind {
            ScenarioAction::Pod => {
                write!(
                    text,
                    "    pod: {{runner: shell, script: \"#!/bin/sh\\ntrue\\n\"}}\n    inputs:\n      u{unit}: {id}\n"
                )
            }
            ScenarioAction::AtOnce | ScenarioAction::Later => {
                writeln!(text, "    webhook: {{url: \"https://outside.test/x{unit}\", body: {{u{unit}: \"{id}\"}}}}")
            }
        }
        .expect("strings take everything");
        text
    }

    /// The target's document.
    pub fn document(&self) -> String {
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources:\n  r: {plugin: world@1.0.0}\n".to_owned()
    }
}

fn after(units: &[usize], letter: char) -> String {
    if units.is_empty() {
        return String::new();
    }
    let names: Vec<String> = units.iter().map(|unit| format!("{letter}{unit}")).collect();
    format!("    after: [{}]\n", names.join(", "))
}

/// Random scenarios of 1 to `most` units. `faults` says how often, in percent, a unit fails at first; for good and
/// skipped ones are a quarter of that.
pub fn scenarios(most: usize, faults: u32) -> impl Strategy<Value = Scenario> {
    let units = prop::collection::vec(raw(faults), 1..=most);
    (units, any::<u64>(), 0..3_usize).prop_map(|(raw, seed, post)| {
        let count = raw.len();
        let first_post = if post == 0 { count.div_ceil(2).max(1) } else { count };
        let mut units: Vec<SetupUnit> = Vec::new();
        for (position, (mut unit, edges)) in raw.into_iter().enumerate() {
            unit.stage = if position < first_post { SetupHook::Pre } else { SetupHook::Post };
            for (other, edge) in edges.into_iter().take(position).enumerate() {
                match edge {
                    0 | 1 => unit.reads.push(other),
                    2 if units[other].stage == unit.stage => unit.after.push(other),
                    _ => {}
                }
            }
            units.push(unit);
        }
        Scenario { units, seed }
    })
}

fn kind() -> impl Strategy<Value = ScenarioAction> {
    prop_oneof![Just(ScenarioAction::Pod), Just(ScenarioAction::AtOnce), Just(ScenarioAction::Later)]
}

fn raw(faults: u32) -> impl Strategy<Value = (SetupUnit, Vec<u8>)> {
    let makes = prop_oneof![Just(ScenarioEffect::Once), Just(ScenarioEffect::PerAttempt)];
    let fate = prop_oneof![
        400 - 4 * faults + 1 => Just(AttemptFate::Fails(0)),
        2 * faults => (1..ATTEMPTS).prop_map(AttemptFate::Fails),
        faults => Just(AttemptFate::Never),
        faults => Just(AttemptFate::Skipped),
    ];
    let undo = (kind(), 1..8_000_u64, prop_oneof![3 => Just(0_u32), 1 => 1..ATTEMPTS]);
    let millis = prop_oneof![1..50_u64, 1..15_000_u64];
    (kind(), millis, fate, makes, undo, prop::collection::vec(0..6_u8, 12)).prop_map(
        |(kind, millis, fate, makes, undo, edges)| {
            let undo = UndoUnit { kind: undo.0, millis: undo.1, fate: AttemptFate::Fails(undo.2) };
            let unit =
                SetupUnit { stage: SetupHook::Pre, kind, millis, reads: vec![], after: vec![], fate, makes, undo };
            (unit, edges)
        },
    )
}
