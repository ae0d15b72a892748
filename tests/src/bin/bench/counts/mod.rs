//! Counts what runs of some shapes and sizes ask of the table, through the real functions and a real HTTP server.
//!
//! Progress goes to standard error, the table or JSON to standard output.

use clap::ValueEnum;

mod figures;
mod harness;
mod receiver;
pub(crate) mod shapes;

use figures::CountRow;
use shapes::{CountCase, LEAST, ResultDelivery, RunShape, UnitOutputs};

/// The choice of runs.
#[derive(clap::Args)]
pub(crate) struct CountsArgs {
    /// Units per run
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1_000, 10_000])]
    sizes: Vec<usize>,
    /// How the units hang together; without it all shapes
    #[arg(long, value_delimiter = ',')]
    shapes: Vec<RunShape>,
    /// When the units' server says how they ended
    #[arg(long, value_delimiter = ',', default_value = "at-once")]
    answers: Vec<ResultDelivery>,
    /// Fail where a figure is worse than promised
    #[arg(long)]
    check: bool,
    /// Write JSON instead of a table
    #[arg(short = 'o', long = "output", value_name = "json")]
    output: Option<CountsFormat>,
}

#[derive(Clone, Copy, ValueEnum)]
enum CountsFormat {
    Json,
}

/// Runs every case, prints the rows, and gives what does not hold if that is asked for.
pub(crate) fn measured(arguments: &CountsArgs) -> anyhow::Result<Vec<String>> {
    let rows = tokio::runtime::Runtime::new()?.block_on(all(arguments))?;
    match arguments.output {
        Some(CountsFormat::Json) => println!("{}", serde_json::to_string_pretty(&rows)?),
        None => println!("{}", figures::drawn(&rows)),
    }
    Ok(if arguments.check { rows.iter().flat_map(CountRow::broken).collect() } else { Vec::new() })
}

async fn all(arguments: &CountsArgs) -> anyhow::Result<Vec<CountRow>> {
    if let Some(small) = arguments.sizes.iter().find(|&&size| size < LEAST) {
        anyhow::bail!("a run of {small} units has no shape: the least is {LEAST}");
    }
    let mut rows = Vec::new();
    for outputs in [UnitOutputs::Kept, UnitOutputs::Nothing] {
        for &answers in chosen(&arguments.answers) {
            for &shape in chosen(&arguments.shapes) {
                for &units in &arguments.sizes {
                    let case = CountCase { shape, units, outputs, answers };
                    let row = CountRow::new(case, Box::pin(harness::run(case)).await?);
                    eprintln!("{}: done", row.name());
                    rows.push(row);
                }
            }
        }
    }
    Ok(rows)
}

/// What was asked for, or everything.
fn chosen<T: ValueEnum>(asked: &[T]) -> &[T] {
    if asked.is_empty() { T::value_variants() } else { asked }
}
