//! `kill -9` of `ebb dev` at any moment of a sandbox: after a restart it ends as if nothing had happened.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use ebb_protocol::api::TargetDetail;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::persistent_platform::{PersistentPlatform, PlatformStep};
use crate::scene::{ExampleKind, ExampleRun};
use crate::workdir::{WAIT_TIMEOUT, Workdir};

/// How often a story is killed, unless `EBB_KILLS` says otherwise.
pub(crate) const KILLS: u32 = 20;
/// How often the story is killed that has the embedded table.
const FEW: u32 = 6;
/// Chooses the moments, unless `EBB_KILL_SEED` does.
const SEED: u64 = 20_261_121;
/// So many different states have to be found after that many kills of a story, and for each story of several: a crash
/// that always hits the same says little.
const STAGES: usize = 3;

/// A story that is killed.
pub(crate) struct KillScenario {
    pub(crate) example: ExampleKind,
    /// The DynamoDB that keeps the table, if it is not embedded.
    pub(crate) dynamodb: Option<String>,
}

/// Where a kill has hit: what the platform was about, what the server knew after the restart, and which units were how.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KillPoint {
    step: PlatformStep,
    phase: Option<String>,
    units: String,
}

impl fmt::Display for KillPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = self.phase.as_deref().unwrap_or("unknown");
        write!(f, "{:?}, then {phase}: {}", self.step, self.units)
    }
}

/// One instance: how long it took if it was over before the kill, and where the kill has hit.
struct KilledRun {
    whole: Option<Duration>,
    stage: KillPoint,
}

impl KillScenario {
    /// Runs an instance, with a kill at `moment` after its beginning, or at its end if that comes first.
    async fn live(&self, uid: &str, moment: Duration) -> KilledRun {
        let place = self.dynamodb.as_deref().map_or_else(Workdir::new, Workdir::on);
        let log = LogOnPanic { place: &place };
        let mut dev = place.dev().await;
        let scene = ExampleRun::new(&self.example, &place).await;
        let mut platform = PersistentPlatform::new(scene.sandbox, uid, scene.document.clone());
        let begun = Instant::now();
        let undisturbed = async {
            while platform.step != PlatformStep::Over {
                platform.advance(&dev).await.unwrap();
            }
        };
        tokio::select! {
            () = undisturbed => {}
            () = tokio::time::sleep(moment) => {}
        }
        let before = platform.step;
        let whole = (before == PlatformStep::Over).then(|| begun.elapsed());
        dev.kill().await;
        dev = place.dev_again().await;
        let stage = KillPoint::new(before, platform.look(&dev).await.unwrap().as_ref());
        while platform.step != PlatformStep::Over {
            if platform.step == PlatformStep::Delete && before < PlatformStep::Delete {
                let seen = platform.look(&dev).await.unwrap().unwrap();
                scene.made(&dev.s3, &seen).await;
            }
            platform.advance(&dev).await.unwrap();
        }
        scene.nothing_left(&dev.s3).await;
        place.no_script_runs().await;
        place.notified_in_order(uid).await;
        dev.stop().await;
        drop(log);
        KilledRun { whole, stage }
    }

    /// Kills `kills` instances. Returns where the kills have hit.
    pub(crate) async fn kill_often(self, kills: u32, seed: u64) -> Vec<KillPoint> {
        let name = self.example.name();
        let mut random = StdRng::seed_from_u64(seed);
        // Twice: the first instance warms up what is cached.
        let mut whole = WAIT_TIMEOUT;
        for number in 0..2 {
            let lived = self.live(&format!("whole-{number}"), whole).await;
            whole = whole.min(lived.whole.unwrap_or(whole));
        }
        println!("{name}: {whole:?} undisturbed; {kills} kills with EBB_KILL_SEED={seed}");
        let mut stages = Vec::new();
        for kill in 0..kills {
            // One in each of so many equal parts: random, and spread over the whole.
            let moment = whole.mul_f64((f64::from(kill) + random.random::<f64>()) / f64::from(kills));
            println!("{name}: kill {kill} after {moment:?}");
            let lived = self.live(&format!("killed-{kill}"), moment).await;
            println!("{name}: kill {kill}: {}", lived.stage);
            // A machine that has become faster would not be hit in the later parts.
            whole = whole.min(lived.whole.unwrap_or(whole));
            stages.push(lived.stage);
        }
        stages
    }
}

/// Prints the server's log when a test fails.
struct LogOnPanic<'a> {
    place: &'a Workdir,
}

impl Drop for LogOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.place.log());
        }
    }
}

impl KillPoint {
    fn new(step: PlatformStep, seen: Option<&TargetDetail>) -> Self {
        let runs = seen.into_iter().flat_map(|seen| &seen.runs).map(|run| {
            let units = run.units.iter().map(|unit| format!("{} {:?}", unit.key, unit.state));
            format!("{} {:?} ({})", run.hook, run.state, units.collect::<Vec<_>>().join(", "))
        });
        let units = runs.collect::<Vec<_>>().join("; ");
        Self { step, phase: seen.map(|seen| format!("{:?}", seen.info.phase)), units }
    }
}

/// That the kills have hit different moments.
pub(crate) fn hit_enough(examples: usize, stages: &[&KillPoint]) {
    let different: BTreeSet<_> = stages.iter().collect();
    assert!(different.len() >= STAGES * examples, "only {different:#?}");
}

/// Returns a number from the environment, or the default.
pub(crate) fn given<T: std::str::FromStr>(name: &str, default: T) -> T {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is a number"))
}

/// Chooses the moments.
pub(crate) fn seed() -> u64 {
    given("EBB_KILL_SEED", SEED)
}

#[tokio::test]
async fn s3_at_any_moment() {
    let story = KillScenario { example: ExampleKind::S3, dynamodb: None };
    hit_enough(1, &story.kill_often(FEW, seed()).await.iter().collect::<Vec<_>>());
}
