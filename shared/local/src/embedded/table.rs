//! DynamoDB in this process, stored in a SQLite file.

use std::path::{Path, PathBuf};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ACCESS_KEY, EmbeddedError, REGION, SECRET_KEY};
use crate::files;

/// The prefix of the header that names the operation.
const TARGET: &str = "DynamoDB_20120810.";

/// Constructors of clients of the emulator.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedTable;

impl EmbeddedTable {
    /// Returns a client of the tables in `folder`, which is created if it is missing. This does not create a table: see
    /// `ebb_store::table::create`.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written, or its file is damaged or is not a database.
    pub fn open(folder: &Path) -> Result<Client, EmbeddedError> {
        files::private_folder(folder)?;
        let file = Self::file(folder);
        check(&file)?;
        let refused = |reason: DynoxideError| EmbeddedError::Refused {
            what: format!("table in {}", file.display()),
            reason: reason.to_string(),
        };
        let database = Database::new(&file.to_string_lossy()).map_err(refused)?;
        // The emulator's default settings: a write is in the log before the response is sent, but it is not synced to
        // the disk.
        database.disable_bulk_loading().map_err(refused)?;
        Ok(Self::client(database))
    }

    /// Returns the file of the tables in `folder`.
    pub fn file(folder: &Path) -> PathBuf {
        folder.join("table.sqlite")
    }

    /// Returns a client of tables in memory, which are lost with the client.
    ///
    /// # Errors
    /// Returns an error if the emulator cannot allocate memory.
    pub fn memory() -> Result<Client, EmbeddedError> {
        let database = Database::memory().map_err(|reason| EmbeddedError::Refused {
            what: "table in memory".to_owned(),
            reason: reason.to_string(),
        })?;
        Ok(Self::client(database))
    }

    /// Returns a client of the tables at `endpoint`, a server that accepts any signature.
    pub fn at(endpoint: &str) -> Client {
        Client::from_conf(config(endpoint).build())
    }

    fn client(database: Database) -> Client {
        let connector = SharedHttpConnector::new(EmulatorConnector { database });
        let config = config("http://dynamodb.local");
        Client::from_conf(config.http_client(http_client_fn(move |_, _| connector.clone())).build())
    }
}

/// Checks every page of the file, if it exists. Otherwise a damaged page would fail requests and look like a temporary
/// error.
fn check(file: &Path) -> Result<(), EmbeddedError> {
    let is_empty = file.metadata().map_or(true, |found| found.len() == 0);
    if is_empty {
        return Ok(());
    }
    let damaged = |reason: String| EmbeddedError::Damaged { file: file.to_owned(), reason };
    let first_problem = || -> rusqlite::Result<String> {
        rusqlite::Connection::open(file)?.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
    };
    match first_problem() {
        Ok(result) if result == "ok" => Ok(()),
        Ok(problem) => Err(damaged(problem)),
        Err(error) => Err(damaged(error.to_string())),
    }
}

fn config(endpoint: &str) -> aws_sdk_dynamodb::config::Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .credentials_provider(Credentials::new(ACCESS_KEY, SECRET_KEY, None, None, "local"))
        .endpoint_url(endpoint)
}

/// Passes requests to the emulator instead of a network.
#[derive(Clone)]
struct EmulatorConnector {
    database: Database,
}

impl std::fmt::Debug for EmulatorConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl HttpConnector for EmulatorConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let database = self.database.clone();
        HttpConnectorFuture::new(async move {
            let broken = |error: Box<dyn std::error::Error + Send + Sync>| ConnectorError::other(error, None);
            let operation = request.headers().get("x-amz-target").and_then(|target| target.strip_prefix(TARGET));
            let operation = operation.unwrap_or_default().to_owned();
            let body = request.body().bytes().unwrap_or_default().to_vec();
            // The emulator runs on the thread of its caller and blocks there on its lock.
            let response = tokio::task::spawn_blocking(move || respond(&database, &operation, &body)).await;
            let (status, body) = response.map_err(|error| broken(error.into()))?;
            let status = status.try_into().map_err(|_| broken("no HTTP status".into()))?;
            let mut response = HttpResponse::new(status, body.into());
            response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
            Ok(response)
        })
    }
}

/// Returns the status and the JSON of the response.
fn respond(database: &Database, operation: &str, body: &[u8]) -> (u16, String) {
    let db = database;
    let done = match operation {
        "CreateTable" => run(body, |request| db.create_table(request)),
        "DeleteTable" => run(body, |request| db.delete_table(request)),
        "DescribeTable" => run(body, |request| db.describe_table(request)),
        "ListTables" => run(body, |request| db.list_tables(request)),
        "DescribeTimeToLive" => run(body, |request| db.describe_time_to_live(request)),
        "UpdateTimeToLive" => run(body, |request| db.update_time_to_live(request)),
        "GetItem" => run(body, |request| db.get_item(request)),
        "BatchGetItem" => run(body, |request| db.batch_get_item(request)),
        "Query" => run(body, |request| db.query(request)),
        "Scan" => run(body, |request| db.scan(request)),
        "PutItem" => run(body, |request| db.put_item(request)),
        "UpdateItem" => run(body, |request| db.update_item(request)),
        "DeleteItem" => run(body, |request| db.delete_item(request)),
        "BatchWriteItem" => run(body, |request| db.batch_write_item(request)),
        "TransactWriteItems" => run(body, |request| db.transact_write_items(request)),
        other => Err(DynoxideError::ValidationException(format!("{other} is not served on one machine"))),
    };
    match done {
        Ok(json) => (200, json),
        Err(error) => (error.status_code(), error.to_json()),
    }
}

fn run<Q: DeserializeOwned, A: Serialize>(
    body: &[u8],
    operation: impl FnOnce(Q) -> dynoxide::Result<A>,
) -> dynoxide::Result<String> {
    let request = serde_json::from_slice(body);
    let request = request.map_err(|error| {
        // The emulator prefixes the text with the kind of the error.
        let text = error.to_string();
        DynoxideError::ValidationException(text.strip_prefix("VALIDATION:").unwrap_or(&text).to_owned())
    })?;
    let response = operation(request)?;
    serde_json::to_string(&response).map_err(|error| DynoxideError::InternalServerError(error.to_string()))
}
