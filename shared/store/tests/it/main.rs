//! Tests every operation of the store on the table in memory or, with `EBB_TEST_TABLE=dynamodb-local`, with the AWS SDK on
//! DynamoDB Local.

use std::process::ExitCode;
use std::sync::Arc;

use ebb_store::MemoryTable;
use ebb_store::suite::{DynamoDbLocal, TablePlace, TableUnderTest, service_trials, trials};
use libtest_mimic::Arguments;

const AMAZONS: &str = "dynamodb-local";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match std::env::var("EBB_TEST_TABLE").as_deref() {
        Ok(AMAZONS) => match DynamoDbLocal::start() {
            Ok(server) => {
                let table = TableUnderTest { name: AMAZONS, place: TablePlace::Endpoint(server.endpoint()) };
                let trials = [trials(&table), service_trials(&table)].into_iter().flatten().collect();
                libtest_mimic::run(&arguments, trials).exit_code()
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        },
        Ok(other) => {
            eprintln!("error: EBB_TEST_TABLE is {other}; expected {AMAZONS}, or no value for the table in memory");
            ExitCode::FAILURE
        }
        Err(_) => {
            let place = TablePlace::Process(|| Arc::new(MemoryTable::default()));
            libtest_mimic::run(&arguments, trials(&TableUnderTest { name: "memory", place })).exit_code()
        }
    }
}
