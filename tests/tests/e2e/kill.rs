//! Kills `ebb dev`, and parts of a cluster, with SIGKILL at planned places of sandboxes. Each sandbox ends as without a crash.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ebb_protocol::api::{TargetDetail, UnitState};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::persistent_platform::{PersistentPlatform, PlatformStep};
use crate::workdir::{DevProcess, Workdir};

/// The seed of the random places. `EBB_KILL_SEED` overrides it.
const SEED: u64 = 20_261_121;
/// Time between two looks at the units before a kill.
const LOOK: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KillTarget {
    /// `ebb dev`, which the driver kills and starts again.
    EbbDev,
    /// The relay in its pod. The kubelet restarts it.
    Relay,
    /// An entrypoint in a pod of a unit. It is not restarted.
    Entrypoint,
    Kubelet,
    ApiServer,
    ControllerManager,
}

pub(crate) trait KillWorld {
    /// The longest time between the end of a unit and a kill.
    const MAX_PAUSE: Duration;

    fn workdir(&self) -> &Workdir;

    /// Forgets earlier instances. Returns the name of the sandbox, its document, and that of a change.
    fn begin(&self) -> (String, String, Option<String>);

    /// Kills a process of a part of the cluster. Returns false if the process has ended by itself.
    async fn kill(&self, part: KillTarget) -> bool {
        panic!("{part:?} is no part of this system");
    }

    /// Checks that exactly one resource of each kind exists, with its complete content.
    fn assert_created(&self, target: &TargetDetail);

    /// Checks that no resource remains after an instance with these kills.
    async fn assert_nothing_remains(&self, target: &TargetDetail, killed: &[KillTarget]);
}

/// The place of a kill: a number of ended units, and a pause after the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct KillPlace {
    after: usize,
    pause: Duration,
    part: KillTarget,
}

/// A kill, and the step of the platform and the units of the target at that time.
#[derive(Clone, Debug)]
struct KillHit {
    part: KillTarget,
    at: (PlatformStep, String),
}

/// Kills each of the parts at a place of its own, at most `at_once` of them in one instance of the sandbox. Stops the server
/// then.
pub(crate) async fn kill_each<W: KillWorld>(
    title: &str,
    world: &W,
    dev: DevProcess,
    mut parts: Vec<KillTarget>,
    at_once: usize,
    seed: u64,
) {
    let (_log, kills, started) = (LogOnPanic(world.workdir()), parts.len(), Instant::now());
    let mut random = StdRng::seed_from_u64(seed);
    println!("{title}: {kills} kills with EBB_KILL_SEED={seed}");
    // The first instance fills caches and counts the units.
    let (mut dev, _, units) = run_instance(world, dev, "complete", vec![]).await;
    let (mut hits, mut instances, mut planned) = (Vec::<KillHit>::new(), 0, 0..);
    while !parts.is_empty() {
        let mut missed: Vec<_> = parts.drain(..at_once.min(parts.len())).collect();
        missed.shuffle(&mut random);
        let places = missed.iter().zip(&mut planned).map(|(&part, number): (_, usize)| KillPlace {
            after: number % units,
            // The first kill after each number of units has no pause, so these are at different points.
            pause: if number < units { Duration::ZERO } else { W::MAX_PAUSE.mul_f64(random.random()) },
            part,
        });
        let mut places: Vec<_> = places.collect();
        places.sort();
        let (next, done, _) = run_instance(world, dev, &format!("killed-{instances}"), places).await;
        dev = next;
        for hit in &done {
            println!("{title}: {hit:?}");
            let number = missed.iter().position(|part| *part == hit.part).expect("it was planned");
            missed.swap_remove(number);
        }
        parts.extend(missed);
        hits.extend(done);
        instances += 1;
        assert!(instances <= 2 * kills, "{title}: most kills came after the end of the instance");
    }
    for part in hits.iter().map(|hit| hit.part).collect::<BTreeSet<_>>() {
        let own: Vec<_> = hits.iter().filter(|hit| hit.part == part).collect();
        let different = own.iter().map(|hit| &hit.at).collect::<BTreeSet<_>>().len();
        // Kills at the same point would cover little.
        assert!(different >= own.len().div_ceil(2).min(3), "{title}: {own:#?}");
    }
    println!(
        "{title}: {} kills with seed {seed} in {:.0} s over {instances} instances: no resource was lost, left behind or created twice",
        hits.len(),
        started.elapsed().as_secs_f64()
    );
    dev.stop().await;
}

