//! Many simulations, several at a time.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use ebb_tests::simulation::{FaultKind, SimReport, TraceMode, simulate};

/// Number of failing simulations after which no further one is started.
const MAX_FAILED: usize = 5;
/// Number of instances from which on every kind of fault must have happened.
const ALL_REACHED: u64 = 2_000;

#[derive(Default)]
struct SimulationTotals {
    simulations: u64,
    instances: u64,
    attempts: u64,
    invocations: u64,
    reached: Vec<u64>,
    /// The closing events of sources with lists.
    closings: u64,
    failed: Vec<(u64, SimReport)>,
}

impl SimulationTotals {
    fn add(&mut self, seed: u64, report: SimReport) {
        self.simulations += 1;
        self.instances += report.instances;
        self.attempts += report.attempts;
        self.invocations += report.invocations;
        self.closings += report.injection_points[FaultKind::ClosingLost as usize];
        self.reached.resize(report.injected.len(), 0);
        for (sum, reached) in self.reached.iter_mut().zip(&report.injected) {
            *sum += reached;
        }
        if !report.violations.is_empty() {
            self.failed.push((seed, report));
        }
    }
}

/// Runs simulations until `instances` instances have ended, prints their results, and fails if one violates a promise
/// or a kind of fault was never reached.
pub(crate) fn simulate_all(instances: u64, seed: u64, threads: usize, excluded: &[FaultKind]) -> ExitCode {
    println!("from seed {seed}");
    let begun = Instant::now();
    let (sum, next, over) = (Mutex::new(SimulationTotals::default()), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let seed = seed.wrapping_add(next.fetch_add(1, Ordering::Relaxed));
                    let report = simulate(seed, excluded, TraceMode::Off);
                    let mut sum = sum.lock().expect("no panic while it is held");
                    sum.add(seed, report);
                    if sum.instances >= instances || sum.failed.len() >= MAX_FAILED {
                        over.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let sum = sum.into_inner().expect("no panic while it is held");
    let seconds = begun.elapsed().as_secs_f64();
    for (kind, reached) in FaultKind::all().iter().zip(&sum.reached) {
        println!("{kind:<22}{reached:>9}");
    }
    println!(
        "\n{} instances in {} simulations, {} attempts, {} invocations, {seconds:.1} s, {:.0} instances per second",
        sum.instances,
        sum.simulations,
        sum.attempts,
        sum.invocations,
        sum.instances as f64 / seconds
    );
    let missed =
        FaultKind::all().iter().zip(&sum.reached).filter(|(kind, reached)| **reached == 0 && !excluded.contains(kind));
    let mut missed: Vec<String> = missed.map(|(kind, _)| kind.to_string()).collect();
    let lost = sum.reached[FaultKind::ClosingLost as usize];
    if !excluded.contains(&FaultKind::ClosingLost) && !(20..=40).contains(&(100 * lost / sum.closings.max(1))) {
        missed.push(format!("30 % of closing events, but {lost} of {}", sum.closings));
    }
    let unreached = sum.failed.is_empty() && instances >= ALL_REACHED && !missed.is_empty();
    if unreached {
        println!("never reached: {}", missed.join(", "));
    }
    for (seed, report) in &sum.failed {
        println!("\nsimulation {seed}:");
        for wrong in report.violations.iter().take(6) {
            println!("  {wrong}");
        }
        println!("  {}", command(*seed, excluded));
    }
    if sum.failed.is_empty() && !unreached { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Excludes kinds of faults as long as the simulation still fails. Returns the command that repeats it.
fn command(seed: u64, excluded: &[FaultKind]) -> String {
    let mut least = excluded.to_vec();
    let reached = simulate(seed, excluded, TraceMode::Off).injected;
    for (kind, reached) in FaultKind::all().iter().zip(reached) {
        let without = [least.clone(), vec![*kind]].concat();
        if reached > 0 && !simulate(seed, &without, TraceMode::Off).violations.is_empty() {
            least = without;
        }
    }
    let names: Vec<String> = least.iter().map(FaultKind::to_string).collect();
    let without = if names.is_empty() { String::new() } else { format!(" --without {}", names.join(",")) };
    format!("cargo xtask verify simulation -- --seed {seed} --trace{without}")
}
