//! How long functions take to start and to answer, what memory and how large a program that needs, beside a function
//! that does nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::emulator::EmulatedFunction;
use crate::steps::say;

/// Events of one start beside the first.
const WARM: usize = 20;
/// How much longer than the empty function's a function's init may take.
const MOST: f64 = 1.3;
pub(crate) const EMPTY: &str = "empty";

/// What was measured of one program.
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
        // A message that is not of this project fails, and SQS delivers it again.
        "sweep" => (
            json!({"Records": [{"messageId": "foreign", "body": "nonsense"}]}),
            json!({"batchItemFailures": [{"itemIdentifier": "foreign"}]}),
        ),
        // It gives back what it is given.
        EMPTY => (json!({ "Records": [] }), json!({ "Records": [] })),
        other => bail!("there is no event for {other}"),
    })
}

/// Returns a request as the HTTP API gives it to functions (payload format 2.0).
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

/// The middle one of some values.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[last / 2].midpoint(sorted[last.div_ceil(2)]))
}

/// Starts each of the programs `rounds` times, in turn, gives it events, and prints the least of each figure, and of init the
/// median as well, beside the empty one's. Gives the names of those whose init takes too long, by the least: what else the
/// machine does can only add to it.
///
/// # Errors
/// When a program fails or answers something else than it should, and when a figure is missing.
pub(crate) async fn all(
    rie: &Path,
    programs: &[(&'static str, PathBuf)],
    variables: &BTreeMap<&'static str, String>,
    folder: &Path,
    rounds: usize,
) -> anyhow::Result<Vec<&'static str>> {
    let mut measured: BTreeMap<&'static str, FunctionMeasurement> = BTreeMap::new();
    for _ in 0..rounds {
        for (name, program) in programs {
            let log = folder.join(format!("{name}-start.log"));
            let function = EmulatedFunction::start(name, rie, program, variables, log).await?;
            let (event, expected) = event(name)?;
            for _ in 0..=WARM {
                let answer = function.invoke(&event).await?;
                let mut parts = expected.as_object().into_iter().flatten();
                ensure!(parts.all(|(key, value)| answer[key] == *value), "{name} answers {answer}");
            }
            let durations = function.durations()?;
            ensure!(durations.events.len() == 1 + WARM, "of {name} there is {durations:?}");
            let of = measured.entry(name).or_default();
            of.init.push(durations.init);
            of.first.extend(durations.events.first());
            of.warm.extend(durations.events.iter().skip(1));
            of.memory.push(function.memory()? as f64 / 1024.0);
            of.bytes = fs::metadata(program)?.len() as f64;
        }
    }
    let rows = measured.into_iter().map(|(name, of)| {
        let figures = of.figures().with_context(|| format!("there are too few figures of {name}"))?;
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
        "  the least of {rounds} starts, of init also the median; warm: of {WARM} events after each first one"
    ));
    say("  the first event has the request for the secret in it; x: times the empty function's");
    let slow = rows.iter().filter(|(_, row)| row[0] > MOST * empty[0]);
    Ok(slow.map(|(name, _)| *name).collect())
}

impl FunctionMeasurement {
    /// Init, its median, the first event, a later one, memory, size. `None`: one was never measured.
    fn figures(&self) -> Option<[f64; 6]> {
        let least = |values: &[f64]| values.iter().copied().min_by(f64::total_cmp);
        let init = [least(&self.init)?, median(&self.init)?];
        let events = [least(&self.first)?, least(&self.warm)?];
        Some([init[0], init[1], events[0], events[1], least(&self.memory)?, self.bytes / 1e6])
    }
}
