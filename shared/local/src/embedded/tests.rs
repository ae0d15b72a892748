mod damage;

#[cfg(target_os = "linux")]
use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
#[cfg(target_os = "linux")]
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_engine::Timestamp;
use ebb_store::item_table::{
    AttributeChange, ItemKey, ItemPut, ItemWrite, UpdateImage, WriteAction, WriteCondition, WriteExpression,
    WriteOutcome,
};
use ebb_store::{Bucket as _, InstanceExpiry, ItemTable as _, Store, StoreError, StoreResult};
use tempfile::TempDir;

use super::table::write_queue::WriteQueue;
use super::{EmbeddedTable, FolderBucket, StateDurability, s3_router};

fn open(folder: &Path) -> EmbeddedTable {
    EmbeddedTable::open(folder, StateDurability::Process).unwrap()
}

/// Returns the error with which a table cannot be opened.
fn refusal(state: &Path) -> String {
    EmbeddedTable::open(state, StateDurability::Process).unwrap_err().to_string()
}

/// Returns a table and its folder, which is deleted when it is dropped.
fn new_table() -> (TempDir, EmbeddedTable) {
    let folder = tempfile::tempdir().unwrap();
    let table = open(folder.path());
    (folder, table)
}

fn connection(folder: &TempDir) -> rusqlite::Connection {
    rusqlite::Connection::open(EmbeddedTable::file(folder.path())).unwrap()
}

/// Sends writes while another connection has the lock, so that they are one group.
async fn grouped(
    lock: &rusqlite::Connection,
    table: &EmbeddedTable,
    writes: &[ItemWrite],
) -> Vec<StoreResult<WriteOutcome>> {
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut responses = futures::future::join_all(writes.iter().map(|write| table.write(write)));
    assert!(futures::poll!(&mut responses).is_pending());
    lock.execute_batch("COMMIT").unwrap();
    responses.await.into_iter().map(|response| response.map(|written| written.value)).collect()
}

/// Returns a write that adds a number to the set of an item that does not contain it.
fn addition(key: &str, number: u32) -> ItemWrite {
    let (set, number) = ("done".to_owned(), number.to_string());
    let changes = [(set.clone(), AttributeChange::Add(AttributeValue::Ss(vec![number.clone()])))];
    let conditions = vec![WriteCondition::Lacks(set, AttributeValue::S(number))];
    let expression = WriteExpression { conditions, changes: changes.into() };
    ItemWrite { key: ItemKey::new(key, "h"), expression, action: WriteAction::Update(UpdateImage::After) }
}

async fn add(table: &EmbeddedTable, key: &str, number: u32) -> bool {
    matches!(table.write(&addition(key, number)).await.unwrap().value, WriteOutcome::Written(_))
}

fn open_bucket(folder: &Path) -> FolderBucket {
    FolderBucket::open(folder, StateDurability::Process).unwrap()
}

async fn numbers(table: &EmbeddedTable, key: &str) -> Vec<u32> {
    let Some(item) = table.get(ItemKey::new(key, "h")).await.unwrap().value else { return Vec::new() };
    let mut numbers: Vec<u32> = item["done"].as_ss().unwrap().iter().map(|n| n.parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test]
async fn the_error_of_a_damaged_table_has_its_recovery() {
    let (folder, table) = new_table();
    for number in 0..200 {
        add(&table, &format!("{number}{}", "x".repeat(500)), number).await;
    }
    // The end moves the data from the write-ahead log into the file.
    drop(table);
    let file = EmbeddedTable::file(folder.path());
    let mut bytes = std::fs::read(&file).unwrap();
    assert!(bytes.len() > 100_000);
    let middle = bytes.len() / 2;
    bytes[middle..middle + 20_000].fill(0xa5);
    std::fs::write(&file, bytes).unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("table.sqlite is damaged (") && error.contains(".recover"), "{error}");
    std::fs::write(&file, "something else, and longer than the header of a database: ".repeat(10)).unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("table.sqlite is damaged (file is not a database)"), "{error}");
    // A database of another program, or of another version.
    std::fs::remove_file(&file).unwrap();
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE other (a)").unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("its form is 0, and this version of ebb has 3. Start the version"), "{error}");
}

