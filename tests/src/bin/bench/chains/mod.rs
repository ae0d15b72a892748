//! What a chain of scripts costs in a real cluster: how long after the end of one the Job of the next is there, and how
//! long the whole takes beside the same scripts as bare Jobs, one after the other by a shell.
//!
//! Progress goes to standard error, the figures to standard output.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use comfy_table::Table;
use serde_json::Value;

mod bare;
mod documents;
mod watch;

use watch::JobWatch;

use crate::server::DevServer;

/// The chain and the cluster.
#[derive(clap::Args)]
pub(crate) struct ChainsArgs {
    /// Scripts in a chain
    #[arg(long, default_value_t = 10)]
    units: usize,
    /// How often; the first round warms up and does not count
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
    /// An image with a shell and a date that knows milliseconds
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// kubectl
    #[arg(long, value_name = "PATH")]
    kubectl: PathBuf,
}

impl ChainsArgs {
    /// kubectl in the namespace of units.
    fn kubectl(&self) -> Command {
        let mut kubectl = Command::new(&self.kubectl);
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", UNITS]);
        kubectl.stdin(Stdio::null());
        kubectl
    }
}

/// The namespace of units.
const UNITS: &str = "chains";

/// What one round has measured.
struct ChainRound {
    /// From the end of a script to the Job of the next one.
    gaps: Vec<Duration>,
    /// From the request for a sandbox to the word that it is ready.
    chain: Duration,
    /// The same scripts as bare Jobs.
    bare: Duration,
}

/// Runs the chain in all rounds.
pub(crate) async fn chains(arguments: &ChainsArgs) -> anyhow::Result<()> {
    ensure!(arguments.units > 1, "a chain has two units at least");
    let server = DevServer::start(None, |dev| {
        dev.arg("--kubeconfig").arg(&arguments.kubeconfig).args(["--advertise-address", &arguments.advertise_address]);
        dev.args([
            "--advertise-port",
            "7881",
            "--entrypoint-image",
            &arguments.entrypoint_image,
            "--unit-namespace",
            UNITS,
        ])
    });
    let server = server.await?;
    server.apply("plugin", &documents::plugin(arguments.units, &arguments.image)).await?;
    let mut rounds = Vec::new();
    for round in 0..=arguments.rounds {
        eprintln!("round {round} of {}", arguments.rounds);
        let measured = measured(&server, round, arguments).await?;
        if round > 0 {
            rounds.push(measured);
        }
    }
    server.stop().await?;
    report(arguments, &rounds);
    Ok(())
}

async fn measured(server: &DevServer, round: usize, arguments: &ChainsArgs) -> anyhow::Result<ChainRound> {
    let name = format!("chain-{round}");
    let watch = JobWatch::start(arguments)?;
    let began = Instant::now();
    server.apply("sandbox", &documents::sandbox(&name)).await?;
    let chain = began.elapsed();
    let jobs = watch.stop(arguments.units)?;
    let ends = ends(server, &name, arguments.units).await?;
    let gaps = ends.iter().zip(&jobs[1..]).map(|(end, job)| {
        // A clock of its own would be another machine's.
        job.duration_since(*end).context("a Job was there before the script that it follows had ended")
    });
    let gaps = gaps.collect::<anyhow::Result<Vec<_>>>()?;
    server.ask(&["sandbox", "delete", &name]).await?;
    Ok(ChainRound { gaps, chain, bare: bare::chain(arguments)? })
}

/// Returns when the scripts of a sandbox have ended, in their order.
async fn ends(server: &DevServer, name: &str, units: usize) -> anyhow::Result<Vec<SystemTime>> {
    let seen: Value = serde_json::from_str(&server.ask(&["sandbox", "get", name, "-o", "json"]).await?)?;
    let end = |unit| {
        let text = seen["resources"]["it"]["outputs"][format!("end{unit}")]["value"].as_str();
        let millis = text.and_then(|text| text.trim().parse().ok()).context("a script says when it ends")?;
        Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
    };
    (0..units).map(end).collect()
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
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).force_no_tty();
    table.set_header(["round", "chain, s", "bare Jobs, s", "ratio"]);
    for (number, round) in rounds.iter().enumerate() {
        table.add_row([
            (number + 1).to_string(),
            format!("{:.2}", round.chain.as_secs_f64()),
            format!("{:.2}", round.bare.as_secs_f64()),
            format!("{:.2}", round.chain.as_secs_f64() / round.bare.as_secs_f64()),
        ]);
    }
    let sum = |time: fn(&ChainRound) -> Duration| rounds.iter().map(time).sum::<Duration>().as_secs_f64();
    let ratio = sum(|round| round.chain) / sum(|round| round.bare);
    println!("{table}\n{} scripts in a chain take {ratio:.2} times as long as bare Jobs", arguments.units);
}
