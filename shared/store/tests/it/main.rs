//! Every operation over two tables, through the AWS SDKs: the embedded one, which Ebb has on one machine, and Amazon's
//! own for developers.

use std::process::ExitCode;

use ebb_store::suite::{Differences, DynamoDbLocal, Table, trials};
use libtest_mimic::Arguments;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The name of Amazon's table.
const AMAZONS: &str = "dynamodb-local";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let runtime = Runtime::new().expect("a runtime");
    let embedded = Table {
        name: "dynoxide",
        endpoint: runtime.block_on(dynoxide()),
        differences: Differences::DYNOXIDE,
    };
    // Not for a list, and not where `--skip dynamodb-local` leaves out all of its tests.
    let amazon = match arguments.list || arguments.skip.iter().any(|word| AMAZONS.contains(word.as_str())) {
        true => None,
        false => match DynamoDbLocal::start() {
            Ok(server) => Some(server),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        },
    };
    let endpoint = amazon.as_ref().map_or_else(String::new, DynamoDbLocal::endpoint);
    let amazons = Table { name: AMAZONS, endpoint, differences: Differences::DYNAMODB_LOCAL };
    let trials = [&embedded, &amazons].into_iter().flat_map(trials).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The embedded table as a server of this program.
async fn dynoxide() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
    let database = dynoxide::Database::memory().expect("a table in memory");
    tokio::spawn(dynoxide::server::serve_on(listener, database));
    endpoint
}
