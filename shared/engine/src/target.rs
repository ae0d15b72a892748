//! The lifecycle of a target: its hooks and notifications.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::follow::RunOutcome;

/// A point in the lifecycle of a target at which units run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// Before the target is ready. The target waits for the hook.
    PreStart,
    /// After the target is ready.
    PostStart,
    /// When the document of a living target changes. The value is the number of the update, from 1.
    Update(u32),
    /// When the platform sends the event, to a target that is ready.
    Event(EventName),
    /// Before the target stops. The stop waits for the hook.
    PreStop,
    /// After the target has stopped. The removal waits for the hook.
    PostStop,
}

impl Hook {
    /// The hooks of the lifecycle in their order. Each runs at most once for an instance. Updates and events are not
    /// among them.
    pub const ALL: [Self; 4] = [Self::PreStart, Self::PostStart, Self::PreStop, Self::PostStop];

    /// The hooks that run while a target stops, in their order.
    pub const TEARDOWN: [Self; 2] = [Self::PreStop, Self::PostStop];

    /// The text of an update before its number, as in `update-3`.
    pub const UPDATE: &str = "update-";

    pub fn update_number(text: &str) -> Option<u32> {
        let digits = text.strip_prefix(Self::UPDATE)?;
        let number: u32 = digits.parse().ok()?;
        (number > 0 && number.to_string() == digits).then_some(number)
    }

    /// Returns the name of the hook in documents: `preStart`, `postStart`, `update`, `preStop`, `postStop`, or the name of
    /// an event.
    pub fn name(&self) -> &str {
        match self {
            Self::PreStart => "preStart",
            Self::PostStart => "postStart",
            Self::Update(_) => "update",
            Self::Event(name) => name.as_str(),
            Self::PreStop => "preStop",
            Self::PostStop => "postStop",
        }
    }

    /// Returns true for a hook whose units make the resources of a target.
    pub fn is_setup(self) -> bool {
        matches!(self, Self::PreStart | Self::PostStart | Self::Update(_))
    }

    /// Returns true for the hooks that run while the target stops. A deletion cancels the other ones.
    pub fn is_teardown(self) -> bool {
        Self::TEARDOWN.contains(&self)
    }

    /// Returns true if units of this hook can read outputs of units of `maker`: of the same hook, or of an earlier one
    /// that is neither an update nor an event. Those may run never or several times.
    pub fn can_read(self, maker: Self) -> bool {
        maker == self || (maker < self && !matches!(maker, Self::Update(_) | Self::Event(_)))
    }
}

/// The stored form: the name, with the number of an update as in `update-3`.
impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Update(number) => write!(f, "{}{number}", Self::UPDATE),
            _ => f.write_str(self.name()),
        }
    }
}

impl Serialize for Hook {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hook {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            // Plans have it for the units of `update` of all plugins. No run has it, so other texts of hooks do not.
            "update-0" => Ok(Self::Update(0)),
            text => text.parse().map_err(D::Error::custom),
        }
    }
}

impl FromStr for Hook {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|hook| hook.name() == text);
        known
            .or_else(|| Self::update_number(text).map(Self::Update))
            .or_else(|| EventName::new(text).map(Self::Event))
            .ok_or_else(|| format!("{text:?} is not the name of a hook"))
    }
}

/// The name of an event: `[a-z][a-z0-9]*`, at most 11 characters. It is a part of DNS labels, which limits its length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventName([u8; Self::MAX]);

impl EventName {
    /// The maximum number of characters.
    pub const MAX: usize = 11;
    /// Words that are not names: YAML reads `on` as a boolean, and the others look like hooks of the lifecycle.
    const RESERVED: [&str; 6] = ["on", "prestart", "poststart", "update", "prestop", "poststop"];

    /// Returns the event of a name, or `None` if the text is not a name.
    pub fn new(name: &str) -> Option<Self> {
        let letters = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if !letters || !name.starts_with(|first: char| first.is_ascii_lowercase()) || Self::RESERVED.contains(&name) {
            return None;
        }
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Some(Self(bytes))
    }

    pub fn as_str(&self) -> &str {
        let length = self.0.iter().position(|&byte| byte == 0).unwrap_or(Self::MAX);
        std::str::from_utf8(&self.0[..length]).unwrap_or_default()
    }
}

impl fmt::Debug for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The phase of a target. A `stuck` teardown has failed and waits for an operator.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema, ToSchema,
)]
#[serde(rename_all = "lowercase")]
#[schema(as = Phase)]
pub enum TargetPhase {
    // Schemas would repeat the documentation of variants. The units of `preStart` run.
    #[default]
    Starting,
    // All resources exist.
    Ready,
    // The units of an update run.
    Updating,
    // A unit of the setup or of an update failed. Resources stay until the target is updated or deleted.
    Failed,
    // The teardown runs.
    Stopping,
    // The teardown failed.
    Stuck,
    // The teardown is complete.
    Gone,
}

