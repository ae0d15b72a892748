//! `kill -9` of any part of Ebb and of the cluster, at any moment of the mixed example: it ends as if nothing had
//! happened, and each unit has succeeded once.

use std::collections::{BTreeSet, VecDeque};

use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinHandle;

use crate::kill::{given, seed};
use crate::mixed::{MixedSetup, SANDBOX};
use crate::persistent_platform::{PersistentPlatform, PlatformStep};
use crate::prelude::*;
use crate::victims::KillTarget;

/// How often, unless `EBB_KILLS` says otherwise: each victim once.
const KILLS: usize = KillTarget::ALL.len();
/// Units that may have ended when a process is killed: some undos are still to come, and one of them is a script.
const STAGES: usize = 8;
/// The longest time after a unit has ended, and the longest time that a server of the cluster is away.
const PAUSE: Duration = Duration::from_millis(1_000);
const LOOK: Duration = Duration::from_millis(25);

/// Who is killed when.
struct PlannedKill {
    victim: KillTarget,
    /// So many units have ended, and so much time has passed since.
    after: (usize, Duration),
    away: Duration,
}

/// What a kill has hit: what the platform was about, and how many units had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct KillHit {
    victim: KillTarget,
    step: PlatformStep,
    ended: usize,
}

/// One server after the other, on one state.
struct KillSequence {
    shop: MixedSetup,
    document: String,
    dev: DevProcess,
}

impl KillSequence {
    async fn new() -> Self {
        let shop = MixedSetup::new("kills").await;
        let dev = shop.place.dev().await;
        shop.publish().await;
        let document = std::fs::read_to_string(crate::workdir::example("mixed/sandbox.yaml")).unwrap();
        Self { shop, document, dev }
    }

    /// Runs an instance with these kills, in their order. Returns who was hit, and who was not because it was over before.
    async fn live(mut self, uid: &str, kills: Vec<PlannedKill>) -> (Self, Vec<KillHit>, Vec<KillTarget>) {
        // A name of its own: a target has the state of its last instance.
        let (name, document) =
            (format!("{SANDBOX}-{uid}"), self.document.replace(SANDBOX, &format!("{SANDBOX}-{uid}")));
        let new = || PersistentPlatform::new(&name, uid, document.clone());
        let (mut platform, eye) = (new(), new());
        self.shop.service.forget();
        let (mut kills, mut hits, mut missed) = (VecDeque::from(kills), Vec::new(), Vec::new());
        let mut back: Vec<JoinHandle<()>> = Vec::new();
        while let Some(kill) = kills.pop_front() {
            let (hit, process) = tokio::select! {
                () = undisturbed(&mut platform, &self.dev, &self.shop) => {
                    missed.push(kill.victim);
                    missed.extend(kills.drain(..).map(|kill| kill.victim));
                    break;
                }
                due = due(&kill, &eye, &self) => due,
            };
            let hit = KillHit { step: platform.step, ..hit };
            match process {
                None => {
                    self.dev.kill().await;
                    self.dev = self.shop.place.dev_again().await;
                }
                Some(process) => match kill.victim.strike(process, kill.away) {
                    Some(started) => back.push(started),
                    // It has ended by itself right now.
                    None => {
                        missed.push(kill.victim);
                        continue;
                    }
                },
            }
            println!("{hit:?}");
            hits.push(hit);
        }
        undisturbed(&mut platform, &self.dev, &self.shop).await;
        for started in back {
            started.await.unwrap();
        }
        let seen = eye.look(&self.dev).await.unwrap().expect("what is gone is remembered");
        let count = |victim| hits.iter().filter(|hit| hit.victim == victim).count();
        // A kubelet that ends while it starts pods may lose both that there can be at once.
        let lost = count(KillTarget::Entrypoint) + 2 * count(KillTarget::Kubelet);
        each_succeeded_once(&seen, u32::try_from(lost).unwrap());
        self.shop.nothing_left().await;
        self.shop.place.notified_in_order(uid).await;
        (self, hits, missed)
    }
}

/// Goes on to the end of the instance.
async fn undisturbed(platform: &mut PersistentPlatform, dev: &DevProcess, shop: &MixedSetup) {
    while platform.step != PlatformStep::Over {
        if platform.step == PlatformStep::Delete {
            let seen = platform.look(dev).await.unwrap().unwrap();
            shop.made(&seen);
        }
        platform.advance(dev).await.unwrap();
    }
}

