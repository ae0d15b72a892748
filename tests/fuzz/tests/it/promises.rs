//! Tests of the targets with earlier failures, with seeds and with a fixed number of mutations.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use ebb_fuzz::{FuzzTarget, TARGETS};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The number of mutations per target.
const CASES: u32 = 400;

/// Returns the inputs of a target in a folder of the package; none if the folder is missing.
fn inputs(folder: &str, target: FuzzTarget) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(target.name);
    let Ok(entries) = fs::read_dir(&folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), fs::read(file).unwrap())).collect()
}

/// Returns the entries of libFuzzer's dictionary: lines of quoted bytes.
fn words() -> Vec<Vec<u8>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("words.dict")).unwrap();
    let bytes = |line: &str| -> Vec<u8> {
        // An entry is a JSON string of ASCII, in which `\xNN` is a byte.
        let characters: String = serde_json::from_str(&line.replace("\\x", "\\u00")).unwrap();
        characters.chars().map(|character| u8::try_from(character).unwrap()).collect()
    };
    text.lines().filter(|line| !line.starts_with('#')).map(bytes).collect()
}

#[test]
fn earlier_failures_stay_fixed() {
    let mut broken = Vec::new();
    let mut tried = 0;
    for target in TARGETS {
        for (file, input) in inputs("crashes", target).into_iter().chain(inputs("seeds", target)) {
            tried += 1;
            if catch_unwind(|| target.run(&input)).is_err() {
                broken.push(file.display().to_string());
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(tried > TARGETS.len());
}

/// Returns seeds of a target with pieces inserted, removed, doubled and mixed with other seeds.
fn mutated(target: FuzzTarget) -> impl Strategy<Value = Vec<u8>> {
    let seeds: Vec<Vec<u8>> =
        inputs("seeds", target).into_iter().chain(inputs("crashes", target)).map(|(_, input)| input).collect();
    let words = words();
    let index = any::<prop::sample::Index>;
    let piece = prop_oneof![
        4 => prop::sample::select(words).boxed(),
        2 => prop::collection::vec(any::<u8>(), 0..6).boxed(),
        1 => (prop::sample::select(seeds.clone()), index(), 0_usize..64)
            .prop_map(|(other, at, length)| {
                let at = at.index(other.len());
                other[at..(at + length).min(other.len())].to_vec()
            })
            .boxed(),
    ];
    let change = (index(), prop_oneof![3 => Just(0_usize), 2 => 0_usize..24], piece, 1_usize..4);
    (prop::sample::select(seeds), prop::collection::vec(change, 0..8)).prop_map(|(mut input, changes)| {
        for (at, length, piece, times) in changes {
            let at = at.index(input.len() + 1);
            let end = (at + length).min(input.len());
            input.splice(at..end, piece.repeat(times));
        }
        input
    })
}

/// Runs the same mutations each time, so that a failure is due to the tested change.
fn try_mutations(target: FuzzTarget) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, random).run(&mutated(target), |input| {
        let done = catch_unwind(AssertUnwindSafe(|| target.run(&input)));
        done.map_err(|_| TestCaseError::fail(String::from_utf8_lossy(&input).into_owned()))
    });
    assert!(outcome.is_ok(), "{}: {outcome:?}", target.name);
}

#[test]
fn mutated_seeds_break_no_promise() {
    std::thread::scope(|scope| {
        for target in TARGETS {
            scope.spawn(move || try_mutations(target));
        }
    });
}
