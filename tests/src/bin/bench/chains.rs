//! Measures a chain of scripts in a real cluster: the time from the end of a script to the next Job, and the total time
//! compared with the same scripts as bare Jobs, which a shell starts one after the other.
//!
//! Progress is printed to standard error, figures to standard output.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};
use ebb_protocol::lifecycle::OutputValue;
use ebb_tests::platform::named;
use ebb_tests::workdir::Workdir;

mod watch;

use watch::JobWatch;

/// The size of the chain, and the cluster.
#[derive(clap::Args)]
pub(crate) struct ChainsArgs {
    /// Scripts in a chain
    #[arg(long, default_value_t = 10)]
    units: usize,
    /// Number of rounds. An additional first round warms up and does not count
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The kubeconfig of the cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The address of this machine for pods of the cluster
    #[arg(long, value_name = "ADDRESS")]
    advertise_address: String,
    /// An image with the entrypoint
    #[arg(long, value_name = "IMAGE")]
    entrypoint_image: String,
    /// An image with a shell and a `date` that prints milliseconds
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Path of kubectl
    #[arg(long, value_name = "PATH")]
    kubectl: PathBuf,
}

impl ChainsArgs {
    /// Returns a kubectl command in the namespace of units.
    fn kubectl(&self) -> Command {
        let mut kubectl = Command::new(&self.kubectl);
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", UNITS]);
        kubectl.stdin(Stdio::null());
        kubectl
    }
}

/// The namespace of units.
const UNITS: &str = "chains";

/// The measurements of one round.
struct ChainRound {
    /// From the end of a script to the Job of the next one.
    gaps: Vec<Duration>,
    /// From the request for a sandbox until it is ready.
    chain: Duration,
    /// The time of the same scripts as bare Jobs.
    bare: Duration,
}

/// Runs the chain in all rounds.
pub(crate) async fn chains(arguments: &ChainsArgs) -> anyhow::Result<()> {
    ensure!(arguments.units > 1, "a chain has at least two units");
    let kubeconfig = arguments.kubeconfig.to_string_lossy();
    let place = Workdir::with(&["--kubeconfig", &kubeconfig, "--advertise-address", &arguments.advertise_address]);
    let image = &arguments.entrypoint_image;
    let place = place.and(&["--advertise-port", "7881", "--entrypoint-image", image, "--unit-namespace", UNITS]);
    let dev = place.dev().await;
    place.publish("chain@1.0.0", &plugin(arguments.units, &arguments.image)).await;
    let mut rounds = Vec::new();
    for round in 0..=arguments.rounds {
        eprintln!("round {round} of {}", arguments.rounds);
        let measured = measured(&place, round, arguments).await?;
        if round > 0 {
            rounds.push(measured);
        }
    }
    dev.stop().await;
    report(arguments, &rounds);
    Ok(())
}

async fn measured(place: &Workdir, round: usize, arguments: &ChainsArgs) -> anyhow::Result<ChainRound> {
    let name = format!("chain-{round}");
    let watch = JobWatch::start(arguments)?;
    let began = Instant::now();
    place.apply("sandbox", &named("Sandbox", &name, "resources: {it: {plugin: chain@1.0.0}}\n")).await;
    let chain = began.elapsed();
    let jobs = watch.stop(arguments.units)?;
    let ends = ends(place, &name, arguments.units).await?;
    let gaps = ends.iter().zip(&jobs[1..]).map(|(end, job)| {
        // Both clocks are those of this machine.
        job.duration_since(*end).context("a Job exists before the end of the previous script")
    });
    let gaps = gaps.collect::<anyhow::Result<Vec<_>>>()?;
    place.ebb(&["delete", "sandbox", &name]).await.done();
    Ok(ChainRound { gaps, chain, bare: bare(arguments)? })
}

