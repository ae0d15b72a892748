//! Kills components of Ebb and of the cluster with SIGKILL at random times of the example `mixed`. The sandbox ends as
//! without a crash, and each unit succeeds once.

use std::collections::{BTreeSet, VecDeque};

use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinHandle;

use crate::kill::{number_from_env, seed};
use crate::kill_targets::KillTarget;
use crate::mixed::{MixedSetup, SANDBOX};
use crate::persistent_platform::{PersistentPlatform, PlatformStep};
use crate::prelude::*;

/// Number of kills: one of each component. `EBB_KILLS` overrides it.
const KILLS: usize = KillTarget::ALL.len();
/// Maximum number of ended units before a kill. Some undos still follow, one of them a script.
const MAX_ENDED_UNITS: usize = 8;
/// Maximum time between the end of a unit and a kill, and maximum downtime of a server of the cluster.
const MAX_DELAY: Duration = Duration::from_millis(1_000);
const LOOK: Duration = Duration::from_millis(25);

/// A component and the time of its kill.
struct PlannedKill {
    component: KillTarget,
    /// The number of ended units, and a delay after the last of them.
    after: (usize, Duration),
    downtime: Duration,
}

/// The state at a kill: the step of the platform, and the number of ended units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct KillHit {
    component: KillTarget,
    step: PlatformStep,
    ended: usize,
}

/// Several instances with kills on one state directory.
struct KillSequence {
    setup: MixedSetup,
    document: String,
    dev: DevProcess,
}

impl KillSequence {
    async fn new() -> Self {
        let setup = MixedSetup::new("kills").await;
        let dev = setup.workdir.dev().await;
        setup.publish().await;
        let document = std::fs::read_to_string(crate::workdir::example("mixed/sandbox.yaml")).unwrap();
        Self { setup, document, dev }
    }

    /// Runs an instance with kills in their order. Returns the kills, and the components that were not killed because the
    /// instance ended before.
    async fn run_instance(mut self, uid: &str, kills: Vec<PlannedKill>) -> (Self, Vec<KillHit>, Vec<KillTarget>) {
        // Each instance has its own name, because a target has the state of its last instance.
        let (name, document) =
            (format!("{SANDBOX}-{uid}"), self.document.replace(SANDBOX, &format!("{SANDBOX}-{uid}")));
        let new = || PersistentPlatform::new(&name, uid, document.clone(), None);
        let (mut platform, observer) = (new(), new());
        self.setup.service.clear();
        let (mut kills, mut hits, mut missed) = (VecDeque::from(kills), Vec::new(), Vec::new());
        let mut restarts: Vec<JoinHandle<()>> = Vec::new();
        while let Some(kill) = kills.pop_front() {
            let (hit, process) = tokio::select! {
                () = run_to_end(&mut platform, &self.dev, &self.setup) => {
                    missed.push(kill.component);
                    missed.extend(kills.drain(..).map(|kill| kill.component));
                    break;
                }
                killed = wait_until_due(&kill, &observer, &self) => killed,
            };
            let hit = KillHit { step: platform.step, ..hit };
            match process {
                None => {
                    self.dev.kill().await;
                    self.dev = self.setup.workdir.dev_again().await;
                }
                Some(process) => match kill.component.kill(process, kill.downtime) {
                    Some(restart) => restarts.push(restart),
                    // The process ended by itself before the kill.
                    None => {
                        missed.push(kill.component);
                        continue;
                    }
                },
            }
            println!("{hit:?}");
            hits.push(hit);
        }
        run_to_end(&mut platform, &self.dev, &self.setup).await;
        for restart in restarts {
            restart.await.unwrap();
        }
        let target = observer.get(&self.dev).await.unwrap().expect("the target that is gone");
        let count = |component| hits.iter().filter(|hit| hit.component == component).count();
        // A kubelet that ends while it starts pods can lose both concurrent ones.
        let lost = count(KillTarget::Entrypoint) + 2 * count(KillTarget::Kubelet);
        assert_each_succeeded(&target, u32::try_from(lost).unwrap());
        self.setup.assert_nothing_remains().await;
        self.setup.workdir.notified_in_order(uid).await;
        (self, hits, missed)
    }
}