/// The advice for a damaged table would replace a sound file.
#[test]
fn a_table_that_cannot_be_opened_is_not_damaged() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    // SQLite cannot write its log there.
    let log = folder.path().join("table/table.sqlite-wal");
    std::fs::create_dir(&log).unwrap();
    let error = refusal(folder.path());
    assert!(error.contains("table.sqlite: unable to open database file"), "{error}");
    std::fs::remove_dir(&log).unwrap();
    open(folder.path());
}

/// The user of a thread can be changed on Linux only.
#[cfg(target_os = "linux")]
#[test]
fn a_table_that_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let file = EmbeddedTable::file(folder.path());
    for (path, mode) in [(folder.path(), 0o777), (&folder.path().join("table"), 0o777), (&file, 0o444)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    // Root can write every file.
    let opened = std::thread::spawn(move || {
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
        super::table::writer(&file, StateDurability::Process)
    });
    let error = opened.join().unwrap().unwrap_err().to_string();
    assert!(error.starts_with("this user cannot write the file. Change its owner or mode"), "{error}");
}

/// A variable of the child process with the folder of the table, which has the name of the durability.
const KILLED: &str = "EBB_TEST_KILLED_FOLDER";
/// Writers at the same time in the child process, whose writes share commits.
const WRITERS: u32 = 16;

