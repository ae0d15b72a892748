//! `verify fuzz`: hostile input, guided by coverage.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::run::{cargo, command, host, root, run};

/// Flags with which a stable compiler counts executed code for libFuzzer. Sanitizers need a nightly compiler. They are
/// not used, because nearly all code here is safe and panics on errors.
const FLAGS: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Limits of one input in this build, in seconds, MiB, MiB and bytes.
const LIMITS: [&str; 4] = ["-timeout=3", "-rss_limit_mb=1024", "-malloc_limit_mb=256", "-max_len=16384"];

/// Runs each of `targets`, or all if there is none, for `seconds`.
///
/// Inputs that violate a property are written to `tests/fuzz/crashes/TARGET/`, and every later test runs them. Inputs
/// that reach new code are kept in `target/fuzz/corpus/`.
pub(crate) fn all(seconds: u32, targets: &[OsString]) -> anyhow::Result<()> {
    let folder = root().join("tests/fuzz");
    let known = names(&folder.join("seeds"))?;
    let find = |target: &OsString| {
        let found = known.iter().map(String::as_str).find(|name| target == *name);
        found.with_context(|| format!("unknown target {target:?}; targets: {}", known.join(", ")))
    };
    let named: Vec<&str> = targets.iter().map(find).collect::<anyhow::Result<_>>()?;
    let chosen = if named.is_empty() { known.iter().map(String::as_str).collect() } else { named };
    let program = build()?;
    let mut broken = Vec::new();
    for &target in &chosen {
        println!("== {target}");
        if let Err(error) = one(&folder, &program, target, seconds) {
            eprintln!("== {target}: {error:#}");
            broken.push(target);
        }
    }
    ensure!(broken.is_empty(), "promises are broken: {}", broken.join(", "));
    println!("== no promise was broken in {seconds} s of each of {}", chosen.join(", "));
    Ok(())
}

fn one(folder: &Path, program: &Path, target: &str, seconds: u32) -> anyhow::Result<()> {
    let corpus = directory().join("corpus").join(target);
    fs::create_dir_all(&corpus)?;
    let crashes = folder.join("crashes").join(target);
    fs::create_dir_all(&crashes)?;
    let artifacts = format!("-artifact_prefix={}/", crashes.display());
    let dictionary = format!("-dict={}", folder.join("words.dict").display());
    let mut fuzz = command(program);
    fuzz.env("EBB_FUZZ_TARGET", target)
        .args(LIMITS)
        .args(["-print_final_stats=1", "-verbosity=0"])
        .arg(format!("-max_total_time={seconds}"))
        .args([artifacts, dictionary])
        .args([&corpus, &folder.join("seeds").join(target), &crashes]);
    run(&mut fuzz)
}

/// Builds the program of the targets in a separate folder, because its flags differ.
fn build() -> anyhow::Result<PathBuf> {
    let host = host()?;
    let mut build = cargo();
    build
        .args(["build", "--package", "ebb-fuzz", "--bin", "fuzz", "--features", "coverage", "--profile", "fuzz"])
        // With a named target, build scripts and macros are compiled without the flags.
        .args(["--target", &host, "--target-dir"])
        .arg(directory())
        .env("RUSTFLAGS", FLAGS.join(" "));
    run(&mut build)?;
    Ok(directory().join(host).join("fuzz/fuzz"))
}

fn directory() -> PathBuf {
    root().join("target/fuzz")
}

fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