impl TargetPhase {
    /// All phases, in the order of a life.
    pub const ALL: [Self; 7] =
        [Self::Starting, Self::Ready, Self::Updating, Self::Failed, Self::Stopping, Self::Stuck, Self::Gone];

    /// Returns the name of the phase in documents, in the API and in stored items.
    pub fn name(self) -> &'static str {
        ["starting", "ready", "updating", "failed", "stopping", "stuck", "gone"][self as usize]
    }

    /// Returns the verb before the name in a sentence.
    pub fn verb(self) -> &'static str {
        if self == Self::Failed { "has" } else { "is" }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }

    /// Returns true for a target that has begun and does not stop.
    pub fn is_alive(self) -> bool {
        matches!(self, Self::Starting | Self::Ready | Self::Updating | Self::Failed)
    }
}

/// The effect of an update on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResourceEffect {
    Added,
    Removed,
    /// It is undone, then made again.
    Replaced,
    /// The `update` units of its plugin change it.
    Updated,
}

/// The sender of a request. An instance belongs to the sender that created it (SenderDecides).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSender<'a> {
    /// The platform, which numbers its documents by their generations.
    Platform,
    /// The caller of the API with this name. All callers have the same instances as the platform.
    Api(&'a str),
    /// The source of this name.
    Source(&'a str),
    /// A person who deletes, or the end of a TTL. Both end every instance.
    Operator,
}

impl<'a> RequestSender<'a> {
    /// Returns the name of a source, or `None` for another sender.
    pub fn source(self) -> Option<&'a str> {
        match self {
            Self::Source(name) => Some(name),
            Self::Platform | Self::Api(_) | Self::Operator => None,
        }
    }

    /// Returns the owner of an instance that the sender creates: `platform`, the name of a caller, or `source NAME`. An
    /// operator creates none.
    pub fn owner(self) -> Option<String> {
        match self {
            Self::Platform => Some("platform".to_owned()),
            Self::Api(caller) => Some(caller.to_owned()),
            Self::Source(name) => Some(format!("source {name}")),
            Self::Operator => None,
        }
    }

    /// Returns true if the sender may change and delete an instance that this source, or no source, has created.
    pub fn may_change(self, source: Option<&str>) -> bool {
        self == Self::Operator || self.source() == source
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingInstance {
    pub uid: String,
    pub generation: u64,
    /// The source that created it. `None` for one of the platform or the API.
    pub source: Option<String>,
}

/// The state of a target for decisions of the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The identity of the instance.
    pub uid: String,
    /// The source that created the instance. `None` for one of the platform or the API.
    pub source: Option<String>,
    /// Increases with each change of the document.
    pub generation: u64,
    pub phase: TargetPhase,
    /// The hook of the last run.
    pub hook: Option<Hook>,
    pub waiting: Option<WaitingInstance>,
    /// The first event that waits for a run.
    pub event: Option<EventName>,
    /// True if an update waits for the end of the present run. It runs before events.
    pub has_pending_update: bool,
}

impl Target {
    /// Returns the event whose run begins when the present one ends.
    fn next_event(&self) -> Option<Hook> {
        self.event.filter(|_| !self.has_pending_update).map(Hook::Event)
    }
}

/// The hooks of a plan with units.
pub type HookSet = BTreeSet<Hook>;

/// A transition of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseChange {
    pub phase: TargetPhase,
    /// The hook whose run starts in the same transaction.
    pub start: Option<Hook>,
    /// True if the platform gets a notification of the phase from now on.
    pub is_reported: bool,
}

impl PhaseChange {
    const fn silent(phase: TargetPhase, start: Option<Hook>) -> Self {
        Self { phase, start, is_reported: false }
    }

