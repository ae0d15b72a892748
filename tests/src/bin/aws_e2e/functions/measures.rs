//! Measures start time, response time, memory and program size of functions, compared with a function that does
//! nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use comfy_table::{CellAlignment, Table, presets};
use ebb_tests::figures::median;
use serde_json::{Value, json};

use super::emulator::EmulatedFunction;
use crate::steps::say;

/// Number of measured starts of each program.
const ROUNDS: usize = 20;
/// Number of events after the first one of a start.
const WARM: usize = 20;
/// Maximum init time, relative to the empty function.
const MAX_INIT_RATIO: f64 = 1.3;
pub(crate) const EMPTY: &str = "empty";

/// The measurements of one program.
#[derive(Default)]
struct FunctionMeasurement {
    init: Vec<f64>,
    first: Vec<f64>,
    warm: Vec<f64>,
    memory: Vec<f64>,
    bytes: f64,
}

/// Returns an event that needs no request to another service, and a part of its response.
fn event(name: &str) -> anyhow::Result<(Value, Value)> {
    let unsigned = |method, path| (request(method, path), json!({ "statusCode": 401 }));
    Ok(match name {
        "receive" => unsigned("POST", "/v1/events"),
        "complete" => unsigned("POST", "/v1/callbacks"),
        "api" => unsigned("GET", "/v1/plugins"),
        // An unknown message fails, and SQS delivers it again.
        "sweep" => (
            json!({"Records": [{"messageId": "foreign", "body": "nonsense"}]}),
            json!({"batchItemFailures": [{"itemIdentifier": "foreign"}]}),
        ),
        // The function returns the event.
        EMPTY => (json!({ "Records": [] }), json!({ "Records": [] })),
        other => bail!("there is no event for {other}"),
    })
}

/// Returns a request as the HTTP API sends it to functions (payload format 2.0).
fn request(method: &str, path: &str) -> Value {
    json!({
        "version": "2.0",
        "routeKey": format!("{method} {path}"),
        "rawPath": path,
        "rawQueryString": "",
        "headers": {},
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "entry",
            "domainName": "entry.execute-api.eu-west-1.amazonaws.com",
            "domainPrefix": "entry",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1",
                "userAgent": "test",
            },
            "requestId": "JKJaXmPLvHcESHA=",
            "routeKey": format!("{method} {path}"),
            "stage": "$default",
            "time": "22/Nov/2026:10:00:00 +0000",
            "timeEpoch": 1_795_341_600_000_u64,
        },
        "body": "",
        "isBase64Encoded": false,
    })
}

/// Measures each program in [`ROUNDS`] starts and prints the minimum of each figure, and also the median of init,
/// relative to the empty program. Returns the programs whose minimum of init is too long. The minimum is used because
/// other load can only increase it.
///
/// # Errors
/// If a program fails or returns an unexpected response, or if a figure is missing.
pub(crate) async fn all(
    rie: &Path,
    programs: &[(&'static str, PathBuf)],
    variables: &BTreeMap<&'static str, String>,
    folder: &Path,
) -> anyhow::Result<Vec<&'static str>> {
    let mut measured: BTreeMap<&'static str, FunctionMeasurement> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (name, program) in programs {
            let log = folder.join(format!("{name}-start.log"));
            let function = EmulatedFunction::start(name, rie, program, variables, log).await?;
            let (event, expected) = event(name)?;
            for _ in 0..=WARM {
                let response = function.invoke(&event).await?;
                let mut parts = expected.as_object().into_iter().flatten();
                ensure!(parts.all(|(key, value)| response[key] == *value), "{name} responds {response}");
            }
            let durations = function.durations()?;
            ensure!(durations.events.len() == 1 + WARM, "{name} has {durations:?}");
            let of = measured.entry(name).or_default();
            of.init.push(durations.init);
            of.first.extend(durations.events.first());
            of.warm.extend(durations.events.iter().skip(1));
            of.memory.push(function.memory_mib()?);
            of.bytes = fs::metadata(program)?.len() as f64;
        }
    }
    let rows = measured.into_iter().map(|(name, of)| {
        let figures = of.figures().with_context(|| format!("figures of {name} are missing"))?;
        anyhow::Ok((name, figures))
    });
    let rows: BTreeMap<&str, [f64; 6]> = rows.collect::<anyhow::Result<_>>()?;
    let empty = rows.get(EMPTY).copied().context("there is no empty function")?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    let columns = ["init ms", "median", "first ms", "warm ms", "MiB", "MB"];
    table.set_header(std::iter::once("function").chain(columns.into_iter().flat_map(|column| [column, "x"])));
    for (name, row) in &rows {
        let cells = row.iter().zip(empty).flat_map(|(is, base)| [format!("{is:.2}"), format!("{:.2}", is / base)]);
        table.add_row(std::iter::once((*name).to_owned()).chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    say(&table.trim_fmt());
    say(&format!(
        "  minimum of {ROUNDS} starts, of init also the median; warm: minimum of {WARM} events after each first one"
    ));
    say("  the first event includes the request for the secret; x: relative to the empty function");
    let slow = rows.iter().filter(|(_, row)| row[0] > MAX_INIT_RATIO * empty[0]);
    Ok(slow.map(|(name, _)| *name).collect())
}

impl FunctionMeasurement {
    /// Returns init, its median, the first event, a later event, memory and size. `None` if one was not measured.
    fn figures(&self) -> Option<[f64; 6]> {
        let least = |values: &[f64]| values.iter().copied().min_by(f64::total_cmp);
        let init = [least(&self.init)?, median(&self.init)];
        let events = [least(&self.first)?, least(&self.warm)?];
        Some([init[0], init[1], events[0], events[1], least(&self.memory)?, self.bytes / 1e6])
    }
}
