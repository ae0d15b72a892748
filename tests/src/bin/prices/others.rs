//! The same units elsewhere: what passing them on costs, without what calls them.

use crate::bill::{Bill, EntryPoint, Machine, drawn};

/// Of a run, beside those of its units: its start, and the state with the parallel branches.
const TRANSITIONS_OF_A_RUN: f64 = 2.0;
/// Units that follow each other in a run: one, those beside each other, one.
const LEVELS: f64 = 3.0;
/// The least memory that an express workflow is billed with, in GB.
const EXPRESS: f64 = 0.0625;
/// A step that asks for the unit, and its callback; a run is one more.
const OPERATIONS_OF_A_UNIT: f64 = 2.0;
/// For how long the history of a durable function is kept, in months: 14 days, the default.
const KEPT: f64 = 14.0 / 30.0;
const MILLION: f64 = 1e6;

/// Dollars of a million units.
///
/// # Errors
/// A price is missing.
pub(crate) fn beside(bill: &Bill<'_>) -> anyhow::Result<String> {
    let list = bill.list;
    let arguments = bill.arguments;
    let runs = MILLION / f64::from(arguments.units);
    let mut rows = Vec::new();
    let mut row = |name: &str, by: &str, cost: f64| {
        rows.push(vec![name.to_owned(), by.to_owned(), format!("{cost:.2}")])
    };
    let units = bill.life.units as f64;
    for (machine, name) in [(Machine::X86, "x86"), (Machine::Arm64, "arm64")] {
        let entries =
            [(EntryPoint::HttpApi, "as above"), (EntryPoint::FunctionUrl, "EntryPoint=FunctionUrl")];
        for (entry, by) in entries {
            let name = format!("Ebb, {name}");
            row(&name, by, bill.life(machine, entry)? / units * MILLION);
            let kept = bill.kept_life(machine, entry)? / units * MILLION;
            row(&name, &format!("{by}, without (retention)"), kept);
        }
    }
    let transitions = list.cost("step-functions-standard", MILLION + TRANSITIONS_OF_A_RUN * runs)?;
    row("Step Functions, Standard", "1 transition per unit, 2 per run", transitions);
    let seconds = LEVELS * f64::from(arguments.unit_seconds);
    let express = list.cost("step-functions-express", runs)?
        + list.cost("step-functions-express-time", runs * seconds * EXPRESS)?;
    row(
        "Step Functions, Express",
        &format!("runs of {seconds} s at 64 MB; 5 minutes at most, no callbacks"),
        express,
    );
    for (name, machine) in [("x86", Machine::X86), ("arm64", Machine::Arm64)] {
        let bytes = MILLION * OPERATIONS_OF_A_UNIT * f64::from(arguments.state_bytes);
        // A callback starts the function again.
        let durable = list.cost("durable-operation", OPERATIONS_OF_A_UNIT * MILLION + runs)?
            + list.cost("durable-written", bytes)?
            + list.cost("durable-kept", bytes * KEPT)?
            + list.cost("lambda-request", MILLION + runs)?
            + list.cost(machine.price(), bill.gb_seconds(MILLION + runs))?;
        let by = format!(
            "2 operations per unit and 1 per run, {} bytes each for 14 days, 1 invocation per unit",
            arguments.state_bytes
        );
        row(&format!("Lambda durable functions, {name}"), &by, durable);
    }
    Ok(drawn(["", "by", "$ per million units"], rows))
}
