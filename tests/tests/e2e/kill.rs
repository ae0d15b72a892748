//! Kills `ebb dev` with SIGKILL at random times of a sandbox. After a restart, the sandbox ends as without a crash.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use ebb_protocol::api::TargetDetail;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::example_run::{ExampleKind, ExampleRun};
use crate::persistent_platform::{PersistentPlatform, PlatformStep};
use crate::workdir::{WAIT_TIMEOUT, Workdir};

/// Number of kills of a scenario. `EBB_KILLS` overrides it.
pub(crate) const KILLS: u32 = 20;
/// Number of kills of the scenario with the embedded table.
const EMBEDDED_KILLS: u32 = 6;
/// The seed of the random times. `EBB_KILL_SEED` overrides it.
const SEED: u64 = 20_261_121;
/// Minimum number of different kill points for each example. Kills at the same point would cover little.
const MIN_POINTS: usize = 3;

/// An example whose server is killed.
pub(crate) struct KillScenario {
    pub(crate) example: ExampleKind,
    /// The endpoint of DynamoDB. `None` selects the embedded table.
    pub(crate) dynamodb: Option<String>,
}

/// The state at a kill: the step of the platform, and the phase and units of the target after the restart.
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

/// The result of one instance.
struct KilledRun {
    /// The duration of the instance, if it ended before the kill.
    duration: Option<Duration>,
    point: KillPoint,
}

impl KillScenario {
    /// Runs an instance. Kills the server after `delay`, or at the end of the instance if that is earlier.
    async fn run_instance(&self, uid: &str, delay: Duration) -> KilledRun {
        let workdir = self.dynamodb.as_deref().map_or_else(Workdir::new, Workdir::on);
        let log = LogOnPanic { workdir: &workdir };
        let mut dev = workdir.dev().await;
        let example = ExampleRun::new(&self.example, &workdir).await;
        let mut platform = PersistentPlatform::new(example.sandbox, uid, example.document.clone(), example.changed());
        let started = Instant::now();
        let run_to_end = async {
            while platform.step != PlatformStep::Over {
                platform.advance(&dev).await.unwrap();
            }
        };
        tokio::select! {
            () = run_to_end => {}
            () = tokio::time::sleep(delay) => {}
        }
        let before = platform.step;
        let duration = (before == PlatformStep::Over).then(|| started.elapsed());
        dev.kill().await;
        dev = workdir.dev_again().await;
        let point = KillPoint::new(before, platform.get(&dev).await.unwrap().as_ref());
        while platform.step != PlatformStep::Over {
            if platform.step == PlatformStep::Delete && before < PlatformStep::Delete {
                let target = platform.get(&dev).await.unwrap().unwrap();
                example.assert_created(&dev.s3, &target).await;
            }
            platform.advance(&dev).await.unwrap();
        }
        example.assert_nothing_remains(&dev.s3).await;
        workdir.no_script_runs().await;
        workdir.notified_in_order(uid).await;
        dev.stop().await;
        drop(log);
        KilledRun { duration, point }
    }

    /// Kills `kills` instances. Returns the kill points.
    pub(crate) async fn kill_repeatedly(self, kills: u32, seed: u64) -> Vec<KillPoint> {
        let name = self.example.name();
        let mut random = StdRng::seed_from_u64(seed);
        // The first instance fills caches.
        let mut duration = WAIT_TIMEOUT;
        for number in 0..2 {
            let run = self.run_instance(&format!("complete-{number}"), duration).await;
            duration = duration.min(run.duration.unwrap_or(duration));
        }
        println!("{name}: {duration:?} without a kill; {kills} kills with EBB_KILL_SEED={seed}");
        let mut points = Vec::new();
        for kill in 0..kills {
            // A random time in each of `kills` equal parts of the duration.
            let delay = duration.mul_f64((f64::from(kill) + random.random::<f64>()) / f64::from(kills));
            println!("{name}: kill {kill} after {delay:?}");
            let run = self.run_instance(&format!("killed-{kill}"), delay).await;
            println!("{name}: kill {kill}: {}", run.point);
            // The duration shrinks if the machine becomes faster. Later kills would come after the end otherwise.
            duration = duration.min(run.duration.unwrap_or(duration));
            points.push(run.point);
        }
        points
    }
}

/// Prints the server's log when a test fails.
struct LogOnPanic<'a> {
    workdir: &'a Workdir,
}

impl Drop for LogOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.workdir.log());
        }
    }
}

impl KillPoint {
    fn new(step: PlatformStep, target: Option<&TargetDetail>) -> Self {
        let runs = target.into_iter().flat_map(|target| &target.runs).map(|run| {
            let units = run.units.iter().map(|unit| format!("{} {:?}", unit.key, unit.state));
            format!("{} {:?} ({})", run.hook, run.state, units.collect::<Vec<_>>().join(", "))
        });
        let units = runs.collect::<Vec<_>>().join("; ");
        Self { step, phase: target.map(|target| format!("{:?}", target.info.phase)), units }
    }
}

/// Checks that the kills were at enough different points.
pub(crate) fn assert_distinct(examples: usize, points: &[&KillPoint]) {
    let different: BTreeSet<_> = points.iter().collect();
    assert!(different.len() >= MIN_POINTS * examples, "only {different:#?}");
}

/// Returns a number from the environment, or the default.
pub(crate) fn number_from_env<T: std::str::FromStr>(name: &str, default: T) -> T {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is a number"))
}

/// Returns the seed of the random times.
pub(crate) fn seed() -> u64 {
    number_from_env("EBB_KILL_SEED", SEED)
}

#[tokio::test]
async fn the_s3_example_is_killed_at_random_times() {
    let scenario = KillScenario { example: ExampleKind::S3, dynamodb: None };
    assert_distinct(1, &scenario.kill_repeatedly(EMBEDDED_KILLS, seed()).await.iter().collect::<Vec<_>>());
}
