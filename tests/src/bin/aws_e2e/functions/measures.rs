//! Measures the start times of functions, compared with a function that does nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use ebb_tests::figures::median;
use serde_json::Value;

use super::emulator::EmulatedFunction;
use crate::steps::say;

/// Number of measured starts of each program.
const ROUNDS: usize = 20;
/// Number of events of a start. Later ones reach a program that has already answered.
const EVENTS: usize = 3;
/// Maximum init time, relative to the empty function.
const MAX_INIT_RATIO: f64 = 1.3;
pub(crate) const EMPTY: &str = "empty";

/// Returns the event of a function in `events.yaml`, and a part of its response.
fn event(name: &str) -> anyhow::Result<(Value, Value)> {
    let mut events: BTreeMap<String, (Value, Value)> = serde_saphyr::from_str(include_str!("events.yaml"))?;
    let (event, response) = events.remove(name).with_context(|| format!("there is no event for {name}"))?;
    let Some((method, path)) = event.as_str().and_then(|line| line.split_once(' ')) else {
        return Ok((event, response));
    };
    let request = include_str!("request.json").replace("METHOD", method).replace("PATH", path);
    Ok((serde_json::from_str(&request)?, response))
}

/// Starts each program [`ROUNDS`] times and prints its init times. Returns the programs whose minimum is too long. The
/// minimum is used because other load can only increase it.
///
/// # Errors
/// If a program fails or returns an unexpected response, or if a figure is missing.
pub(crate) async fn all(
    rie: &Path,
    programs: &[(&'static str, PathBuf)],
    variables: &BTreeMap<String, String>,
    folder: &Path,
) -> anyhow::Result<Vec<&'static str>> {
    let mut measured: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (name, program) in programs {
            let log = folder.join(format!("{name}-start.log"));
            let function = EmulatedFunction::start(name, rie, program, variables, log).await?;
            let (event, expected) = event(name)?;
            for _ in 0..EVENTS {
                let response = function.invoke(&event).await?;
                let mut parts = expected.as_object().into_iter().flatten();
                ensure!(parts.all(|(key, value)| response[key] == *value), "{name} responds {response}");
            }
            measured.entry(name).or_default().push(function.init()?);
        }
    }
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let empty = measured.get(EMPTY).map(|times| least(times)).context("there is no empty function")?;
    let mut slow = Vec::new();
    for (name, times) in &measured {
        let ratio = least(times) / empty;
        say(&format!("  {name}: {:.2} ms ({ratio:.2} of empty), median {:.2} ms", least(times), median(times)));
        if ratio > MAX_INIT_RATIO {
            slow.push(*name);
        }
    }
    Ok(slow)
}
