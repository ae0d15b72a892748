//! How long functions take to start and to answer, what memory and how large a program that needs, beside a function
//! that does nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::emulator::Function;
use super::events::{self, Body};
use crate::steps::say;

/// Events of one start beside the first.
const WARM: usize = 20;
/// How much longer than the empty function's a function's init may take.
const MOST: f64 = 1.3;
const EMPTY: &str = "empty";

/// What was measured of one program.
#[derive(Default)]
struct Measured {
    init: Vec<f64>,
    first: Vec<f64>,
    warm: Vec<f64>,
    memory: Vec<f64>,
    bytes: f64,
}

/// Events that are answered without asking anybody.
fn event(name: &str) -> Value {
    let nobody = |method, path| events::request(method, path, &[], b"", Body::Text);
    match name {
        "receive" => nobody("POST", "/v1/events"),
        "complete" => nobody("POST", "/v1/callbacks"),
        "api" => nobody("GET", "/v1/plugins"),
        _ => json!({ "Records": [] }),
    }
}

/// Starts each of the programs `rounds` times, in turn, gives it events, and prints the least of each figure beside the
/// empty one's: what else the machine does can only add to it.
/// Gives the names of those whose init takes too long.
pub(crate) async fn all(
    rie: &Path,
    programs: &[(&'static str, PathBuf)],
    variables: &BTreeMap<&'static str, String>,
    folder: &Path,
    rounds: usize,
) -> anyhow::Result<Vec<&'static str>> {
    let mut measured: BTreeMap<&'static str, Measured> = BTreeMap::new();
    for _ in 0..rounds {
        for (name, program) in programs {
            let log = folder.join(format!("{name}-start.log"));
            let function = Function::start(name, rie, program, variables, log).await?;
            let event = event(name);
            for _ in 0..=WARM {
                function.invoke(&event).await?;
            }
            let durations = function.durations()?;
            let of = measured.entry(name).or_default();
            of.init.push(durations.init);
            of.first.extend(durations.events.first());
            of.warm.extend(durations.events.iter().skip(1));
            of.memory.push(function.memory()? as f64 / 1024.0);
            of.bytes = fs::metadata(program)?.len() as f64;
        }
    }
    let least: Vec<(&str, [f64; 5])> = measured.into_iter().map(|(name, of)| (name, of.least())).collect();
    let Some((_, empty)) = least.iter().copied().find(|row| row.0 == EMPTY) else {
        anyhow::bail!("there is no empty function");
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    table.set_header([
        "function",
        "init ms",
        "x",
        "first ms",
        "x",
        "warm ms",
        "x",
        "memory MiB",
        "x",
        "MB",
        "x",
    ]);
    for (name, row) in &least {
        let cells =
            row.iter().zip(empty).flat_map(|(is, base)| [format!("{is:.2}"), format!("{:.2}", is / base)]);
        table.add_row(std::iter::once((*name).to_owned()).chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    say(&table.trim_fmt());
    say(&format!(
        "  the least of {rounds} starts and of {WARM} events after each first one; x: times the empty function's"
    ));
    let slow = least.iter().filter(|(_, row)| row[0] > MOST * empty[0]);
    Ok(slow.map(|(name, _)| *name).collect())
}

impl Measured {
    fn least(self) -> [f64; 5] {
        let [init, first, warm, memory] = [self.init, self.first, self.warm, self.memory]
            .map(|values| values.into_iter().min_by(f64::total_cmp).unwrap_or_default());
        [init, first, warm, memory, self.bytes / 1e6]
    }
}