/// The test starts itself in a child process and kills it after 400 writes.
#[tokio::test]
async fn acknowledged_writes_survive_a_kill() {
    if let Ok(folder) = std::env::var(KILLED) {
        let durabilities = [StateDurability::Process, StateDurability::Full];
        let durability = durabilities.into_iter().find(|durability| folder.ends_with(&format!("{durability:?}")));
        let table = EmbeddedTable::open(Path::new(&folder), durability.unwrap()).unwrap();
        let writer = async |writer: u32| {
            for number in 0.. {
                assert!(add(&table, &writer.to_string(), number).await);
                println!("written {writer} {number}");
            }
        };
        futures::future::join_all((0..WRITERS).map(writer)).await;
    }
    for durability in [StateDurability::Process, StateDurability::Full] {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join(format!("{durability:?}"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["embedded::tests::acknowledged_writes_survive_a_kill", "--exact", "--nocapture"])
            .env(KILLED, &folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let written: Vec<(String, u32)> = lines
            .filter_map(|line| {
                let (writer, number) = line.strip_prefix("written ")?.split_once(' ')?;
                Some((writer.to_owned(), number.parse().unwrap()))
            })
            .take(400)
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let table = EmbeddedTable::open(&folder, durability).unwrap();
        assert_eq!(written.len(), 400);
        for (writer, number) in written {
            let numbers = numbers(&table, &writer).await;
            assert!(numbers.contains(&number), "{writer} {number}: {numbers:?}");
            assert!(numbers.iter().copied().eq(0..numbers.len() as u32));
        }
    }
}

/// A variable of the child process whose thread panics.
const PANICKED: &str = "EBB_TEST_PANICKED";

/// The test starts itself in a child process.
#[tokio::test]
async fn a_panic_of_the_thread_ends_the_process() {
    if std::env::var_os(PANICKED).is_some() {
        let queue = WriteQueue::start(rusqlite::Connection::open_in_memory().unwrap(), None).unwrap();
        queue.send("write", |_| -> rusqlite::Result<()> { panic!("a defect") }).await.unwrap_err();
        // Waits for the thread.
        drop(queue);
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["embedded::tests::a_panic_of_the_thread_ends_the_process", "--exact", "--nocapture"])
        .env(PANICKED, "1")
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(nix::libc::SIGABRT), "{child:?}");
}

#[tokio::test]
async fn a_group_that_is_not_committed_answers_no_write() {
    let (folder, table) = new_table();
    // SQLite checks this constraint at the commit: all statements of the group succeed.
    let guard = connection(&folder);
    let trigger = "CREATE TABLE none (id INTEGER PRIMARY KEY);
        CREATE TABLE guard (id INTEGER REFERENCES none DEFERRABLE INITIALLY DEFERRED);
        CREATE TRIGGER refuse AFTER INSERT ON items WHEN new.pk = 'bad' BEGIN INSERT INTO guard VALUES (1); END;";
    guard.execute_batch(trigger).unwrap();
    let keys: Vec<String> =
        (0..50).map(|number| if number == 25 { "bad".into() } else { number.to_string() }).collect();
    let writes: Vec<ItemWrite> = keys.iter().map(|key| addition(key, 1)).collect();
    for (key, response) in keys.iter().zip(grouped(&guard, &table, &writes).await) {
        assert!(matches!(response, Err(StoreError::Retryable { .. })), "{key}: {response:?}");
        assert_eq!(numbers(&table, key).await, [0; 0], "{key}");
    }
    guard.execute_batch("DROP TRIGGER refuse").unwrap();
    for key in &keys {
        assert!(add(&table, key, 1).await, "{key}");
    }
}

#[tokio::test]
async fn a_locked_file_fails_all_writes_that_wait() {
    let folder = tempfile::tempdir().unwrap();
    let open = || rusqlite::Connection::open(folder.path().join("table.sqlite")).unwrap();
    let (guard, connection) = (open(), open());
    guard.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection.busy_timeout(Duration::from_millis(200)).unwrap();
    let queue = WriteQueue::start(connection, None).unwrap();
    let begun = Instant::now();
    for response in futures::future::join_all((0..100).map(|_| queue.send("write", |_| Ok(())))).await {
        assert!(matches!(response, Err(StoreError::Retryable { .. })), "{response:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    guard.execute_batch("COMMIT").unwrap();
    queue.send("write", |_| Ok(())).await.unwrap();
}

/// A request that meets a damaged page is broken. The requests before it in its group can be repeated. Those after it
/// are the next group.
#[tokio::test]
async fn a_damaged_page_breaks_the_requests_that_read_it() {
    let (folder, table) = new_table();
    let mut large = addition("damaged", 1);
    let text = AttributeChange::Set(AttributeValue::S("x".repeat(100_000)));
    large.expression.changes.insert("text".to_owned(), text);
    table.write(&large).await.unwrap();
    // The end moves the data from the write-ahead log into the file.
    drop(table);
    let table = open(folder.path());
    let file = EmbeddedTable::file(folder.path());
    let mut bytes = std::fs::read(&file).unwrap();
    // Each page of the text begins with the number of the next one.
    let pages: Vec<&mut [u8]> =
        bytes.chunks_mut(4_096).filter(|page| page[4..].iter().all(|byte| *byte == b'x')).collect();
    assert!(pages.len() > 10);
    pages.into_iter().for_each(|page| page[..4].fill(0xff));
    std::fs::write(&file, bytes).unwrap();

    let read = table.get(ItemKey::new("damaged", "h")).await;
    assert!(matches!(read, Err(StoreError::Broken { .. })), "{read:?}");
    let writes = ["before", "damaged", "after"].map(|key| addition(key, 2));
    let responses = grouped(&connection(&folder), &table, &writes).await;
    let [undone, damaged, written] = <[_; 3]>::try_from(responses).unwrap();
    assert!(matches!(undone, Err(StoreError::Retryable { .. })), "{undone:?}");
    assert!(matches!(damaged, Err(StoreError::Broken { .. })), "{damaged:?}");
    assert!(matches!(written, Ok(WriteOutcome::Written(_))), "{written:?}");
    assert!(add(&table, "before", 2).await);
}

#[tokio::test]
async fn a_transaction_with_an_item_that_cannot_be_stored_writes_nothing() {
    let (_folder, table) = new_table();
    let put = |key: &str, value: AttributeValue| {
        let mut item = ItemKey::new(key, "h").into_item();
        item.insert("x".to_owned(), value);
        ItemPut { item, expression: WriteExpression::default() }
    };
    let puts = [put("first", AttributeValue::N("1".to_owned())), put("second", AttributeValue::Null(true))];
    let written = table.transact(&puts, "token").await;
    assert!(matches!(written, Err(StoreError::Broken { .. })), "{written:?}");
    assert!(table.scan().unwrap().is_empty());
}

/// Only the requests that need the attributes of a damaged row fail.
#[tokio::test]
async fn a_damaged_row_hides_no_other_and_can_be_replaced_or_deleted() {
    let (folder, table) = new_table();
    for key in ["deleted", "gone", "replaced", "whole"] {
        assert!(add(&table, key, 1).await);
    }
    let connection = connection(&folder);
    connection.execute("UPDATE items SET item = '{', l = 'x' WHERE pk <> 'whole'", []).unwrap();
    let responses = grouped(&connection, &table, &["gone", "whole"].map(|key| addition(key, 2))).await;
    let [damaged, whole] = <[_; 2]>::try_from(responses).unwrap();
    assert!(matches!(damaged, Err(StoreError::Broken { .. })), "{damaged:?}");
    assert!(matches!(whole, Ok(WriteOutcome::Written(_))), "{whole:?}");
    let key = |partition: &str| ItemKey::new(partition, "h");
    let read = table.get(key("gone")).await;
    assert!(matches!(read, Err(StoreError::Broken { .. })), "{read:?}");
    let read = table.get_batch(vec![key("deleted"), key("whole")], None).await.unwrap().value.items;
    assert_eq!(read[0], key("deleted").into_item());
    assert!(read[1].contains_key("done"));
    let changes = [("deleted", WriteAction::Delete), ("replaced", WriteAction::Put(key("replaced").into_item()))];
    for (partition, action) in changes {
        let write = ItemWrite { key: key(partition), expression: WriteExpression::default(), action };
        assert!(matches!(table.write(&write).await.unwrap().value, WriteOutcome::Written(_)));
    }
    table.delete_batch(vec![key("gone")]).await.unwrap();
    let left: Vec<String> = table.scan().unwrap().iter().map(|item| item["pk"].as_s().unwrap().clone()).collect();
    assert_eq!(left, ["replaced", "whole"]);
    // The index has no entry of the former items.
    let entries: i64 = connection.query_row("SELECT count(l) FROM items", [], |row| row.get(0)).unwrap();
    assert_eq!(entries, 0);

    let bucket = open_bucket(&folder.path().join("bucket"));
    let store = Store::new(Arc::new(table), Arc::new(bucket));
    let [damaged, whole] = [10, 20].map(|due: u64| {
        let expiry = serde_json::json!({
            "kind": "sandbox", "name": due.to_string(), "uid": "u", "generation": 1, "updates": 0, "plan": "sha256:x",
        });
        InstanceExpiry { due: Timestamp(due), ..serde_json::from_value(expiry).unwrap() }
    });
    for expiry in [&damaged, &whole] {
        store.put_expiry(expiry).await.unwrap();
    }
    connection.execute("UPDATE items SET item = '{' WHERE sk LIKE '%10#%'", []).unwrap();
    let listed = store.list_expired(Timestamp(30), 10).await.unwrap();
    let instances: Vec<String> = listed.damaged.into_iter().map(|damaged| damaged.instance).collect();
    assert_eq!((listed.readable, instances), (vec![whole], vec![damaged.instance_key()]));
}

/// The thread deletes items whose TTL is over, and no others. A deletion that reaches its limit is soon followed by the
/// next one.
#[tokio::test]
async fn expired_items_are_deleted_without_a_long_wait() {
    let (folder, table) = new_table();
    let mut later = addition("later", 1);
    let ttl = AttributeChange::Set(AttributeValue::N((1_u64 << 40).to_string()));
    later.expression.changes.insert("ttl".to_owned(), ttl);
    for write in [later, addition("never", 1)] {
        table.write(&write).await.unwrap();
    }
    let connection = connection(&folder);
    let many = "INSERT INTO items (pk, sk, item, sum, ttl)
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 2500)
        SELECT n, 'h', '{}', 0, n FROM numbers";
    connection.execute(many, []).unwrap();
    let next = [1, 2, 3].map(|_| super::table::write_queue::delete_expired(&connection).as_secs());
    assert_eq!(next, [1, 1, 60]);
    let left: Vec<String> = table.scan().unwrap().iter().map(|item| item["pk"].as_s().unwrap().clone()).collect();
    assert_eq!(left, ["later", "never"]);
}

#[tokio::test]
async fn objects_are_replaced_listed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = open_bucket(&folder.path().join("a/b"));
    bucket.put_object("outputs/r/1", vec![1]).await.unwrap();
    bucket.put_object("outputs/r/1", vec![b'x'; 300_000]).await.unwrap();
    let bucket = open_bucket(&folder.path().join("a/b"));
    let object = bucket.open_object("outputs/r/1").await.unwrap().unwrap();
    assert_eq!(object.bytes, Some(300_000));
    // An open object keeps its content when it is replaced.
    bucket.put_object("outputs/r/1", vec![2]).await.unwrap();
    assert_eq!(object.read().await.unwrap(), vec![b'x'; 300_000]);
    assert_eq!(bucket.get_object("outputs/r/1").await.unwrap(), Some(vec![2]));
    assert_eq!(bucket.get_object("outputs/r").await.unwrap(), None);

    for key in ["outputs/r/2", "outputs/r2/1", "outputs/r", "logs/r/1"] {
        bucket.put_object(key, vec![3]).await.unwrap();
    }
    let mut listed = bucket.list("outputs/r/").await.unwrap();
    listed.sort();
    assert_eq!(listed, ["outputs/r/1", "outputs/r/2"]);
    bucket.remove_all("outputs/r/").await.unwrap();
    bucket.remove("outputs/r/1").await.unwrap();
    let mut remaining = bucket.list("").await.unwrap();
    remaining.sort();
    assert_eq!(remaining, ["logs/r/1", "outputs/r", "outputs/r2/1"]);
}

#[tokio::test]
async fn any_key_is_a_file_of_the_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let (root, secret) = (folder.path().join("bucket"), folder.path().join("secret"));
    let bucket = open_bucket(&root);
    std::fs::write(&secret, "canary").unwrap();
    let absolute = secret.to_str().unwrap();
    let keys = [".", "..", "../secret", "a/../../secret", "a//b", "a/", "/", ".new-1", "%2E", "ü\0", absolute];
    for (number, key) in (0..).zip(keys) {
        bucket.put_object(key, vec![number]).await.unwrap();
    }
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), keys.len());
    for (number, key) in (0..).zip(keys) {
        assert_eq!(bucket.get_object(key).await.unwrap(), Some(vec![number]), "{key}");
        assert_eq!(bucket.list(key).await.unwrap().iter().filter(|listed| *listed == key).count(), 1, "{key}");
        bucket.remove(key).await.unwrap();
    }
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    assert_eq!(std::fs::read(&secret).unwrap(), b"canary");
    let error = bucket.put_object(&"x".repeat(256), vec![]).await.unwrap_err().to_string();
    assert!(error.starts_with("PutObject: "), "{error}");
}

#[tokio::test]
async fn an_unfinished_file_is_not_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = open_bucket(folder.path());
    bucket.put_object("a", vec![1]).await.unwrap();
    std::fs::write(folder.path().join(".new-x1"), "half").unwrap();
    assert_eq!(bucket.list("").await.unwrap(), ["a"]);
    assert_eq!(open_bucket(folder.path()).list("").await.unwrap(), ["a"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Runs a test of `s3.sh` with a server of buckets.
async fn requests(test: &str) {
    let folder = tempfile::tempdir().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let router = s3_router(folder.path()).unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/embedded/tests/s3.sh");
    let output = tokio::process::Command::new("sh").args([script, endpoint.as_str(), test]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

macro_rules! requests {
    ($($test:ident)*) => {$(
        #[tokio::test]
        async fn $test() {
            requests(stringify!($test)).await;
        }
    )*};
}

requests! {
    a_body_with_another_digest_is_rejected curl_can_use_the_server keys_cannot_leave_their_bucket
    requests_of_web_pages_are_rejected
}