    /// Returns a change with a notification to the platform.
    pub const fn reported(phase: TargetPhase, start: Option<Hook>) -> Self {
        Self { phase, start, is_reported: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateDecision {
    Begin(PhaseChange),
    /// A repetition: the same response, and no change.
    Repeated,
    Stale,
    /// Another instance has the name. The creation waits until that instance is gone.
    Wait,
    /// Another instance already waits for the name.
    QueueFull,
    /// The same instance with a higher generation.
    Changed,
    /// The living instance belongs to another sender. So does the name, if a source asks: a source waits for its own
    /// instances only.
    Foreign,
}

/// Decides the effect of a request of `sender` to create `uid` at `generation`.
pub fn create(
    existing: Option<&Target>,
    (uid, sender): (&str, RequestSender<'_>),
    generation: u64,
    hooks: &HookSet,
) -> CreateDecision {
    match existing {
        None => CreateDecision::Begin(begin(hooks)),
        Some(target) if is_foreign(target, uid, sender) => CreateDecision::Foreign,
        Some(target) if target.uid == uid => match target.phase {
            TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone => CreateDecision::Stale,
            _ if generation > target.generation => CreateDecision::Changed,
            _ => CreateDecision::Repeated,
        },
        Some(target) if target.phase == TargetPhase::Gone && target.waiting.is_none() => {
            CreateDecision::Begin(begin(hooks))
        }
        Some(target) => match &target.waiting {
            Some(waiting) if waiting.uid == uid && generation > waiting.generation => CreateDecision::Changed,
            Some(waiting) if waiting.uid == uid => CreateDecision::Repeated,
            Some(_) => CreateDecision::QueueFull,
            None => CreateDecision::Wait,
        },
    }
}

/// Returns true if `sender` cannot create or change the instance `uid`, because another sender owns it or has the name. An
/// instance that ends has left its name, and its UID is stale for every sender.
fn is_foreign(target: &Target, uid: &str, sender: RequestSender<'_>) -> bool {
    let waiting = target.waiting.as_ref().filter(|waiting| !sender.may_change(waiting.source.as_deref()));
    let present = target.phase.is_alive() && !sender.may_change(target.source.as_deref());
    let is_source = sender.source().is_some();
    (present && (target.uid == uid || is_source))
        || waiting.is_some_and(|waiting| waiting.uid == uid || (is_source && target.uid != uid))
}

pub fn begin(hooks: &HookSet) -> PhaseChange {
    if hooks.contains(&Hook::PreStart) {
        PhaseChange::silent(TargetPhase::Starting, Some(Hook::PreStart))
    } else {
        ready(hooks, None)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventDecision {
    /// The target does not exist.
    Unknown,
    /// The instance has ended or stops, or is not the present one.
    Stale,
    /// The instance waits for its name.
    Waiting,
    Failed,
    /// The event is accepted. It waits for the present run of the target.
    Accepted,
}

/// Decides whether an event for `uid` is accepted.
pub fn event(existing: Option<&Target>, uid: &str) -> EventDecision {
    match existing {
        None => EventDecision::Unknown,
        Some(target) if target.waiting.as_ref().is_some_and(|waiting| waiting.uid == uid) => EventDecision::Waiting,
        Some(target) if target.uid != uid => EventDecision::Stale,
        Some(target) => match target.phase {
            TargetPhase::Starting | TargetPhase::Ready | TargetPhase::Updating => EventDecision::Accepted,
            TargetPhase::Failed => EventDecision::Failed,
            TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone => EventDecision::Stale,
        },
    }
}

/// Returns the transition that runs the first waiting event of a ready target. No run of the target may be active.
pub fn next_event(target: &Target) -> Option<PhaseChange> {
    let start = target.next_event().filter(|_| target.phase == TargetPhase::Ready)?;
    Some(PhaseChange::silent(TargetPhase::Ready, Some(start)))
}

/// Returns the transition that updates a living target, with the number of the update if it has units. No run of the
/// target may be active. Returns `None` for a target that cannot be updated now.
pub fn update(target: &Target, number: Option<u32>) -> Option<PhaseChange> {
    match (target.phase, number) {
        (TargetPhase::Ready | TargetPhase::Failed, Some(number)) => {
            Some(PhaseChange::silent(TargetPhase::Updating, Some(Hook::Update(number))))
        }
        (TargetPhase::Ready | TargetPhase::Failed, None) => {
            Some(PhaseChange::reported(TargetPhase::Ready, target.next_event()))
        }
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteDecision {
    /// The instance is unknown. A tombstone rejects a later creation.
    PutTombstone,
    /// The instance waits for its name and never began. It gets a tombstone.
    Unqueue,
    /// A repetition: the same response, and no change.
    Repeated,
    /// Units may be running. The run is cancelled before the teardown begins (CancelBeforeUndo).
    Cancel(PhaseChange),
    Begin(PhaseChange),
    /// The instance belongs to another sender.
    Foreign,
}

/// Decides the effect of a request of `sender` to delete `uid`.
pub fn delete(existing: Option<&Target>, (uid, sender): (&str, RequestSender<'_>), hooks: &HookSet) -> DeleteDecision {
    let Some(target) = existing else { return DeleteDecision::PutTombstone };
    if target.uid != uid {
        return match target.waiting.as_ref().filter(|waiting| waiting.uid == uid) {
            Some(waiting) if !sender.may_change(waiting.source.as_deref()) => DeleteDecision::Foreign,
            Some(_) => DeleteDecision::Unqueue,
            None => DeleteDecision::PutTombstone,
        };
    }
    if !sender.may_change(target.source.as_deref()) {
        return DeleteDecision::Foreign;
    }
    let stopping = PhaseChange::silent(TargetPhase::Stopping, None);
    match (target.phase, target.hook) {
        (TargetPhase::Stopping | TargetPhase::Stuck | TargetPhase::Gone, _) => DeleteDecision::Repeated,
        (TargetPhase::Starting | TargetPhase::Updating, _)
        | (TargetPhase::Ready, Some(Hook::PostStart | Hook::Event(_))) => DeleteDecision::Cancel(stopping),
        (TargetPhase::Ready, _) | (TargetPhase::Failed, Some(Hook::PostStart | Hook::Update(_))) => {
            DeleteDecision::Begin(teardown(TeardownStage::WasReady, hooks))
        }
        (TargetPhase::Failed, _) => DeleteDecision::Begin(teardown(TeardownStage::NeverReady, hooks)),
    }
}

/// The progress of an instance at the start of its teardown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeardownStage {
    /// The instance was ready, so `preStop` runs first.
    WasReady,
    /// The instance was never ready, so `preStop` is omitted.
    NeverReady,
    /// The units of `preStop` are complete.
    Drained,
}

impl TeardownStage {
    /// Returns the stage of an instance whose run of `hook` was cancelled.
    pub fn cancelled_in(hook: Hook) -> Self {
        match hook {
            Hook::PreStart => Self::NeverReady,
            Hook::PostStart | Hook::Update(_) | Hook::Event(_) => Self::WasReady,
            Hook::PreStop | Hook::PostStop => Self::Drained,
        }
    }
}

/// Returns the first transition of a teardown. No setup unit may be running.
pub fn teardown(stage: TeardownStage, hooks: &HookSet) -> PhaseChange {
    let stopping = |hook| PhaseChange::silent(TargetPhase::Stopping, Some(hook));
    match stage {
        TeardownStage::WasReady if hooks.contains(&Hook::PreStop) => stopping(Hook::PreStop),
        _ if hooks.contains(&Hook::PostStop) => stopping(Hook::PostStop),
        _ => GONE,
    }
}

/// A ready target without a run.
const IDLE: PhaseChange = PhaseChange::silent(TargetPhase::Ready, None);
const GONE: PhaseChange = PhaseChange::reported(TargetPhase::Gone, None);

/// Returns the transition after a run ended, or `None` if the target is not in that hook.
pub fn run_ended(target: &Target, hook: Hook, outcome: RunOutcome, hooks: &HookSet) -> Option<PhaseChange> {
    if target.hook != Some(hook) {
        return None;
    }
    let reported = |phase, start| Some(PhaseChange::reported(phase, start));
    match (target.phase, hook, outcome) {
        (TargetPhase::Starting, Hook::PreStart, RunOutcome::Succeeded) => Some(ready(hooks, target.next_event())),
        // Failed units of an event do not change the target.
        (TargetPhase::Ready, Hook::PostStart, RunOutcome::Succeeded) | (TargetPhase::Ready, Hook::Event(_), _) => {
            // The write without another run makes the target due for its update.
            next_event(target).or_else(|| target.has_pending_update.then_some(IDLE))
        }
        (TargetPhase::Updating, Hook::Update(_), RunOutcome::Succeeded) => {
            reported(TargetPhase::Ready, target.next_event())
        }
        (TargetPhase::Starting, Hook::PreStart, RunOutcome::Failed)
        | (TargetPhase::Ready, Hook::PostStart, RunOutcome::Failed)
        | (TargetPhase::Updating, Hook::Update(_), RunOutcome::Failed) => reported(TargetPhase::Failed, None),
        (TargetPhase::Stopping | TargetPhase::Stuck, Hook::PreStop, RunOutcome::Succeeded) => {
            Some(teardown(TeardownStage::Drained, hooks))
        }
        (TargetPhase::Stopping | TargetPhase::Stuck, Hook::PostStop, RunOutcome::Succeeded) => Some(GONE),
        (TargetPhase::Stopping, Hook::PreStop | Hook::PostStop, RunOutcome::Failed) => {
            reported(TargetPhase::Stuck, None)
        }
        _ => None,
    }
}

fn ready(hooks: &HookSet, event: Option<Hook>) -> PhaseChange {
    PhaseChange::reported(TargetPhase::Ready, hooks.contains(&Hook::PostStart).then_some(Hook::PostStart).or(event))
}

#[cfg(test)]
mod tests;