/// Continues the instance to its end.
async fn run_to_end(platform: &mut PersistentPlatform, dev: &DevProcess, setup: &MixedSetup) {
    while platform.step != PlatformStep::Over {
        if platform.step == PlatformStep::Delete {
            let target = platform.get(dev).await.unwrap().unwrap();
            setup.assert_created(&target);
        }
        platform.advance(dev).await.unwrap();
    }
}

/// Waits until a kill is due. Returns the state and the process to kill.
async fn wait_until_due(
    kill: &PlannedKill,
    observer: &PersistentPlatform,
    sequence: &KillSequence,
) -> (KillHit, Option<Pid>) {
    let (after, pause) = kill.after;
    let ended = async || {
        let units = observer.get(&sequence.dev).await.unwrap().into_iter().flat_map(|target| target.runs);
        units.flat_map(|run| run.units).filter(|unit| unit.state == UnitState::Succeeded).count()
    };
    while ended().await < after {
        tokio::time::sleep(LOOK).await;
    }
    tokio::time::sleep(pause).await;
    let process = match kill.component {
        KillTarget::Stack => None,
        other => Some(until("a process to kill", async || other.process(&sequence.setup.relay)).await),
    };
    (KillHit { component: kill.component, step: PlatformStep::Create, ended: ended().await }, process)
}

/// Checks that every unit succeeded, and that only the number `lost` of pods cost further attempts.
fn assert_each_succeeded(target: &TargetDetail, lost: u32) {
    let units: Vec<_> = target.runs.iter().flat_map(|run| &run.units).collect();
    assert!(!units.is_empty() && units.iter().all(|unit| unit.state == UnitState::Succeeded), "{units:#?}");
    let further_attempts: u32 = units.iter().map(|unit| unit.attempt - 1).sum();
    assert!(further_attempts <= lost, "{lost} pods were lost: {units:#?}");
}

/// Returns kills of components at random times, in the order of their times.
fn planned(components: &[KillTarget], random: &mut StdRng) -> Vec<PlannedKill> {
    let mut kills: Vec<PlannedKill> = components
        .iter()
        .map(|&component| PlannedKill {
            component,
            after: (random.random_range(0..MAX_ENDED_UNITS), MAX_DELAY.mul_f64(random.random())),
            downtime: MAX_DELAY.mul_f64(random.random()),
        })
        .collect();
    kills.sort_by_key(|kill| kill.after);
    kills
}

#[tokio::test]
async fn every_component_is_killed_at_random_times() {
    let _lock = exclusive_lock().await;
    let (kills, seed, started) = (number_from_env("EBB_KILLS", KILLS), seed(), Instant::now());
    let mut random = StdRng::seed_from_u64(seed);
    let mut all: Vec<KillTarget> = KillTarget::ALL.into_iter().cycle().take(kills).collect();
    let (mut sequence, mut hits, mut count) = (KillSequence::new().await, Vec::new(), 0);
    println!("{kills} kills with EBB_KILL_SEED={seed}; installed after {:?}", started.elapsed());
    while !all.is_empty() {
        let mut components: Vec<KillTarget> = all.drain(..KillTarget::ALL.len().min(all.len())).collect();
        components.shuffle(&mut random);
        let since = Instant::now();
        let (next, hit, missed) =
            sequence.run_instance(&format!("instance-{count}"), planned(&components, &mut random)).await;
        println!("instance {count}: {:?}, missed {missed:?}", since.elapsed());
        sequence = next;
        hits.extend(hit);
        all.extend(missed);
        count += 1;
        assert!(count <= 2 * kills, "most kills came after the end of the instance");
    }
    assert_eq!(hits.len(), kills);
    let points =
        |hits: &mut dyn Iterator<Item = &KillHit>| hits.map(|hit| (hit.step, hit.ended)).collect::<BTreeSet<_>>();
    for component in KillTarget::ALL.into_iter().take(kills) {
        let different = points(&mut hits.iter().filter(|hit| hit.component == component)).len();
        let kills = kills / KillTarget::ALL.len();
        assert!(different >= kills.div_ceil(3).min(3), "{component:?} was killed at {different} different points");
    }
    assert!(points(&mut hits.iter()).len() >= kills.min(3), "{hits:?}");
    println!(
        "{kills} kills with seed {seed} in {:.0} s over {count} instances: no resource was lost, left behind or created twice",
        started.elapsed().as_secs_f64()
    );
    sequence.dev.stop().await;
    sequence.setup.relay.remove();
}
