//! Simulations with their own course of events: random ones, and those of one target.

use super::*;

/// The most target names of a simulation, and the most instances of a name.
const TARGETS: u64 = 5;
const INSTANCES: u64 = 3;
const SOURCES: u64 = 2;
/// The most targets in the unreachable cluster, and the longest time until one is deleted.
const MAX_UNREACHABLE: u64 = 4;
const UNREACHABLE_MS: u64 = 600_000;

#[derive(Clone, Debug)]
pub struct SimReport {
    pub instances: u64,
    /// The number of faults of each kind, in the order of [`FaultKind::all`].
    pub injected: Vec<u64>,
    pub injection_points: Vec<u64>,
    pub notifications: BTreeSet<String>,
    pub attempts: u64,
    /// The counts `conditional`, `kept` and `repaired` of [`LedgerState`], with the numbers of attempts for an entry of a
    /// list, of waits for a slot, of requests to the provider with an answer to a challenge and with a signature of AWS,
    /// and of targets that lists of senders have ended.
    pub reached: Vec<u64>,
    pub invocations: u64,
    pub violations: Vec<String>,
    /// The events, with their times.
    pub trace: String,
}

/// Returns a target whose units wait for the cluster [`UNREACHABLE`].
pub fn unreachable_target() -> TargetScenario {
    let document = format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\ncluster: {UNREACHABLE}\nresources:\n  r: {{plugin: waiting@1.0.0}}\n"
    );
    let plugins = vec![("waiting".to_owned(), "1.0.0".to_owned(), include_str!("waiting.yaml").to_owned())];
    TargetScenario::new(plugins, document, UnitBehavior::Steady)
}

pub fn simulate(seed: u64, excluded: &[FaultKind], trace: TraceMode) -> SimReport {
    let random = SimRandom::new(seed ^ 0x5eed);
    let subscribed = SimRandom::new(seed ^ 0x5ab5).below(3) == 0;
    let reviewed = SimRandom::new(seed ^ 0x61c).below(4) == 0;
    let kept = SimRandom::new(seed ^ 0x7e7a);
    let retention = (kept.below(2) == 0).then(|| Millis(600_000 + kept.below(3_000_000)));
    let is_wrong = SimRandom::new(seed ^ 0x3a0f).below(2) == 0;
    let inputs = if is_wrong { format!("{{{WRONG}: {WRONG}, make: ") } else { "{make: ".to_owned() };
    let target = |seed| {
        let target = TargetScenario::random(seed);
        let changed = target.changed.iter().map(|text| text.replace("{make: ", &inputs)).collect();
        TargetScenario { subscribed, reviewed, changed, ..target }
    };
    let mut targets: Vec<TargetScenario> = (0..1 + random.below(2)).map(|_| target(random.bits())).collect();
    if SimRandom::new(seed ^ 0x1029).below(3) == 0 {
        for TargetScenario { document, changed, .. } in &mut targets {
            for (number, text) in std::iter::once(document).chain(changed).enumerate() {
                let protect = if number == 0 || number % 3 == 1 { PROTECTED } else { LIFTED };
                *text = text.replacen("resources:\n  a: {", &format!("resources:\n  a: {{{protect}"), 1);
            }
        }
    }
    let unreachable = unreachable_target();
    let (faults, operator) = (FaultInjector::new(seed, excluded), SimOperator::Random);
    let latency_ms = if random.below(2) == 0 { random.below(40) } else { 0 };
    let options = SimOptions { seed, faults, operator, trace, latency_ms, retention, ..SimOptions::default() };
    let mut simulation = Simulation::new(targets.iter().chain([&unreachable]), options);
    simulation.ledger.state().is_ranged = SimRandom::new(seed ^ 0x3a36).below(2) == 0;
    let limits = SimRandom::new(seed ^ 0x1127);
    for name in (0..SOURCES).map(|number| format!("s{number}")) {
        let then = ["wait", owners::REPLACE, "reject"][limits.below(3) as usize];
        let living = 1 + limits.below(2) as usize;
        if limits.below(3) == 0 {
            let document = include_str!("limited_source.yaml").replace("NAME", &name).replace("THEN", then);
            let document = document.replace("LIVING", &living.to_string());
            let source = NamedDocument { name: name.clone(), document, changed: Timestamp(0) };
            simulation.table.put_documents(NamedKind::Source, std::iter::once(source));
            simulation.ledger.state().limits.insert(name, (living, then));
        }
    }
    let mut names = Vec::new();
    for number in 0..1 + random.below(TARGETS) {
        let name = format!("t{number}");
        for instance in 0..1 + random.below(INSTANCES) {
            let target = &targets[random.below(targets.len() as u64) as usize];
            let ttl_minutes = (random.below(6) == 0).then_some(2 + instance);
            simulation.add(target, &name, &format!("{name}-{instance}"), ttl_minutes);
        }
        names.push(name);
    }
    if simulation.faults.should_inject(FaultKind::ClusterUnreachable) {
        for number in 0..1 + random.below(MAX_UNREACHABLE) {
            let name = format!("{UNREACHABLE}-{number}");
            simulation.add(&unreachable, &name, &format!("{name}-0"), None);
        }
    }
    run(&simulation, names, &targets, &random);
    report(&simulation)
}

