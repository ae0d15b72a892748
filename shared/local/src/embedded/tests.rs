use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ReturnValue,
    ReturnValuesOnConditionCheckFailure, ScalarAttributeType,
};

use ebb_store::{Bucket as _, ObjectStore as _};

use super::{EmbeddedTable, FolderBucket, S3Server};

async fn create_table(client: &aws_sdk_dynamodb::Client) {
    let attribute = AttributeDefinition::builder().attribute_name("pk").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash);
    let request = client.create_table().table_name("test").billing_mode(BillingMode::PayPerRequest);
    let request = request.attribute_definitions(attribute.build().unwrap()).key_schema(key.build().unwrap());
    request.send().await.unwrap();
}

async fn add(client: &aws_sdk_dynamodb::Client, key: &str, number: u32) -> bool {
    let response = client
        .update_item()
        .table_name("test")
        .key("pk", AttributeValue::S(key.to_owned()))
        .update_expression("ADD done :n")
        .condition_expression("NOT contains(done, :m)")
        .expression_attribute_values(":n", AttributeValue::Ns(vec![number.to_string()]))
        .expression_attribute_values(":m", AttributeValue::N(number.to_string()))
        .return_values(ReturnValue::AllNew)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await;
    match response {
        Ok(response) => response.attributes.is_some(),
        Err(error) => {
            let rejection = error.into_service_error();
            assert!(rejection.is_conditional_check_failed_exception(), "{rejection:?}");
            false
        }
    }
}

async fn numbers(client: &aws_sdk_dynamodb::Client, key: &str) -> Vec<u32> {
    let request = client.get_item().table_name("test").key("pk", AttributeValue::S(key.to_owned()));
    let item = request.consistent_read(true).send().await.unwrap().item.unwrap();
    let mut numbers: Vec<u32> = item["done"].as_ns().unwrap().iter().map(|n| n.parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test]
async fn a_table_persists_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let client = EmbeddedTable::open(&folder.path().join("a/b")).unwrap();
    create_table(&client).await;
    assert!(add(&client, "x", 1).await);
    assert!(!add(&client, "x", 1).await);
    drop(client);
    let client = EmbeddedTable::open(&folder.path().join("a/b")).unwrap();
    assert!(add(&client, "x", 2).await);
    assert_eq!(numbers(&client, "x").await, [1, 2]);
}

#[tokio::test]
async fn the_error_of_a_damaged_table_has_its_recovery() {
    let folder = tempfile::tempdir().unwrap();
    let client = EmbeddedTable::open(folder.path()).unwrap();
    create_table(&client).await;
    for number in 0..200 {
        add(&client, &format!("{number}{}", "x".repeat(500)), number).await;
    }
    drop(client);
    let file = EmbeddedTable::file(folder.path());
    // Moves the data from the write-ahead log into the file.
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    let mut bytes = std::fs::read(&file).unwrap();
    assert!(bytes.len() > 100_000);
    let middle = bytes.len() / 2;
    bytes[middle..middle + 20_000].fill(0xa5);
    std::fs::write(&file, bytes).unwrap();
    let error = EmbeddedTable::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("table.sqlite is damaged (") && error.contains(".recover"), "{error}");
    std::fs::write(&file, "something else, and longer than the header of a database: ".repeat(10)).unwrap();
    let error = EmbeddedTable::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("table.sqlite is damaged (file is not a database)"), "{error}");
}

/// A variable with the folder of the table, in the child process.
const KILLED: &str = "EBB_TEST_KILLED_FOLDER";

