//! Hostile input that coverage guides.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::run::{cargo, command, root, run};

/// What makes a stable compiler count which code an input reaches, for libFuzzer to read. No sanitizer, which a stable
/// compiler has not: nearly everything here is safe code, and what it does wrong it says by a panic.
const FLAGS: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// What one input may take, in this build: seconds and MiB.
const TIMEOUT: &str = "-timeout=3";
const MEMORY: &str = "-rss_limit_mb=1024";
const ALLOCATION: &str = "-malloc_limit_mb=256";
const MAX_LEN: &str = "-max_len=16384";

/// Runs each of `targets`, or all if there is none, for so many seconds. What breaks a promise is written to `tests/fuzz/crashes/TARGET/`, where every later
/// test run tries it; what reaches new code is kept in `target/fuzz/corpus/`, where the next run goes on.
///
/// # Errors
/// When a target is not known, something does not compile, or an input breaks a promise.
pub(crate) fn all(seconds: u32, targets: &[OsString]) -> anyhow::Result<()> {
    let place = root().join("tests/fuzz");
    let known = names(&place.join("seeds"))?;
    let mut chosen = Vec::new();
    for target in targets {
        let found = known.iter().find(|name| target == name.as_str());
        chosen.push(found.with_context(|| format!("there is no target {target:?}; there is {}", known.join(", ")))?);
    }
    if chosen.is_empty() {
        chosen.extend(&known);
    }
    let program = build()?;
    let broken: Vec<&str> = chosen
        .iter()
        .filter(|target| {
            println!("== {target}");
            let done = one(&place, &program, target, seconds);
            done.inspect_err(|error| eprintln!("== {target}: {error:#}")).is_err()
        })
        .map(|target| target.as_str())
        .collect();
    ensure!(broken.is_empty(), "promises are broken: {}", broken.join(", "));
    let chosen: Vec<&str> = chosen.into_iter().map(String::as_str).collect();
    println!("== no promise was broken in {seconds} s of each of {}", chosen.join(", "));
    Ok(())
}

fn one(place: &Path, program: &Path, target: &str, seconds: u32) -> anyhow::Result<()> {
    let corpus = directory().join("corpus").join(target);
    std::fs::create_dir_all(&corpus)?;
    let crashes = place.join("crashes").join(target);
    std::fs::create_dir_all(&crashes)?;
    let mut artifacts = std::ffi::OsString::from("-artifact_prefix=");
    artifacts.push(&crashes);
    artifacts.push("/");
    let mut dictionary = std::ffi::OsString::from("-dict=");
    dictionary.push(place.join("words.dict"));
    let mut fuzz: Command = command(program);
    fuzz.env("EBB_FUZZ_TARGET", target)
        .args([TIMEOUT, MEMORY, ALLOCATION, MAX_LEN, "-print_final_stats=1", "-verbosity=0"])
        .arg(format!("-max_total_time={seconds}"))
        .args([artifacts, dictionary])
        .args([&corpus, &place.join("seeds").join(target), &crashes]);
    run(&mut fuzz)
}

/// Builds the program of the targets apart from everything else, for its flags differ.
fn build() -> anyhow::Result<PathBuf> {
    let host = host()?;
    let mut build = cargo();
    build
        .args(["build", "--package", "ebb-fuzz", "--bin", "fuzz", "--features", "coverage", "--profile", "fuzz"])
        // With a target named, build scripts and macros are compiled without the flags.
        .args(["--target", &host, "--target-dir"])
        .arg(directory())
        .env("RUSTFLAGS", FLAGS.join(" "));
    run(&mut build)?;
    Ok(directory().join(host).join("fuzz/fuzz"))
}

fn directory() -> PathBuf {
    root().join("target/fuzz")
}

/// The compiler's own target.
fn host() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = command(rustc).arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().find_map(|line| line.strip_prefix("host: ")) {
        Some(host) => Ok(host.to_owned()),
        None => bail!("rustc does not say its host: {text}"),
    }
}

/// The names of the folders in a folder, in order.
fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