fn run(simulation: &Simulation, names: Vec<String>, targets: &[TargetScenario], random: &SimRandom) {
    for instance in simulation.unreachable() {
        let (platform, random) = (simulation.platform.clone(), SimRandom::new(random.bits()));
        let runtime = simulation.runtime.clone();
        simulation.runtime.spawn(async move {
            platform.create(&instance).await;
            if random.below(2) == 0 {
                runtime.sleep(random.below(UNREACHABLE_MS)).await;
                platform.delete(&instance).await;
            }
        });
    }
    let origins = SimRandom::new(simulation.seed ^ 0xba5);
    let sources: Vec<SimSource> = (0..SOURCES).map(|number| SimSource::random(number, random, &origins)).collect();
    let listed = sources.iter().filter(|source| source.has_origin).map(|source| source.name.as_str());
    simulation.observe_sources(&listed.collect::<Vec<_>>());
    for name in &names {
        let (platform, next) = (|| simulation.platform.clone(), || SimRandom::new(random.bits()));
        let any = || targets[random.below(targets.len() as u64) as usize].clone();
        let senders = [1, 1, 1, 2, 4, 3, 5, 6, 7, 7][random.below(10) as usize];
        if senders & 1 > 0 {
            let instances = simulation.instances.iter().filter(|instance| instance.name == *name).cloned().collect();
            simulation.runtime.spawn(platform().run(instances, next()));
        }
        if senders & 2 > 0 {
            simulation.runtime.spawn(platform().call_api(name.clone(), any(), next()));
        }
        if senders & 4 > 0 {
            for source in &sources[random.below(SOURCES) as usize..] {
                simulation.runtime.spawn(platform().send_source(source.clone(), name.clone(), any(), next()));
            }
        }
    }
    if random.below(2) == 0 {
        let (platform, table) = (simulation.platform.clone(), Arc::clone(&simulation.table));
        simulation.runtime.spawn(platform.operate(names.clone(), table, SimRandom::new(random.bits())));
    }
    if simulation.faults.should_inject(FaultKind::FeedWatched) {
        simulation.start_watcher();
    }
    simulation.start_sweeps();
    simulation.run_until_settled(random);
    owners::settled(simulation);
    retry_failed(simulation);
    simulation.runtime.run(simulation.platform.clone().clean(names, sources));
    simulation.finish(random);
}

/// Retries what has failed. A failed target has something to retry.
fn retry_failed(simulation: &Simulation) {
    simulation.ledger.repair();
    let targets: Vec<TargetHead> = simulation.table.state().targets.values().cloned().collect();
    for TargetHead { name, uid, .. } in targets.into_iter().filter(|target| target.phase == TargetPhase::Failed) {
        let retried = simulation.invoke(|functions| async move { functions.retry(&name, None).await });
        // The target may have been stopped since.
        let is_failed = |target: &TargetHead| target.uid == uid && target.phase == TargetPhase::Failed;
        if let Some(Ok(Err(Rejection::Refused(ErrorCode::NothingFailed, why)))) = retried
            && simulation.table.state().targets.values().any(is_failed)
        {
            simulation.ledger.report_violation(format!("{uid} is failed, and {why}"));
        }
    }
}

/// Runs one target from its creation to its end, with these faults. Its operator retries it when it is stuck.
pub fn simulate_target(target: &TargetScenario, name: &str, faults: FaultInjector, trace: TraceMode) -> SimReport {
    let options = SimOptions { faults, operator: SimOperator::Retries, trace, ..SimOptions::default() };
    let mut simulation = Simulation::new([target], options);
    simulation.add(target, name, "uid-1", None);
    let setup = simulation.run_target();
    if setup != Some(TargetPhase::Ready) {
        simulation.ledger.report_violation(format!("its setup has ended as {setup:?}"));
    }
    report(&simulation)
}

fn report(simulation: &Simulation) -> SimReport {
    let (trace, slot_waits) = (simulation.trace(), simulation.table.state().slot_waits);
    let state = simulation.ledger.state();
    let entries = state.attempts.iter().filter(|one| one.unit.plan.entry.is_some()).count();
    let others = [entries as u64, slot_waits, state.authenticated[0], state.authenticated[1], state.origins.ended];
    let counts = [&state.conditional[..], &others, &state.kept, &state.repaired];
    SimReport {
        instances: state.instances.len() as u64,
        injected: simulation.faults.injected(),
        injection_points: simulation.faults.injection_points(),
        notifications: state.notifications.iter().map(|notification| notification.kind.clone()).collect(),
        attempts: state.attempts.len() as u64,
        reached: counts.concat(),
        invocations: simulation.functions.invocations(),
        violations: state.violations.clone(),
        trace,
    }
}
