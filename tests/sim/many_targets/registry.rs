//! Who is who: every unit of every instance, by the stable key that its attempts are given.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_documents::plan::{Action, Plan, UnitRef};
use ebb_engine::Hook;
use ebb_protocol::id;
use ebb_protocol::token::idempotency_key;

use super::super::SimRandom;
use super::scenario::UnitAction;

/// What the attempts of a unit make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitEffect {
    Nothing,
    /// The same thing, half way through, whether the attempt then fails or not.
    Once,
    /// A new thing with each success.
    PerAttempt,
}

/// One unit of one instance.
#[derive(Clone, Debug)]
pub(super) struct SimUnit {
    pub(super) key: String,
    /// `UID RESOURCE/UNIT`, for people.
    pub(super) name: String,
    /// The instance that it belongs to.
    pub(super) uid: String,
    /// The name of that instance's target.
    pub(super) target: String,
    /// `RESOURCE/UNIT`.
    pub(super) unit_key: String,
    pub(super) hook: Hook,
    pub(super) unit: u32,
    /// The positions of what it waits for.
    pub(super) waits_for: Vec<u32>,
    pub(super) effect: UnitEffect,
    /// How long an attempt takes, in milliseconds.
    pub(super) millis: u64,
    pub(super) timeout_ms: u64,
    pub(super) outputs: Vec<String>,
    /// The stable keys of what it undoes.
    pub(super) undoes: Vec<String>,
}

impl SimUnit {
    /// Returns true if it is of the setup.
    pub(super) fn sets_up(&self) -> bool {
        matches!(self.hook, Hook::PreStart | Hook::PostStart)
    }
}

/// How attempts, and those who watch them, behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimPace {
    /// Random times, things made once or with each attempt, operators who retry, force-complete and force-delete.
    Random,
    /// Each unit has a time of its own, and makes its thing once; operators retry.
    Steady,
}

/// The parts of an instance.
pub(super) fn units(plan: &Plan, kind: &str, name: &str, uid: &str, seed: u64, pace: SimPace) -> Vec<Arc<SimUnit>> {
    let instance = id::instance_key(kind, name, uid);
    let split = |key: &str| match key.split_once('/') {
        Some((resource, unit)) => (resource.to_owned(), unit.to_owned()),
        None => (String::new(), key.to_owned()),
    };
    let key_of = |at: UnitRef| {
        let (resource, unit) = split(&plan.unit(at).expect("plans name their own units").key);
        idempotency_key(&instance, &resource, &unit)
    };
    let undone: BTreeMap<UnitRef, ()> = plan
        .hooks
        .iter()
        .flat_map(|hook| &hook.units)
        .flat_map(|unit| unit.undoes.iter().map(|&at| (at, ())))
        .collect();
    let mut found = Vec::new();
    for hook in &plan.hooks {
        for (unit, position) in hook.units.iter().zip(0..) {
            let at = UnitRef { hook: hook.hook, unit: position };
            let key = key_of(at);
            let way = match &unit.action {
                Action::Webhook(webhook) => UnitAction::of_url(&format!("{:?}", webhook.url)),
                Action::Pod(_) | Action::Object(_) | Action::Removal => UnitAction::Pod,
            };
            let random = SimRandom::new(seed ^ u64::from_str_radix(&digits(&key), 16).unwrap_or(0));
            let wide = hook.units.len() > 100;
            let (millis, per_try) = match pace {
                SimPace::Steady => (700 * (u64::from(position) + 1), false),
                SimPace::Random => {
                    let millis = match random.below(10) {
                        0..=5 => 1 + random.below(50),
                        _ if wide => 2,
                        6..=8 => 1 + random.below(8_000),
                        // Nobody waits for an answer for longer than 20 seconds.
                        _ if way == UnitAction::Once => 1 + random.below(15_000),
                        _ => 1 + random.below(25_000),
                    };
                    (millis, random.below(3) == 0)
                }
            };
            // Whoever answers only once cannot be asked what another attempt has made: it makes the same thing.
            let can = matches!(way, UnitAction::Pod | UnitAction::Later);
            let makes = match undone.contains_key(&at) {
                false => UnitEffect::Nothing,
                true if per_try && can => UnitEffect::PerAttempt,
                true => UnitEffect::Once,
            };
            found.push(Arc::new(SimUnit {
                name: format!("{uid} {}", unit.key),
                uid: uid.to_owned(),
                target: name.to_owned(),
                unit_key: unit.key.clone(),
                hook: hook.hook.into(),
                unit: position,
                waits_for: unit.dependencies.clone(),
                effect: makes,
                millis,
                timeout_ms: unit.timeout_ms,
                outputs: unit.outputs.keys().cloned().collect(),
                undoes: unit.undoes.iter().map(|&at| key_of(at)).collect(),
                key,
            }));
        }
    }
    found
}

/// The first digits of a key as a number to the base of 16.
fn digits(key: &str) -> String {
    ebb_protocol::id::digest(key.as_bytes()).chars().filter(char::is_ascii_hexdigit).take(15).collect()
}
