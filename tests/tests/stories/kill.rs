//! `kill -9` of `ebb dev` at any moment of a sandbox's life: after a restart it ends as if nothing had happened.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use ebb_wire::api::TargetDetail;
use ebb_wire::lifecycle::{GONE, OutputValue, READY};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::place::{Place, example, until};
use crate::platform::{Platform, Step};
use crate::server::{Server, USER};
use crate::{postgres, s3};

/// How often each story is killed.
const KILLS: u32 = 20;
/// Chooses the moments, unless `EBB_KILL_SEED` does.
const SEED: u64 = 20_261_121;
/// So many different states have to be found after the restarts: a crash that always hits the same says little.
const STAGES: usize = 3;

/// A story that is killed.
struct Story {
    example: &'static str,
    sandbox: &'static str,
    document: String,
    /// The output that names what was made.
    made: (&'static str, &'static str),
    server: Option<Server>,
}

impl Story {
    /// That exactly one was made, with everything in it.
    async fn made(&self, s3: &str, seen: &TargetDetail) {
        let (resource, output) = self.made;
        let made = match &seen.resources[resource].outputs[output] {
            OutputValue::Value(value) => value.as_str().unwrap(),
            other => panic!("{other:?}"),
        };
        match &self.server {
            Some(server) => server.holds_the_seed(made),
            None => s3::holds_the_seed(s3, made).await,
        }
    }

    async fn nothing_left(&self, s3: &str) {
        let left = match &self.server {
            Some(server) => server.databases(),
            None => s3::buckets(s3).await,
        };
        assert_eq!(left, [""; 0]);
    }

    /// A whole life, with a kill at `moment` after its beginning, or at its end if that comes first. Gives how long it
    /// took if it was over before, and what was found after the restart.
    async fn live(&self, uid: &str, moment: Duration) -> (Option<Duration>, String) {
        let place = Place::new();
        let told = Told { place: &place };
        let mut dev = place.dev().await;
        place
            .ebb(&["plugin", "apply", "-f", &example(&format!("{}/plugin.yaml", self.example))])
            .await
            .done();
        let mut platform = Platform::new(self.sandbox, uid, self.document.clone());
        let begun = Instant::now();
        let undisturbed = async {
            while platform.step != Step::Over {
                platform.advance(&dev).await.unwrap();
            }
        };
        tokio::select! {
            () = undisturbed => {}
            () = tokio::time::sleep(moment) => {}
        }
        let before = platform.step;
        let whole = (before == Step::Over).then(|| begun.elapsed());
        dev.kill().await;
        dev = place.dev_again().await;
        let stage = format!("{before:?}, then {}", stands(platform.look(&dev).await.unwrap().as_ref()));
        while platform.step != Step::Over {
            if platform.step == Step::Delete && before < Step::Delete {
                let seen = platform.look(&dev).await.unwrap().unwrap();
                self.made(&dev.s3, &seen).await;
            }
            platform.advance(&dev).await.unwrap();
        }
        self.nothing_left(&dev.s3).await;
        place.no_script_runs().await;
        // A telling whose acknowledgement was lost is repeated, but a later one is never overtaken.
        let told_of = until("the last outcome", async || {
            let told = place.outcomes(uid);
            told.iter().any(|told| told == GONE).then_some(told)
        })
        .await;
        let mut different = told_of.clone();
        different.dedup();
        assert_eq!(different, [READY, GONE], "{told_of:?}");
        dev.stop().await;
        drop(told);
        (whole, stage)
    }

    async fn kill_often(self) {
        let seed = match std::env::var("EBB_KILL_SEED") {
            Ok(seed) => seed.parse().expect("EBB_KILL_SEED is a number"),
            Err(_) => SEED,
        };
        let mut random = StdRng::seed_from_u64(seed);
        // Twice: the first life warms up what is cached.
        let mut whole = crate::place::PATIENCE;
        for life in 0..2 {
            let (took, _) = self.live(&format!("whole-{life}"), whole).await;
            whole = whole.min(took.unwrap_or(whole));
        }
        println!("{}: {whole:?} undisturbed; {KILLS} kills with EBB_KILL_SEED={seed}", self.example);
        let mut stages = BTreeSet::new();
        for kill in 0..KILLS {
            // One in each of so many equal parts: random, and spread over the whole.
            let moment = whole.mul_f64((f64::from(kill) + random.random::<f64>()) / f64::from(KILLS));
            println!("kill {kill} after {moment:?}");
            let (over, stage) = self.live(&format!("killed-{kill}"), moment).await;
            println!("kill {kill}: {stage}");
            // A machine that has become faster would not be hit in the later parts.
            whole = whole.min(over.unwrap_or(whole));
            stages.insert(stage);
        }
        assert!(stages.len() >= STAGES, "only {stages:#?}");
    }
}

/// Prints the server's log when a test fails.
struct Told<'a> {
    place: &'a Place,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.place.log());
        }
    }
}

/// Where a target stands, in one line.
fn stands(seen: Option<&TargetDetail>) -> String {
    let Some(seen) = seen else { return "unknown".to_owned() };
    let runs = seen.runs.iter().map(|run| {
        let units = run.units.iter().map(|unit| format!("{} {:?}", unit.key, unit.state));
        format!("{} {:?} ({})", run.event, run.state, units.collect::<Vec<_>>().join(", "))
    });
    format!("{:?}: {}", seen.info.phase, runs.collect::<Vec<_>>().join("; "))
}

#[tokio::test]
async fn s3_at_twenty_moments() {
    let story = Story {
        example: "s3",
        sandbox: s3::SANDBOX,
        document: fs::read_to_string(example("s3/sandbox.yaml")).unwrap(),
        made: ("files", "provision.bucket-name"),
        server: None,
    };
    story.kill_often().await;
}

#[tokio::test]
async fn postgres_at_twenty_moments() {
    let server = Server::start().await;
    let document = fs::read_to_string(example("postgres/sandbox.yaml")).unwrap();
    let values = [("@{host}", "127.0.0.1"), ("@{port}", &server.port.to_string()), ("@{user}", USER)];
    let document = values.iter().fold(document, |text, (name, value)| text.replace(name, value));
    let story = Story {
        example: "postgres",
        sandbox: postgres::SANDBOX,
        document,
        made: ("db", "provision.dbname"),
        server: Some(server),
    };
    story.kill_often().await;
}
