//! Tests every operation of the table of one machine.

use std::process::ExitCode;
use std::sync::Arc;

use ebb_local::embedded::EmbeddedTable;
use ebb_store::suite::{TablePlace, TableUnderTest, trials};
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let open = || Arc::new(EmbeddedTable::temporary().expect("a temporary folder")) as _;
    let table = TableUnderTest { name: "embedded", place: TablePlace::Process(open) };
    libtest_mimic::run(&Arguments::from_args(), trials(&table)).exit_code()
}
