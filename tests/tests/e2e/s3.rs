//! The example `s3`: a bucket with files, which is deleted with the sandbox.

pub(crate) const SANDBOX: &str = "reports-pr-42";
const KEYS: [&str; 4] = ["customers/1.json", "customers/2.json", "orders/2026-11.json", "settings.json"];

/// Sends an unsigned request to the S3 endpoint. Returns the status and the body.
pub(crate) async fn get(url: &str) -> (u16, String) {
    let response = reqwest::get(url).await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// Returns the contents of the elements with a tag.
pub(crate) fn tags<'a>(xml: &'a str, tag: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    xml.split(open.as_str()).skip(1).filter_map(|rest| rest.split_once(close.as_str())).map(|(text, _)| text).collect()
}

/// Returns the names of all buckets.
pub(crate) async fn buckets(s3: &str) -> Vec<String> {
    let (status, xml) = get(&format!("{s3}/")).await;
    assert_eq!(status, 200, "{xml}");
    tags(&xml, "Name").into_iter().map(str::to_owned).collect()
}

/// Checks that this is the only bucket, and that it has the seed files.
pub(crate) async fn assert_seeded(s3: &str, bucket: &str) {
    assert_eq!(buckets(s3).await, [bucket]);
    let (status, xml) = get(&format!("{s3}/{bucket}?list-type=2")).await;
    assert_eq!(status, 200, "{xml}");
    assert_eq!(tags(&xml, "Key"), KEYS.map(|key| format!("seed/files/{key}")));
    let (status, text) = get(&format!("{s3}/{bucket}/seed/files/settings.json")).await;
    assert_eq!((status, text.as_str()), (200, r#"{"currency": "EUR", "locale": "en"}"#));
}

/// Returns the value of a name in lines of the form `NAME = VALUE`.
pub(crate) fn value<'a>(lines: &'a str, name: &str) -> &'a str {
    let found = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    found.unwrap_or_else(|| panic!("no {name} in:\n{lines}"))
}
