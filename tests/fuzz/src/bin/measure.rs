//! `measure TARGET` runs one input from standard input. It prints the peak memory of the process, in KiB, and the time, in
//! milliseconds.
#![allow(clippy::print_stdout, reason = "it is what it is for")]

use std::io::Read as _;
use std::time::Instant;

use ebb_fuzz::FuzzTarget;

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let target = FuzzTarget::named(&name).expect("the argument names a target");
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
