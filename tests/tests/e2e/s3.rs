//! A bucket with files in it, gone with the sandbox.

use crate::workdir::{Workdir, example};

pub(crate) const SANDBOX: &str = "reports-pr-42";
const KEYS: [&str; 4] = ["customers/1.json", "customers/2.json", "orders/2026-11.json", "settings.json"];

/// A question to the S3 endpoint, unsigned: status and body.
async fn ask(url: &str) -> (u16, String) {
    let answer = reqwest::get(url).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

fn all<'a>(xml: &'a str, tag: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    xml.split(open.as_str()).skip(1).filter_map(|rest| rest.split_once(close.as_str())).map(|(text, _)| text).collect()
}

/// The names of all buckets.
pub(crate) async fn buckets(s3: &str) -> Vec<String> {
    let (status, xml) = ask(&format!("{s3}/")).await;
    assert_eq!(status, 200, "{xml}");
    all(&xml, "Name").into_iter().map(str::to_owned).collect()
}

/// That there is exactly one bucket, this one, with the seed files.
pub(crate) async fn holds_the_seed(s3: &str, bucket: &str) {
    assert_eq!(buckets(s3).await, [bucket]);
    let (status, xml) = ask(&format!("{s3}/{bucket}?list-type=2")).await;
    assert_eq!(status, 200, "{xml}");
    assert_eq!(all(&xml, "Key"), KEYS.map(|key| format!("seed/files/{key}")));
    let (status, text) = ask(&format!("{s3}/{bucket}/seed/files/settings.json")).await;
    assert_eq!((status, text.as_str()), (200, r#"{"currency": "EUR", "locale": "en"}"#));
}

/// `NAME = VALUE` among lines.
pub(crate) fn value<'a>(lines: &'a str, name: &str) -> &'a str {
    let found = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    found.unwrap_or_else(|| panic!("no {name} in:\n{lines}"))
}

#[tokio::test]
async fn dev_apply_and_delete() {
    let place = Workdir::new();
    let dev = place.dev().await;
    place.ebb(&["plugin", "apply", "-f", &example("s3/plugin.yaml")]).await.done();
    let ran = place.ebb(&["sandbox", "apply", "-f", &example("s3/sandbox.yaml")]).await.done();
    let bucket = value(&ran.stdout, "files.provision.bucket-name");
    holds_the_seed(&dev.s3, bucket).await;

    let got = place.ebb(&["sandbox", "get", SANDBOX]).await.done();
    assert_eq!(value(&got.stdout, "files.provision.bucket-name"), bucket);
    assert_eq!(value(&got.stdout, "files.seed.base-prefix"), "seed/files/");
    let uid = place.get(SANDBOX).await.info.uid;

    place.ebb(&["sandbox", "delete", SANDBOX]).await.done();
    assert_eq!(ask(&format!("{}/{bucket}?list-type=2", dev.s3)).await.0, 404);
    assert_eq!(buckets(&dev.s3).await, [""; 0]);
    place.no_script_runs().await;
    assert_eq!(place.outcomes(&uid), ["dev.ebb.target.ready.v1", "dev.ebb.target.gone.v1"]);
    dev.stop().await;
}