/// Waits for the moment of a kill, and for its process.
async fn due(kill: &PlannedKill, eye: &PersistentPlatform, sequence: &KillSequence) -> (KillHit, Option<Pid>) {
    let (after, pause) = kill.after;
    let ended = async || eye.look(&sequence.dev).await.unwrap().map_or(0, |seen| ended(&seen));
    while ended().await < after {
        tokio::time::sleep(LOOK).await;
    }
    tokio::time::sleep(pause).await;
    let process = match kill.victim {
        KillTarget::Stack => None,
        other => Some(until("a process to kill", async || other.process(&sequence.shop.relay)).await),
    };
    (KillHit { victim: kill.victim, step: PlatformStep::Create, ended: ended().await }, process)
}

/// How many units have ended.
fn ended(seen: &TargetDetail) -> usize {
    let units = seen.runs.iter().flat_map(|run| &run.units);
    units.filter(|unit| unit.state == UnitState::Succeeded).count()
}

/// That every unit has succeeded, and that nothing has cost a try but the pods that were `lost`.
fn each_succeeded_once(seen: &TargetDetail, lost: u32) {
    let units: Vec<_> = seen.runs.iter().flat_map(|run| &run.units).collect();
    assert!(!units.is_empty() && units.iter().all(|unit| unit.state == UnitState::Succeeded), "{units:#?}");
    let tries: u32 = units.iter().map(|unit| unit.attempt - 1).sum();
    assert!(tries <= lost, "{lost} pods were lost: {units:#?}");
}

/// Random moments for these victims, in the order of the moments.
fn planned(victims: &[KillTarget], random: &mut StdRng) -> Vec<PlannedKill> {
    let mut kills: Vec<PlannedKill> = victims
        .iter()
        .map(|&victim| PlannedKill {
            victim,
            after: (random.random_range(0..STAGES), PAUSE.mul_f64(random.random())),
            away: PAUSE.mul_f64(random.random()),
        })
        .collect();
    kills.sort_by_key(|kill| kill.after);
    kills
}

#[tokio::test]
async fn any_part_at_any_moment() {
    let _alone = alone().await;
    let (kills, seed, begun) = (given("EBB_KILLS", KILLS), seed(), Instant::now());
    let mut random = StdRng::seed_from_u64(seed);
    let mut all: Vec<KillTarget> = KillTarget::ALL.into_iter().cycle().take(kills).collect();
    let (mut sequence, mut hits, mut count) = (KillSequence::new().await, Vec::new(), 0);
    println!("{kills} kills with EBB_KILL_SEED={seed}; installed after {:?}", begun.elapsed());
    while !all.is_empty() {
        let mut victims: Vec<KillTarget> = all.drain(..KillTarget::ALL.len().min(all.len())).collect();
        victims.shuffle(&mut random);
        let since = Instant::now();
        let (next, hit, missed) = sequence.live(&format!("instance-{count}"), planned(&victims, &mut random)).await;
        println!("instance {count}: {:?}, missed {missed:?}", since.elapsed());
        sequence = next;
        hits.extend(hit);
        all.extend(missed);
        count += 1;
        assert!(count <= 2 * kills, "hardly any process is hit");
    }
    assert_eq!(hits.len(), kills);
    let stages = |of: &mut dyn Iterator<Item = &KillHit>| of.map(|hit| (hit.step, hit.ended)).collect::<BTreeSet<_>>();
    for victim in KillTarget::ALL.into_iter().take(kills) {
        let different = stages(&mut hits.iter().filter(|hit| hit.victim == victim)).len();
        let kills = kills / KillTarget::ALL.len();
        assert!(different >= kills.div_ceil(3).min(3), "{victim:?} was hit in {different} stages");
    }
    assert!(stages(&mut hits.iter()).len() >= kills.min(3), "{hits:?}");
    println!(
        "{kills} kills with seed {seed} in {:.0} s over {count} instances: nothing lost, nothing left, nothing made twice",
        begun.elapsed().as_secs_f64()
    );
    sequence.dev.stop().await;
    sequence.shop.relay.remove();
}