/// Returns the end times of the scripts of a sandbox, in order.
async fn ends(place: &Workdir, name: &str, units: usize) -> anyhow::Result<Vec<SystemTime>> {
    let outputs = place.get(name).await.resources.remove("it").context("the resource")?.outputs;
    let end = |unit| {
        let Some(OutputValue::Value(value)) = outputs.get(&format!("end{unit}")) else { bail!("{outputs:?}") };
        let millis = value.as_str().and_then(|text| text.trim().parse().ok()).context("a script has no end time")?;
        Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
    };
    (0..units).map(end).collect()
}

/// The script of each unit. It writes its end time, in milliseconds since 1970.
const SCRIPT: &str = "date +%s%3N >/tmp/end";

/// Returns the rest of a plugin in which each unit waits for the previous one.
fn plugin(units: usize, image: &str) -> String {
    let mut text = format!("runners:\n  it: {{image: \"{image}\"}}\npreStart:\n");
    let mut outputs = String::from("outputs:\n");
    for unit in 0..units {
        let inputs = match unit.checked_sub(1) {
            Some(before) => format!("    inputs: {{before: \"${{units.u{before}.outputs.end}}\"}}\n"),
            None => String::new(),
        };
        let _ = write!(
            text,
            "  u{unit}:\n    pod:\n      runner: it\n      script: |\n        #!/bin/sh -eu\n        {SCRIPT}\n{inputs}    \
             outputs: {{end: {{file: /tmp/end}}}}\n"
        );
        let _ = writeln!(outputs, "  end{unit}: ${{units.u{unit}.outputs.end}}");
    }
    text + &outputs
}

/// Creates one Job after the other and waits for each.
const LOOP: &str = r#"
set -eu
n=0
while [ "$n" -lt "$COUNT" ]; do
    "$KUBECTL" --namespace "$NAMESPACE" create job "bare-$n" --image="$IMAGE" -- sh -c "$SCRIPT" >/dev/null
    "$KUBECTL" --namespace "$NAMESPACE" wait --for=condition=complete --timeout=60s "job/bare-$n" >/dev/null
    n=$((n + 1))
done
"#;

/// Runs the same scripts without Ebb and returns the duration, without the removal of the Jobs.
fn bare(arguments: &ChainsArgs) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut shell = Command::new("sh");
    shell.args(["-c", LOOP]).env("COUNT", arguments.units.to_string()).env("IMAGE", &arguments.image);
    shell.env("SCRIPT", SCRIPT).env("KUBECONFIG", &arguments.kubeconfig).stdin(Stdio::null());
    shell.env("KUBECTL", &arguments.kubectl).env("NAMESPACE", UNITS);
    let status = shell.status().context("cannot start a shell")?;
    ensure!(status.success(), "the loop of the shell failed: {status}");
    let took = began.elapsed();
    let removed = arguments.kubectl().args(["delete", "jobs", "--all", "--wait"]).output()?;
    ensure!(removed.status.success(), "the bare Jobs were not deleted");
    Ok(took)
}

fn report(arguments: &ChainsArgs, rounds: &[ChainRound]) {
    let mut gaps: Vec<Duration> = rounds.iter().flat_map(|round| round.gaps.iter().copied()).collect();
    gaps.sort_unstable();
    let of_all = |part: f64| gaps[((gaps.len() - 1) as f64 * part).round() as usize];
    println!(
        "from the end of a script to the Job of the next: median {} ms, 90 % below {} ms, longest {} ms ({} measured)",
        of_all(0.5).as_millis(),
        of_all(0.9).as_millis(),
        of_all(1.0).as_millis(),
        gaps.len()
    );
    for (number, round) in rounds.iter().enumerate() {
        println!("round {}: chain {:.2?}, bare Jobs {:.2?}", number + 1, round.chain, round.bare);
    }
    let sum = |time: fn(&ChainRound) -> Duration| rounds.iter().map(time).sum::<Duration>().as_secs_f64();
    let ratio = sum(|round| round.chain) / sum(|round| round.bare);
    println!("{} scripts in a chain take {ratio:.2} times as long as bare Jobs", arguments.units);
}