/// Runs an instance to its end and kills parts at their places. Returns the server, the kills, and the number of units. A
/// kill is left out if the instance, or the process by itself, ends before its place.
async fn run_instance<W: KillWorld>(
    world: &W,
    mut dev: DevProcess,
    uid: &str,
    places: Vec<KillPlace>,
) -> (DevProcess, Vec<KillHit>, usize) {
    let (name, document, changed) = world.begin();
    let new = || PersistentPlatform::new(&name, uid, document.clone(), changed.clone());
    let (mut platform, observer, mut is_checked, mut hits) = (new(), new(), false, Vec::new());
    for place in places {
        let due = async {
            while observed(&observer, &dev).await.0 < place.after {
                tokio::time::sleep(LOOK).await;
            }
            tokio::time::sleep(place.pause).await;
            let (_, units) = observed(&observer, &dev).await;
            let is_killed = place.part == KillTarget::EbbDev || world.kill(place.part).await;
            is_killed.then_some(units)
        };
        let units = tokio::select! {
            biased;
            () = run_to_end(world, &mut platform, &mut is_checked, &dev) => None,
            units = due => units,
        };
        let Some(units) = units else { continue };
        if place.part == KillTarget::EbbDev {
            dev.kill().await;
            dev = world.workdir().dev_again().await;
        }
        hits.push(KillHit { part: place.part, at: (platform.step, units) });
    }
    run_to_end(world, &mut platform, &mut is_checked, &dev).await;
    let target = observer.get(&dev).await.expect("the target that is gone");
    let killed: Vec<_> = hits.iter().map(|hit| hit.part).collect();
    world.assert_nothing_remains(&target, &killed).await;
    world.workdir().notified_in_order(uid).await;
    let (units, _) = observed(&observer, &dev).await;
    (dev, hits, units)
}

async fn run_to_end<W: KillWorld>(
    world: &W,
    platform: &mut PersistentPlatform,
    is_checked: &mut bool,
    dev: &DevProcess,
) {
    while platform.step != PlatformStep::Over {
        // A deletion without a response may have begun.
        if platform.step == PlatformStep::Delete && !*is_checked {
            let target = platform.get(dev).await.unwrap();
            world.assert_created(&target);
            *is_checked = true;
        }
        platform.advance(dev).await;
    }
}

/// Returns the number of units that have succeeded, and a text of all units.
async fn observed(observer: &PersistentPlatform, dev: &DevProcess) -> (usize, String) {
    let Some(target) = observer.get(dev).await else { return (0, "unknown".to_owned()) };
    let units: Vec<_> = target.runs.iter().flat_map(|run| &run.units).collect();
    let ended = units.iter().filter(|unit| unit.state == UnitState::Succeeded).count();
    let units: Vec<_> = units.iter().map(|unit| format!("{} {:?}", unit.key, unit.state)).collect();
    (ended, format!("{:?}: {}", target.info.phase, units.join(", ")))
}

/// Prints the server's log when a test fails.
struct LogOnPanic<'a>(&'a Workdir);

impl Drop for LogOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0.log());
        }
    }
}

pub(crate) fn number_from_env<T: std::str::FromStr>(name: &str, default: T) -> T {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is a number"))
}

pub(crate) fn seed() -> u64 {
    number_from_env("EBB_KILL_SEED", SEED)
}
