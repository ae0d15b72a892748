//! Tests every operation of the store on the table in memory, and with the AWS SDK on the emulator dynoxide or, with
//! `EBB_TEST_TABLE=dynamodb-local`, on DynamoDB Local.

use std::process::ExitCode;
use std::sync::Arc;

use ebb_store::MemoryTable;
use ebb_store::suite::{DynamoDbLocal, TableDifferences, TablePlace, TableUnderTest, service_trials, trials};
use libtest_mimic::{Arguments, Trial};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const AMAZONS: &str = "dynamodb-local";
/// Modules whose many requests take most of the time on dynoxide. They run on the other tables.
const LONG: [&str; 2] = ["::record_model::", "::list::"];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let runtime = Runtime::new().expect("a runtime");
    let trials = match std::env::var("EBB_TEST_TABLE").as_deref() {
        Ok(AMAZONS) => match DynamoDbLocal::start() {
            Ok(server) => {
                let place = TablePlace::Endpoint(server.endpoint());
                let table = TableUnderTest { name: AMAZONS, place, differences: TableDifferences::DYNAMODB_LOCAL };
                return libtest_mimic::run(&arguments, all(&table)).exit_code();
            }
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        },
        Ok(other) => {
            eprintln!("error: EBB_TEST_TABLE is {other}; expected {AMAZONS}, or no value for dynoxide");
            return ExitCode::FAILURE;
        }
        Err(_) => {
            let place = TablePlace::Endpoint(runtime.block_on(dynoxide()));
            let table = TableUnderTest { name: "dynoxide", place, differences: TableDifferences::DYNOXIDE };
            let is_short = |trial: &Trial| !LONG.iter().any(|module| trial.name().contains(module));
            let place = TablePlace::Process(|| Arc::new(MemoryTable::default()));
            let memory = TableUnderTest { name: "memory", place, differences: TableDifferences::EMBEDDED };
            all(&table).into_iter().filter(is_short).chain(trials(&memory)).collect()
        }
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn all(table: &TableUnderTest) -> Vec<Trial> {
    [trials(table), service_trials(table)].into_iter().flatten().collect()
}

/// Serves the emulator and returns its address.
async fn dynoxide() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
    let database = dynoxide::Database::memory().expect("a table in memory");
    tokio::spawn(dynoxide::server::serve_on(listener, database));
    endpoint
}
