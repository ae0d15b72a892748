//! Explores the model, and checks that the removal of each rule results in a violation; see `ebb_tests::model`.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::Parser;
use ebb_tests::model::{RuleFinding, cases, check_rule, explore, rules};

const MAX_PATHS: usize = 3_000_000;

/// Explores every order of the steps of small graphs.
#[derive(Parser)]
#[command(name = "model")]
struct ModelArgs {
    /// Explore only the cases whose names contain this
    #[arg(long, default_value = "")]
    case: String,
    /// Also explore the large cases, which takes long
    #[arg(long)]
    large: bool,
    /// Check the removal of each rule instead. Works only in the copy that `cargo xtask verify rules` builds
    #[arg(long)]
    rules: bool,
    /// Check the removal of this rule only, and print the shortest schedule without it
    #[arg(long, requires = "rules")]
    rule: Option<String>,
    /// Number of concurrent cases
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    let arguments = ModelArgs::parse();
    let begun = Instant::now();
    let wrong = if arguments.rules { removals(&arguments) } else { whole(&arguments) };
    println!("{:.0} s", begun.elapsed().as_secs_f64());
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs `work` for each entry of `list` on several threads, and prints the texts as they are ready. Returns the sum of
/// the numbers.
fn each<T: Sync>(list: &[T], threads: usize, work: impl Fn(&T) -> (String, usize) + Sync) -> usize {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(one) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (text, broken) = work(one);
                    println!("{text}");
                    *wrong.lock().expect("no panic while it is held") += broken;
                }
            });
        }
    });
    wrong.into_inner().expect("no thread panicked")
}

fn whole(arguments: &ModelArgs) -> usize {
    // A named case is explored even if it is large.
    let large = arguments.large || !arguments.case.is_empty();
    let mut list = cases().expect("`cases.yaml` has the format of cases");
    list.retain(|(is_large, case)| (large || !is_large) && case.name.contains(&arguments.case));
    // The threads end at about the same time.
    list.sort_by_key(|(is_large, _)| !is_large);
    let states = AtomicUsize::new(0);
    let paths = AtomicUsize::new(0);
    let wrong = each(&list, arguments.threads, |(_, case)| {
        let begun = Instant::now();
        let explored = explore(case, MAX_PATHS);
        states.fetch_add(explored.states, Ordering::Relaxed);
        paths.fetch_add(explored.paths, Ordering::Relaxed);
        let mut text = format!(
            "{}: {} states, {} paths, {} to the end of the instance, longest {}, {:.1} s",
            case.name,
            explored.states,
            explored.paths,
            explored.ends,
            explored.longest,
            begun.elapsed().as_secs_f64()
        );
        let broken = usize::from(explored.violation.is_some() || !explored.complete);
        match &explored.violation {
            Some(violation) => text.push_str(&format!("\nBROKEN: {violation}")),
            None if !explored.complete => text.push_str("\nNOT WHOLE: more paths than allowed"),
            None => {}
        }
        (text, broken)
    });
    println!("{} cases, {} states, {} paths, {wrong} broken", list.len(), states.into_inner(), paths.into_inner());
    wrong
}

fn removals(arguments: &ModelArgs) -> usize {
    let mut list = rules().expect("`rules.yaml` has the format of rules");
    list.retain(|rule| arguments.rule.as_ref().is_none_or(|name| rule == name));
    let wrong = each(&list, arguments.threads, |rule| {
        let begun = Instant::now();
        let noticed = check_rule(rule, MAX_PATHS);
        let seconds = begun.elapsed().as_secs_f64();
        match noticed {
            Err(error) => (format!("NOT NOTICED: {error} ({seconds:.1} s)"), 1),
            Ok(RuleFinding { case, violation, states }) if arguments.rule.is_some() => {
                (format!("without {rule}, {case}: {states} states, {seconds:.1} s\n  {violation}"), 0)
            }
            Ok(RuleFinding { case, violation, states }) => {
                let (what, steps, unusual) = (&violation.promise, violation.schedule.len(), violation.unusual);
                let text = format!(
                    "without {rule}, {case}: {what} ({steps} steps, {unusual} of them unusual; {states} states, {seconds:.1} s)"
                );
                (text, 0)
            }
        }
    });
    println!("{} rules left out, {wrong} not noticed", list.len());
    wrong
}
