//! Planned targets: units with edges, durations and failures, and the documents that have them.

use super::plugin_documents as documents;
use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFate {
    /// This number of attempts fail, the others succeed.
    Fails(u32),
    Never,
    /// The unit is skipped: its `when` is false.
    Skipped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoUnit {
    pub action: UnitAction,
    pub millis: u64,
    pub fate: AttemptFate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupUnit {
    pub hook: Hook,
    pub action: UnitAction,
    pub millis: u64,
    /// Units whose output it reads; lower positions only.
    pub reads: Vec<usize>,
    /// Units of its hook that it comes after without reading them; lower positions only.
    pub after: Vec<usize>,
    pub fate: AttemptFate,
    pub effect: UnitEffect,
    pub undo: Option<UndoUnit>,
}

/// A target with one resource, whose units behave as planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The units `u0`, `u1`, …, each after those that it waits for. Their undos are `x0`, `x1`, …
    pub units: Vec<SetupUnit>,
    /// The defaults of the plugin, as YAML.
    pub defaults: &'static str,
    pub seed: u64,
}

impl SetupUnit {
    /// Returns a unit of `preStart` that succeeds after `millis` and reads `reads`. Its undo is like it.
    pub fn plain(action: UnitAction, millis: u64, reads: &[usize]) -> Self {
        Self {
            hook: Hook::PreStart,
            action,
            millis,
            reads: reads.to_vec(),
            after: vec![],
            fate: AttemptFate::Fails(0),
            effect: UnitEffect::Once,
            undo: Some(UndoUnit { action, millis, fate: AttemptFate::Fails(0) }),
        }
    }
}

impl Scenario {
    pub fn of(units: Vec<SetupUnit>) -> Self {
        Self { units, defaults: documents::DEFAULTS, seed: 1 }
    }

    /// Returns the duration of the attempts of the unit with this key, how many of them fail, and what they make.
    pub(super) fn behavior(&self, key: &str) -> Option<(u64, u32, UnitEffect)> {
        let (letter, position) = key.strip_prefix("r/")?.split_at_checked(1)?;
        let unit = self.units.get(position.parse::<usize>().ok()?)?;
        let (millis, fate, effect) = match (letter, &unit.undo) {
            ("x", Some(undo)) => (undo.millis, undo.fate, UnitEffect::Nothing),
            _ => (unit.millis, unit.fate, unit.effect),
        };
        let fails = match fate {
            AttemptFate::Fails(first) => first,
            AttemptFate::Never => u32::MAX,
            AttemptFate::Skipped => 0,
        };
        Some((millis, fails, effect))
    }

    pub fn target(&self) -> TargetScenario {
        let plugin = ("planned".to_owned(), "1.0.0".to_owned(), self.plugin());
        let document = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nresources:\n  r: {plugin: planned@1.0.0}\n";
        TargetScenario::new(vec![plugin], document.to_owned(), UnitBehavior::Planned(self.clone()))
    }

    fn plugin(&self) -> String {
        let mut text = documents::head("planned", false, self.defaults);
        for hook in [Hook::PreStart, Hook::PostStart] {
            let units = self.units.iter().enumerate().filter(|(_, unit)| unit.hook == hook);
            text += &documents::hook(hook, units.map(|(unit, _)| self.setup(unit)));
        }
        text + &documents::hook(Hook::PostStop, (0..self.units.len()).filter_map(|unit| self.undo(unit)))
    }

    fn setup(&self, unit: usize) -> String {
        let own = &self.units[unit];
        let when = if own.fate == AttemptFate::Skipped { "    when: ${params.off}\n" } else { "" };
        let after = documents::list("after", &names('u', &own.after));
        documents::setup(&format!("u{unit}"), own.action, &names('u', &own.reads), &format!("{when}{after}"))
    }

    fn undo(&self, unit: usize) -> Option<String> {
        let undo = self.units[unit].undo.as_ref()?;
        let depends = |other: &SetupUnit| other.reads.contains(&unit) || other.after.contains(&unit);
        let others = self.units.iter().enumerate().filter(|(_, other)| depends(other) && other.undo.is_some());
        let after: Vec<usize> = others.map(|(other, _)| other).collect();
        Some(documents::undo(&format!("x{unit}"), undo.action, &names('u', &[unit]), &names('x', &after)))
    }
}

pub(super) fn names(letter: char, units: &[usize]) -> Vec<String> {
    units.iter().map(|unit| format!("{letter}{unit}")).collect()
}

/// Plugins, a target's document that names them, and the behavior of the units.
#[derive(Clone, Debug)]
pub struct TargetScenario {
    /// Names, versions and documents.
    pub plugins: Vec<(String, String, String)>,
    /// The target's document; `NAME` stands for its name.
    pub document: String,
    /// Other documents of the target, with other resources.
    pub changed: Vec<String>,
    pub behavior: UnitBehavior,
    /// True if subscriptions report its changes.
    pub subscribed: bool,
    pub reviewed: bool,
}

impl TargetScenario {
    pub fn new(plugins: Vec<(String, String, String)>, document: String, behavior: UnitBehavior) -> Self {
        Self { plugins, document, changed: Vec::new(), behavior, subscribed: false, reviewed: false }
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = PluginItem> {
        self.plugins.iter().map(|(name, version, document)| PluginItem {
            name: name.clone(),
            version: version.clone(),
            dialect: if document.starts_with("name:") { "signadot" } else { "ebb" }.to_owned(),
            digest: ebb_protocol::id::digest(document.as_bytes()),
            document: document.clone(),
            created: SimRuntime::default().now(),
            withdrawn: None,
        })
    }
}