/// The test starts itself in a child process and kills it after 100 writes.
#[tokio::test]
async fn acknowledged_writes_survive_a_kill() {
    if let Ok(folder) = std::env::var(KILLED) {
        let client = EmbeddedTable::open(Path::new(&folder)).unwrap();
        create_table(&client).await;
        for number in 0.. {
            assert!(add(&client, "x", number).await);
            println!("written {number}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["embedded::tests::acknowledged_writes_survive_a_kill", "--exact", "--nocapture"])
        .env(KILLED, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let last = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .filter_map(|line| line.unwrap().strip_prefix("written ").map(|number| number.parse::<u32>().unwrap()))
        .nth(100);
    child.kill().unwrap();
    child.wait().unwrap();
    let client = EmbeddedTable::open(folder.path()).unwrap();
    let numbers = numbers(&client, "x").await;
    assert_eq!(last, Some(100));
    assert!(numbers.len() > 100);
    assert!(numbers.iter().copied().eq(0..numbers.len() as u32));
}

#[tokio::test]
async fn objects_are_replaced_listed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = FolderBucket::open(&folder.path().join("a/b")).unwrap();
    bucket.put_object("outputs/r/1", vec![1]).await.unwrap();
    bucket.put_object("outputs/r/1", vec![b'x'; 300_000]).await.unwrap();
    let bucket = FolderBucket::open(&folder.path().join("a/b")).unwrap();
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
    let bucket = FolderBucket::open(&root).unwrap();
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
    let bucket = FolderBucket::open(folder.path()).unwrap();
    bucket.put_object("a", vec![1]).await.unwrap();
    std::fs::write(folder.path().join(".new-x1"), "half").unwrap();
    assert_eq!(bucket.list("").await.unwrap(), ["a"]);
    assert_eq!(FolderBucket::open(folder.path()).unwrap().list("").await.unwrap(), ["a"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Returns the status and the body of a response to `curl`.
async fn curl(arguments: &[&str]) -> (u16, String) {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let output = tokio::task::spawn_blocking(move || {
        Command::new("curl").args(["-sS", "-w", "\n%{http_code}"]).args(arguments).output().unwrap()
    });
    let output = String::from_utf8(output.await.unwrap().stdout).unwrap();
    let (body, status) = output.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn curl_can_use_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = S3Server::start(folder.path(), 0).await.unwrap();
    let bucket = format!("{}/my-bucket", server.endpoint());
    let bucket = bucket.as_str();
    assert_eq!(curl(&["-I", bucket]).await.0, 404);
    assert_eq!(curl(&["-X", "PUT", bucket]).await.0, 200);
    assert_eq!(curl(&["-I", bucket]).await.0, 200);
    let (status, body) = curl(&["-X", "PUT", bucket]).await;
    assert_eq!((status, body.contains("BucketAlready")), (409, true), "{body}");

    let signed = ["--aws-sigv4", "aws:amz:eu-west-1:s3", "--user", "AKIAFOREIGN:secret"];
    for name in ["a/1", "a/2", "a/3", "b/1"] {
        let url = format!("{bucket}/{name}");
        let put = [&signed[..], &["-X", "PUT", "--data-binary", "hello", &url]].concat();
        assert_eq!(curl(&put).await.0, 200);
    }
    assert_eq!(curl(&[&format!("{bucket}/a/1")]).await, (200, "hello".to_owned()));
    let (status, listed) = curl(&[&format!("{bucket}?list-type=2&prefix=a/")]).await;
    assert_eq!((status, listed.matches("<Key>").count()), (200, 3), "{listed}");
    let (_, page) = curl(&[&format!("{bucket}?list-type=2&prefix=a/&max-keys=2")]).await;
    assert!(page.contains("<IsTruncated>true</IsTruncated>") && page.matches("<Key>").count() == 2, "{page}");
    let token = page.split("<NextContinuationToken>").nth(1).unwrap().split('<').next().unwrap();
    let next = format!("{bucket}?list-type=2&prefix=a/&max-keys=2&continuation-token={token}");
    let (_, page) = curl(&[&next]).await;
    assert!(page.contains("<Key>a/3</Key>") && page.matches("<Key>").count() == 1, "{page}");

    let (status, body) = curl(&["-X", "DELETE", bucket]).await;
    assert_eq!((status, body.contains("BucketNotEmpty")), (409, true), "{body}");
    for name in ["a/1", "a/2", "a/3", "a/4"] {
        assert_eq!(curl(&["-X", "DELETE", &format!("{bucket}/{name}")]).await.0, 204);
    }
    let delete = "<Delete><Object><Key>b/1</Key></Object></Delete>";
    let (status, body) = curl(&["-X", "POST", "--data-binary", delete, &format!("{bucket}?delete")]).await;
    assert_eq!((status, body.contains("<Deleted>")), (200, true), "{body}");
    assert_eq!(curl(&["-X", "DELETE", bucket]).await.0, 204);
    assert_eq!(curl(&["-X", "DELETE", bucket]).await.0, 404);
    assert_eq!(curl(&["-I", bucket]).await.0, 404);
}

#[tokio::test]
async fn keys_cannot_leave_their_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let server = S3Server::start(folder.path(), 0).await.unwrap();
    let endpoint = server.endpoint();
    for bucket in ["one", "two"] {
        assert_eq!(curl(&["-X", "PUT", &format!("{endpoint}/{bucket}")]).await.0, 200);
    }
    let secret = format!("{endpoint}/two/secret");
    assert_eq!(curl(&["-X", "PUT", "--data-binary", "canary", &secret]).await.0, 200);
    for key in ["../two/secret", "a/../../two/secret", "%2E%2E/two/secret", "./../two/secret", "/two/secret"] {
        let url = format!("{endpoint}/one/{key}");
        for request in [&["-X", "GET"][..], &["-X", "PUT", "--data-binary", "taken"], &["-X", "DELETE"]] {
            let (status, body) = curl(&[request, &["--path-as-is", &url]].concat()).await;
            assert_eq!((status, body.contains("InvalidArgument")), (400, true), "{key}: {body}");
        }
        let source = format!("x-amz-copy-source: /one/{key}");
        let (status, body) = curl(&["-X", "PUT", "-H", &source, &format!("{endpoint}/one/copy")]).await;
        assert_eq!(status, 400, "{key}: {body}");
    }
    let delete = "<Delete><Object><Key>../two/secret</Key></Object></Delete>";
    let (status, body) = curl(&["-X", "POST", "--data-binary", delete, &format!("{endpoint}/one?delete")]).await;
    assert_eq!(status, 400, "{body}");
    assert_eq!(curl(&[&secret]).await, (200, "canary".to_owned()));
}

/// The request fails, although the emulator has replaced the object.
#[tokio::test]
async fn a_body_with_another_digest_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let server = S3Server::start(folder.path(), 0).await.unwrap();
    let bucket = format!("{}/one", server.endpoint());
    assert_eq!(curl(&["-X", "PUT", &bucket]).await.0, 200);
    // Digests of "hello" by `openssl dgst -binary` and base64.
    for digest in
        ["content-md5: XUFAKrxLKna5cZ2REBfFkg==", "x-amz-checksum-sha256: LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="]
    {
        for (body, expected) in [("hello", 200), ("other", 400)] {
            let url = format!("{bucket}/object");
            let (status, response) = curl(&["-X", "PUT", "-H", digest, "--data-binary", body, &url]).await;
            assert_eq!(status, expected, "{digest}: {response}");
        }
    }
}

#[tokio::test]
async fn requests_of_web_pages_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let server = S3Server::start(folder.path(), 0).await.unwrap();
    let bucket = format!("{}/one", server.endpoint());
    for (host, status) in [("evil.test", 421), ("127.0.0.1.evil.test", 421), ("localhost:1", 200), ("[::1]", 200)] {
        let header = format!("host: {host}");
        let found = curl(&["-X", "PUT", "-H", &header, &format!("{bucket}-{status}-{}", host.len())]).await;
        assert_eq!(found.0, status, "{host}: {}", found.1);
    }
    assert_eq!(curl(&["-X", "PUT", &bucket]).await.0, 200);
    let (status, body) = curl(&["-F", "key=form", "-F", "file=hello", &bucket]).await;
    assert_eq!(status, 501, "{body}");
    assert_eq!(curl(&[&format!("{bucket}/form")]).await.0, 404);
}

#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = S3Server::start(folder.path(), 0).await.unwrap();
    let port = server.endpoint().rsplit(':').next().unwrap().parse().unwrap();
    let error = S3Server::start(folder.path(), port).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("port {port}")), "{error}");
}
