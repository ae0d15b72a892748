//! Measurements of inputs.
//!
//! `measure TARGET` runs one input from standard input. It prints the peak memory of the process, in KiB, and the time,
//! in milliseconds.
//!
//! `measure` compiles the most expensive documents and prints their times.
#![allow(clippy::print_stdout, reason = "it is what it is for")]

use std::io::Read as _;
use std::time::Instant;

use ebb_fuzz::FuzzTarget;

fn main() {
    match std::env::args().nth(1) {
        Some(name) => one_input(FuzzTarget::named(&name).expect("the argument names a target")),
        None => worst_documents(),
    }
}

fn one_input(target: FuzzTarget) {
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).expect("the input can be read");
    let began = Instant::now();
    target.run_whole(&input);
    let took = began.elapsed().as_millis();
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says what a process has");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("and what it had");
    let memory = line.trim().strip_suffix(" kB").expect("in KiB");
    println!("{} {took}", memory.trim());
}

fn worst_documents() {
    for case in ebb_fuzz::worst::cases() {
        let began = Instant::now();
        let made = case.compile();
        let took = began.elapsed().as_millis();
        let code = made.as_ref().err().and_then(|errors| errors.iter().next()).map(|error| error.code);
        assert_eq!(code, case.refused, "{}", case.name);
        let end = match made {
            Ok(units) => format!("{units} units"),
            Err(errors) => format!("{} errors, {}", errors.len(), code.unwrap_or_default()),
        };
        println!("{:<34} {took:>6} ms, {end}", case.name);
    }
}
