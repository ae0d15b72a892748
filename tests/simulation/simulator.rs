//! A simulation: its parts, its instances, and the loop that runs until nothing is in progress.

use ebb_flow::{DeploymentSettings, InstanceCache};
use ebb_store::NotificationState;

use super::*;

/// More than the longest wait after a failed removal.
const MAX_POSTPONED_MS: u64 = 8 * 86_400_000;
/// Maximum number of rounds of removals at the end. Faults stop some of them.
const REMOVALS: u32 = 1_000;
/// The interval between two checks of the state.
const POLL_MS: u64 = 5_000;
/// The checks of the state, without a running attempt, after which each target that waits has to be explained.
const QUIET_POLLS: u32 = 3;
/// The part of a document whose time to live counts from the last activity.
pub(super) const SLIDING: &str = "from: activity";
/// The pause between two operations on stuck targets.
const OPERATION_MS: u64 = 120_000;
/// The time that a simulation is observed after its end: longer than the queue holds a message.
pub(super) const LINGER_MS: u64 = 1_600_000;
/// The most slots of a cluster with few slots, and the most dispatches of an invocation with few dispatches.
const MAX_SCARCE: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceMode {
    Kept,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimOperator {
    Absent,
    /// Repairs and retries stuck targets.
    Retries,
    /// Repairs stuck targets, and runs a random operation on each.
    Random,
}

impl SimOperator {
    /// Returns the longest virtual time until nothing is in progress, and the longest time that anything may be due.
    /// The time of sweeps that were missed or died does not count.
    fn bounds(self) -> (u64, u64) {
        match self {
            Self::Absent => (6 * 3_600_000, 300_000),
            Self::Retries | Self::Random => (24 * 3_600_000, 1_200_000),
        }
    }
}

/// What distinguishes a simulation from others.
pub struct SimOptions {
    /// The seed of all random values except faults.
    pub seed: u64,
    pub faults: FaultInjector,
    pub operator: SimOperator,
    pub trace: TraceMode,
    pub clusters: ClusterOptions,
    /// The longest time of an operation of the table.
    pub latency_ms: u64,
    pub max_in_flight_ms: u64,
    pub retention: Option<Millis>,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            faults: FaultInjector::none(),
            operator: SimOperator::Absent,
            trace: TraceMode::Kept,
            clusters: ClusterOptions::default(),
            latency_ms: 0,
            max_in_flight_ms: 30_000,
            retention: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetEnd {
    /// The phase after the setup; `None`: there was no target.
    pub setup: Option<TargetPhase>,
    pub phase: Option<TargetPhase>,
    pub done: BTreeSet<String>,
    pub failed: BTreeSet<String>,
    /// The keys of units whose objects exist.
    pub remaining: BTreeSet<String>,
    pub notifications: BTreeSet<String>,
    pub violations: Vec<String>,
}

/// All targets, or those whose names do not begin with this. The names of the targets in [`UNREACHABLE`] begin with its name.
type TargetScope = Option<&'static str>;

const REACHABLE: TargetScope = Some(UNREACHABLE);

fn is_without(scope: TargetScope, name: &str) -> bool {
    scope.is_some_and(|without| name.starts_with(without))
}

pub struct Simulation {
    pub runtime: SimRuntime,
    pub table: Arc<SimTable>,
    pub functions: Arc<SimFunctions>,
    pub ledger: Arc<Ledger>,
    pub relay: SimRelay,
    pub platform: PlatformSender,
    pub instances: Vec<SimInstance>,
    pub(super) faults: Arc<FaultInjector>,
    pub(super) seed: u64,
    operator: SimOperator,
    pub(super) retention: Option<Millis>,
    /// The start times of sweeps that were missed or died.
    pub(super) lost_sweeps: Arc<Mutex<Vec<Timestamp>>>,
    /// The behavior of the units of targets, by their names.
    behaviors: Arc<Mutex<BTreeMap<String, UnitBehavior>>>,
    pub(super) watcher: SimWatcher,
}

pub(super) const MAX_SKEW_MS: u64 = 60_000;

/// Returns by how much the clock of a new function instance is fast, or slow.
fn clock_error(executor: &SimExecutor) -> i64 {
    let error = executor.inject_below(FaultKind::ClockOff, MAX_SKEW_MS + 1);
    error.map_or(0, |error| error.cast_signed() - (MAX_SKEW_MS / 2).cast_signed())
}

/// The most events that the platform sends to an instance.
const MAX_EVENTS: u64 = 3;

fn event_ids(uid: &str, count: u64) -> Vec<String> {
    (0..count).map(|number| format!("{uid}-{number}")).collect()
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.functions.stop();
        self.runtime.clear();
    }
}

impl Simulation {
    /// Returns a simulation in which the plugins of `targets` are published, and nothing else has happened.
    pub fn new<'a>(targets: impl IntoIterator<Item = &'a TargetScenario>, options: SimOptions) -> Self {
        let SimOptions { seed, operator, trace, clusters, latency_ms, max_in_flight_ms, retention, .. } = options;
        let (runtime, faults) = (SimRuntime::default(), Arc::new(options.faults));
        let is_traced = trace == TraceMode::Kept;
        let mut table = SimTable::new(runtime.clone());
        table.latency = (latency_ms > 0).then(|| (SimRandom::new(seed), latency_ms));
        table.faults = Some(Arc::clone(&faults));
        table.is_traced = is_traced;
        let table = Arc::new(table);
        let skew = if faults.has(FaultKind::ClockOff) { MAX_SKEW_MS } else { 0 };
        let max_in_flight_ms = max_in_flight_ms + skew;
        let callback_wait = std::time::Duration::from_millis(20 * (1 - seed % 2));
        let usual = settings(max_in_flight_ms);
        let bounds = TimeBounds { max_in_flight: max_in_flight_ms, response: usual.response_window().0, skew };
        let ledger = Arc::new(Ledger::new(runtime.clone(), Arc::clone(&table), bounds, is_traced));
        let functions = Arc::new(SimFunctions::new(runtime.clone(), Arc::clone(&table), Arc::clone(&faults)));
        let executor = Arc::new(SimExecutor {
            runtime: runtime.clone(),
            functions: Arc::clone(&functions),
            ledger: Arc::clone(&ledger),
            faults: Arc::clone(&faults),
        });
        let behaviors: Arc<Mutex<BTreeMap<String, UnitBehavior>>> = Arc::default();
        let (known, observer) = (Arc::clone(&behaviors), Arc::clone(&ledger));
        *lock(&table.observer) = Some(Box::new(move |state, seen, target| {
            let Some(plan) = observer.observe(state, seen, target) else { return };
            let behavior = lock(&known).get(&target.name).cloned().unwrap_or(UnitBehavior::Random);
            let events = event_ids(&target.uid, MAX_EVENTS);
            let generations = (target.first_generation, target.generation);
            let of = (target.name.as_str(), target.uid.as_str(), generations.0, generations.1, events.as_slice());
            let found = registry::units(&plan, of, seed, &behavior);
            observer.state().units.extend(found.into_iter().map(|unit| (unit.key.clone(), Arc::new(unit))));
        }));
        let mut connected = BTreeSet::new();
        for target in targets {
            table.publish(target.items());
            if target.subscribed {
                table.put_documents(NamedKind::Subscription, receivers::documents());
            }
            if target.reviewed {
                let (connection, subscriptions) = receivers::of_github();
                table.put_documents(NamedKind::Connection, std::iter::once(connection));
                table.put_documents(NamedKind::Subscription, subscriptions);
            }
            let users = target.plugins.iter().filter(|(.., text)| provider_documents::is_connected(text));
            connected.extend(users.map(|(name, ..)| name.clone()));
        }
        let few = |kind| faults.should_inject(kind).then(|| 1 + faults.random_below(kind, MAX_SCARCE) as usize);
        let connection_slots = few(FaultKind::ConnectionCapped);
        ledger.state().connection_slots = connection_slots;
        let schemes = [FaultKind::TokenExpires, FaultKind::DigestChallenged, FaultKind::RequestsSigned];
        let scheme = schemes.into_iter().find(|&kind| faults.should_inject(kind));
        let connection = provider::connection(&Vec::from_iter(connected), scheme, connection_slots);
        table.put_documents(NamedKind::Connection, connection.into_iter());
        let slots = few(FaultKind::SlotsScarce).unwrap_or(clusters.slots);
        let max_dispatches = few(FaultKind::DispatchesScarce).unwrap_or(usual.max_dispatches);
        let is_replaced = clusters.is_replaced || faults.should_inject(FaultKind::ClusterReplaced);
        let servers = Arc::new(SimServers::new(Arc::clone(&executor)));
        let clusters = ClusterOptions { slots, is_replaced, ..clusters };
        let relay = SimRelay::new(Arc::clone(&executor), clusters, Arc::clone(&servers));
        let (own, store, relays) = (Arc::clone(&executor), table.store(), relay.clone());
        let foreign_until = Mutex::default();
        let secrets = Arc::new(SimSecrets { executor: Arc::clone(&executor), others: usual.secrets, foreign_until });
        functions.start(Box::new(move || Env {
            store: store.clone(),
            clock: Arc::new(SimClock(own.runtime.clone(), clock_error(&own))),
            random: Arc::new(SimRandom::new(seed ^ own.functions.invocations())),
            relay: Arc::new(relays.clone()),
            egress: servers.clone(),
            platform: servers.clone(),
            queue: own.clone(),
            settings: DeploymentSettings {
                max_dispatches,
                retention,
                callback_wait,
                secrets: secrets.clone(),
                ..settings(max_in_flight_ms)
            },
            cache: InstanceCache::default(),
        }));
        Self {
            runtime,
            table,
            functions,
            ledger,
            relay,
            platform: PlatformSender(executor),
            instances: Vec::new(),
            faults,
            seed,
            operator,
            retention,
            lost_sweeps: Arc::default(),
            behaviors,
            watcher: SimWatcher::default(),
        }
    }

    /// Returns a simulation of one target, `s`, with one instance.
    pub fn of(target: &TargetScenario, options: SimOptions) -> Self {
        let mut simulation = Self::new([target], options);
        simulation.add(target, "s", "uid-1", None);
        simulation
    }

    /// Adds an instance of a target, perhaps with a time to live. With some seeds, it counts from the last activity.
    pub fn add(&mut self, target: &TargetScenario, name: &str, uid: &str, ttl_minutes: Option<u64>) -> SimInstance {
        let (plain, expires) = (target.document.replace("NAME", name), ttl_minutes.is_some());
        let slides = expires && self.seed.is_multiple_of(4);
        let written = |ttl: &str| if slides { format!("{{after: {ttl}, {SLIDING}}}") } else { ttl.to_owned() };
        // A target with a protected resource has no time to live.
        let unprotected = plain.replace(PROTECTED, LIFTED);
        let with_ttl = |ttl: &str| unprotected.replace("resources:", &format!("ttl: {}\nresources:", written(ttl)));
        let has_events = target.plugins.iter().any(|(_, _, text)| text.contains("\nhooks:\n"));
        let events = match (has_events, &target.behavior) {
            (false, _) => 0,
            (true, UnitBehavior::Random) => SimRandom::new(self.seed ^ uid.len() as u64).below(MAX_EVENTS + 1),
            (true, _) => 2,
        };
        let events = event_ids(uid, events);
        let document = ttl_minutes.map_or_else(|| plain.clone(), |ttl| with_ttl(&format!("{ttl}m")));
        // A target that its TTL ends keeps one.
        let longer = format!("ttl: {}\nresources:", written("9m"));
        let ttl =
            |text: String| if expires { text.replace(PROTECTED, LIFTED).replace("resources:", &longer) } else { text };
        let changed = target.changed.iter().map(|changed| ttl(changed.replace("NAME", name)));
        let changed = changed.chain([with_ttl(if expires { "9m" } else { "9h" })]).collect();
        lock(&self.behaviors).insert(name.to_owned(), target.behavior.clone());
        let (name, uid) = (name.to_owned(), uid.to_owned());
        self.instances.push(SimInstance { name, uid, document, changed, expires, events });
        self.instances[self.instances.len() - 1].clone()
    }

    /// Returns the target of the first instance.
    pub fn target(&self) -> Option<TargetHead> {
        self.table.state().targets.get(&self.instances[0].name).cloned()
    }

    pub(super) fn unreachable(&self) -> impl Iterator<Item = SimInstance> {
        self.instances.iter().filter(|instance| instance.name.starts_with(UNREACHABLE)).cloned()
    }

    /// Requests the first instance. Returns the rejection.
    pub fn create(&self) -> Option<Rejection> {
        let (platform, instance) = (self.platform.clone(), self.instances[0].clone());
        self.runtime.run(async move { platform.create(&instance).await }).flatten()
    }

    /// Deletes the first instance.
    pub fn delete(&self) {
        let (platform, instance) = (self.platform.clone(), self.instances[0].clone());
        self.runtime.run(async move { platform.delete(&instance).await });
    }

    /// Starts what the platform does with an instance.
    pub fn send<F>(
        &self,
        instance: &SimInstance,
        act: impl FnOnce(PlatformSender, SimInstance) -> F,
    ) -> SimTask<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.runtime.spawn(act(self.platform.clone(), instance.clone()))
    }

    /// Creates the first instance, and runs until nothing is in progress.
    pub fn set_up(&self) {
        self.create();
        self.run_until_idle();
    }

    /// Deletes the first instance, and runs until nothing is in progress.
    pub fn tear_down(&self) {
        self.delete();
        self.run_until_idle();
    }

    pub fn invoke<F>(&self, call: impl FnOnce(Arc<SimFunctions>) -> F) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.runtime.run(call(Arc::clone(&self.functions)))
    }

    /// Starts an invocation, whose result is dropped.
    pub fn start<F>(&self, call: impl FnOnce(Arc<SimFunctions>) -> F) -> SimTask<()>
    where
        F: Future + Send + 'static,
    {
        let invocation = call(Arc::clone(&self.functions));
        self.runtime.spawn(async move {
            invocation.await;
        })
    }

    pub fn advance(&self, millis: u64) {
        let runtime = self.runtime.clone();
        self.runtime.run(async move { runtime.sleep(millis).await });
    }

    /// Creates the first instance, sends its events after its setup, deletes it, and runs until all instances are gone.
    /// Returns the state at the end.
    pub fn run_to_end(&self) -> TargetEnd {
        let setup = self.run_target();
        self.end(setup)
    }

    /// The same. Returns the phase after the setup only.
    pub(super) fn run_target(&self) -> Option<TargetPhase> {
        self.start_sweeps();
        for instance in self.unreachable() {
            let platform = self.platform.clone();
            self.runtime.run(async move { platform.create(&instance).await });
        }
        // An instance that was deleted before its creation is rejected as stale.
        if let Some(rejection) = self.create().filter(|why| !matches!(why, Rejection::Refused(ErrorCode::Stale, _))) {
            self.ledger.report_violation(format!("the creation: {rejection:?}"));
        }
        self.run_until_idle();
        let setup = self.target().map(|target| target.phase);
        let (platform, instance) = (self.platform.clone(), self.instances[0].clone());
        if !instance.events.is_empty() {
            self.runtime.run(async move { platform.send_events(&instance, &SimRandom::new(1), 0).await });
            self.run_until_idle();
            owners::settled(self);
        }
        self.delete();
        self.finish(&SimRandom::new(self.seed));
        setup
    }

    /// Runs until nothing is in progress in clusters that respond. Targets may stay ready, failed or stuck.
    pub fn run_until_idle(&self) {
        self.run_until(&SimRandom::new(self.seed), |simulation| simulation.is_idle(REACHABLE));
    }

    /// Runs until nothing is in progress in clusters that respond, while operators repair what is stuck and lists end targets.
    pub(super) fn run_until_settled(&self, random: &SimRandom) {
        let has_stuck = || self.table.state().targets.values().any(|target| target.phase == TargetPhase::Stuck);
        let is_settled = || !has_stuck() && origins::orphans(self).is_empty();
        self.run_until(random, |simulation| simulation.is_idle(REACHABLE) && is_settled());
    }

    /// Runs until all targets are gone, observes the simulation for a while, and checks it. [`UNREACHABLE`] responds,
    /// and its targets are deleted, when the others are gone.
    pub(super) fn finish(&self, random: &SimRandom) {
        self.run_until(random, |simulation| simulation.is_over(REACHABLE));
        self.relay.connect();
        for instance in self.unreachable() {
            let platform = self.platform.clone();
            self.runtime.run(async move { platform.delete(&instance).await });
        }
        self.run_until(random, |simulation| simulation.is_over(None));
        let end = self.runtime.elapsed();
        self.advance(LINGER_MS);
        if !self.is_over(None) {
            self.ledger.report_violation("something is in progress again".to_owned());
        }
        checks::all(self, end);
        if self.retention.is_none() {
            return;
        }
        // The schedule alone removes the rest.
        self.runtime.clear();
        for _ in 0..REMOVALS {
            if self.table.state().expires_nothing() {
                break;
            }
            self.advance(MAX_POSTPONED_MS);
            self.invoke(|functions| async move { functions.remove_expired().await });
        }
        checks::removed(self);
    }

    fn run_until(&self, random: &SimRandom, is_over: impl Fn(&Self) -> bool) {
        let (max_duration, max_overdue) = self.operator.bounds();
        // Starts after the platform.
        self.advance(1);
        let (mut overdue, mut operation) = (0, self.runtime.elapsed() + OPERATION_MS);
        let (mut quiet, mut explained) = (0, BTreeSet::new());
        let end = self.runtime.elapsed() + max_duration;
        while !is_over(self) {
            overdue = self.overdue().max(overdue);
            if self.runtime.elapsed() >= end {
                self.ledger.report_violation("something is still in progress".to_owned());
                break;
            }
            if self.runtime.elapsed() >= operation {
                operation = self.runtime.elapsed() + OPERATION_MS;
                self.operate(random);
            }
            self.advance(POLL_MS);
            quiet = if self.ledger.state().active == 0 { quiet + 1 } else { 0 };
            if quiet == QUIET_POLLS {
                diagnosis::check(self, &mut explained);
            }
        }
        diagnosis::check(self, &mut explained);
        if overdue > max_overdue {
            self.ledger.report_violation(format!(
                "something was due for {overdue} ms, without the time of sweeps that were missed or died"
            ));
        }
    }

    fn operate(&self, random: &SimRandom) {
        let stuck: Vec<String> = {
            let state = self.table.state();
            let stuck = state.targets.values().filter(|target| target.phase == TargetPhase::Stuck);
            stuck.map(|target| target.name.clone()).collect()
        };
        if self.operator == SimOperator::Absent || stuck.is_empty() {
            return;
        }
        self.ledger.repair();
        let (platform, random, operator) = (self.platform.clone(), SimRandom::new(random.bits()), self.operator);
        self.runtime.run(async move {
            for name in stuck {
                match operator {
                    SimOperator::Random => platform.operation(&name, None, &random).await,
                    _ => drop(platform.retry(&name, None).await),
                }
            }
        });
    }

    /// Returns true if all targets in `scope` are gone, and nothing is in progress.
    fn is_over(&self, scope: TargetScope) -> bool {
        let is_gone = |target: &TargetHead| target.phase == TargetPhase::Gone && target.waiting.is_none();
        let is_over = |target: &TargetHead| is_without(scope, &target.name) || is_gone(target);
        self.table.state().targets.values().all(is_over) && self.is_idle(scope)
    }

    /// Returns true if nothing is in progress for the targets in `scope`, and all notifications have a response.
    fn is_idle(&self, scope: TargetScope) -> bool {
        let is_idle = |target: &TargetHead| {
            let is_moving =
                matches!(target.phase, TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping)
                    || (target.phase == TargetPhase::Ready && !target.events.waiting.is_empty())
                    || (target.phase.is_alive() && target.pending_update.is_some());
            // A notification that an open run holds back is sent when the run is closed.
            !matches!(target.notification, Some(NotificationState::Due(_)))
                && target.outbox.notices.is_empty()
                && (is_without(scope, &target.name) || !is_moving)
        };
        // A state that waits for the name or a place is applied again and again.
        let is_at_rest = {
            let table = self.table.state();
            let is_applied = |state: &DesiredTarget| {
                let of_name = table.targets.get(&state.key.name);
                let is_taken =
                    of_name.is_some_and(|target| target.phase != TargetPhase::Gone || target.waiting.is_some());
                let waits = state.result.as_ref().is_some_and(|one| one.result == SourceResult::Accepted);
                state.due.is_none() || (waits && (is_taken || self.ledger.state().is_full(&table, &state.key.source)))
            };
            let is_closed = |run: &RunHead| run.head.phase == RunPhase::Closed || is_without(scope, &run.facts.name);
            let is_settled = table.targets.values().all(is_idle) && table.desired.values().all(is_applied);
            is_settled && table.heads.values().all(is_closed)
        };
        is_at_rest && self.ledger.state().active == 0
    }

    /// Returns the state of the target, with the violations so far.
    pub fn end(&self, setup: Option<TargetPhase>) -> TargetEnd {
        let mut violations = self.functions.broken();
        violations.extend(checks::runs(self));
        violations.extend(bound::left(self));
        let done = self.units(|head, unit| head.done.contains(&unit));
        let failed = self.units(|head, unit| head.failed.contains(&unit));
        let ledger = self.ledger.state();
        violations.extend(ledger.violations.iter().cloned());
        let remaining = ledger.objects.values().filter(|object| object.unit.target == self.instances[0].name);
        TargetEnd {
            setup,
            phase: self.target().map(|target| target.phase),
            done,
            failed,
            remaining: remaining.map(|object| object.unit.unit_key.clone()).collect(),
            notifications: ledger.notifications.iter().map(|notification| notification.kind.clone()).collect(),
            violations,
        }
    }

    pub fn injected(&self, kind: FaultKind) -> u64 {
        self.faults.injected()[kind as usize]
    }

    /// Returns the keys of the units of the first target that are `wanted` in the heads of their runs.
    fn units(&self, wanted: impl Fn(&HeadState, Unit) -> bool) -> BTreeSet<String> {
        let own: Vec<Arc<SimUnit>> =
            self.ledger.state().units.values().filter(|unit| unit.target == self.instances[0].name).cloned().collect();
        let is_wanted = |unit: &&Arc<SimUnit>| {
            let run = checks::run_of(self, &unit.uid, unit.hook);
            let table = self.table.state();
            run.and_then(|run| table.head(&run)).is_some_and(|head| wanted(head, Unit(unit.unit)))
        };
        own.iter().filter(is_wanted).map(|unit| unit.unit_key.clone()).collect()
    }

    /// Returns the events, with their times.
    pub fn trace(&self) -> String {
        let mut events = self.ledger.state().trace.clone();
        events.extend(self.table.state().writes.iter().cloned());
        events.sort_by_key(|(at, _)| *at);
        events.into_iter().map(|(at, event)| format!("{at:>9} {event}\n")).collect()
    }
}
