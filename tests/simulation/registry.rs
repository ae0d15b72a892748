//! The units of all instances, by the idempotency keys that their attempts get.

use ebb_documents::plan::UnitPlan;
use ebb_protocol::callback_token::idempotency_key;

use super::*;

/// The objects that the attempts of a unit make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitEffect {
    Nothing,
    /// The same object, after half of the time, even if the attempt fails then.
    Once,
    /// Another object with each success.
    PerAttempt,
}

#[derive(Clone, Debug)]
pub enum UnitBehavior {
    /// Random durations and effects.
    Random,
    /// Durations that differ within a hook, and one object for each unit.
    Steady,
    Planned(Scenario),
}

#[derive(Clone, Debug)]
pub struct SimUnit {
    pub key: String,
    /// `UID RESOURCE/UNIT`, for messages.
    pub(super) name: String,
    pub(super) uid: String,
    pub target: String,
    /// `RESOURCE/UNIT`.
    pub unit_key: String,
    pub(super) hook: Hook,
    /// The generation in the ids of its runs.
    pub(super) generation: u64,
    /// The generation of the document whose plan has the unit.
    pub(super) planned: u64,
    pub(super) unit: u32,
    pub(super) plan: UnitPlan,
    pub action: UnitAction,
    pub(super) effect: UnitEffect,
    pub(super) millis: u64,
    /// Number of attempts that fail before one succeeds.
    pub(super) fails: u32,
    /// The longest time for which a plugin of InfraKit may process a request. 0 for other units.
    pub(super) processing_ms: u64,
    /// The idempotency keys of the units that it undoes.
    pub(super) undoes: Vec<String>,
    /// The name of its plugin and the number of slots, if there is a limit.
    pub(super) plugin_slots: Option<(String, usize)>,
}

impl SimUnit {
    /// Returns true for units before the teardown, which make something: those of the setup, of updates and of events.
    pub fn sets_up(&self) -> bool {
        !self.plan.stage.unwrap_or(self.hook).is_teardown()
    }

    /// Returns the run of a unit that does not belong to an event.
    pub(super) fn run(&self) -> RunId {
        RunId::new(&id::instance_key(KIND, &self.target, &self.uid), self.generation, self.hook)
    }
}

/// Returns the scope of the idempotency keys of a hook's units.
pub(super) fn key_scope(instance: &str, generation: u64, hook: Hook) -> String {
    if let Hook::Update(_) = hook { RunId::new(instance, generation, hook).to_string() } else { instance.to_owned() }
}

/// Returns the units of an instance, those of events for each of the ids `events`.
pub(super) fn units(
    plan: &Plan,
    (name, uid, generation, planned, events): (&str, &str, u64, u64, &[String]),
    seed: u64,
    behavior: &UnitBehavior,
) -> Vec<SimUnit> {
    let instance = id::instance_key(KIND, name, uid);
    let key_in = |scope: &str, at: UnitRef| {
        let planned = plan.unit(at).expect("plans name their own units");
        let (resource, unit) = planned.key.split_once('/').unwrap_or(("", &planned.key));
        // A resource that an update has ended had its plain name when its setup ran.
        let resource = if planned.is_setup(at.hook) { document_name(resource) } else { resource };
        idempotency_key(scope, resource, unit)
    };
    let key_of = |at: UnitRef| key_in(&key_scope(&instance, generation, at.hook), at);
    let units = plan.hooks.iter().flat_map(|hook| &hook.units);
    let undone: BTreeSet<UnitRef> = units.flat_map(|unit| unit.undoes.iter().copied()).collect();
    let mut found = Vec::new();
    let occurrences = |hook: &HookPlan| match hook.hook {
        Hook::Event(event) => events.iter().map(|id| Some(EventRef::new(event, id))).collect(),
        _ => vec![None],
    };
    for (hook, event) in
        plan.hooks.iter().flat_map(|hook| occurrences(hook).into_iter().map(move |event| (hook, event)))
    {
        for (unit, position) in hook.units.iter().zip(0..) {
            let at = UnitRef { hook: hook.hook, unit: position };
            let key = match &event {
                None => key_of(at),
                Some(event) => key_in(RunId::of_event(&instance, generation, event).as_str(), at),
            };
            let action = match &unit.action {
                Action::Webhook(webhook) => UnitAction::of_url(&format!("{:?}", webhook.url)),
                Action::Pod(_) | Action::Object(_) | Action::Removal => UnitAction::Pod,
                Action::Infrakit(_) | Action::Destroy => UnitAction::Plugin,
            };
            let (millis, fails, effect) = match behavior {
                UnitBehavior::Random => {
                    let seed = key.bytes().fold(seed, |seed, byte| seed.wrapping_mul(31) ^ u64::from(byte));
                    random_behavior(&SimRandom::new(seed), hook.units.len(), action)
                }
                UnitBehavior::Steady => (700 * (u64::from(position) + 1), 0, UnitEffect::Once),
                UnitBehavior::Planned(scenario) => {
                    let name = unit.key.split_once('/').map_or("", |(_, name)| name);
                    let resource = document_name(unit.resource());
                    scenario
                        .behavior(&format!("{resource}/{name}"))
                        .expect("the documents of a scenario have no other units")
                }
            };
            // A plugin works for up to three quarters of its time.
            let (millis, processing_ms) = match &unit.action {
                Action::Infrakit(action) => {
                    (millis * action.max_processing_time_ms / 20_000, action.max_processing_time_ms)
                }
                _ => (millis, 0),
            };
            found.push(SimUnit {
                name: format!("{uid} {}", unit.key),
                uid: uid.to_owned(),
                target: name.to_owned(),
                unit_key: unit.key.clone(),
                hook: hook.hook,
                generation,
                planned,
                unit: position,
                plan: unit.clone(),
                action,
                effect: if undone.contains(&at) { effect } else { UnitEffect::Nothing },
                millis,
                fails,
                processing_ms,
                undoes: unit.undoes.iter().map(|&at| key_of(at)).collect(),
                plugin_slots: plan.resource(unit.resource()).and_then(|resource| {
                    let (name, _) = resource.plugin.rsplit_once('@')?;
                    Some((name.to_owned(), resource.max_concurrent? as usize))
                }),
                key,
            });
        }
    }
    found
}

fn random_behavior(random: &SimRandom, units: usize, action: UnitAction) -> (u64, u32, UnitEffect) {
    let millis = match random.below(10) {
        0..=5 => 1 + random.below(50),
        _ if units > 100 => 2,
        6..=8 => 1 + random.below(8_000),
        // A response is awaited for 20 seconds, and a plugin has half of the timeout.
        _ if matches!(action, UnitAction::Once | UnitAction::Plugin) => 1 + random.below(15_000),
        _ => 1 + random.below(25_000),
    };
    // A server that only responds cannot report the object of another attempt, so all attempts create the same object.
    let reports_attempts = matches!(action, UnitAction::Pod | UnitAction::Later);
    let is_per_attempt = random.below(3) == 0 && reports_attempts;
    (millis, 0, if is_per_attempt { UnitEffect::PerAttempt } else { UnitEffect::Once })
}
