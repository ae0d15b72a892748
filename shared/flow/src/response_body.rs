//! Reads the body of a response of a foreign server.

use ebb_protocol::limits;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Returns a body without the byte order mark of UTF-8, which some servers send.
pub(crate) fn unmarked(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

/// Returns true if a body is JSON, also if it has too many values.
pub(crate) fn is_json(body: &[u8]) -> bool {
    // A value is stricter than one that is ignored: its texts are Unicode.
    parse(body, limits::JSON_VALUES).is_err() || serde_json::from_slice::<Value>(unmarked(body)).is_ok()
}

/// Returns a body as JSON. A body that is not JSON is a text.
///
/// # Errors
/// Returns the problem of JSON with more than `max_values`.
pub(crate) fn parse(body: &[u8], max_values: usize) -> Result<Value, String> {
    let body = unmarked(body);
    let text = || Value::String(String::from_utf8_lossy(body).into_owned());
    match limits::check_json_values(body, max_values) {
        Ok(_) => Ok(serde_json::from_slice(body).unwrap_or_else(|_| text())),
        // A long text can have as many commas.
        Err(problem) => match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => Err(problem),
            Err(_) => Ok(text()),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_of_many_values_is_refused() {
        assert_eq!(parse(b"[1,2]", 3), Ok(json!([1, 2])));
        assert_eq!(parse(b"[1,2]", 2), Err("3 JSON values; the limit is 2".to_owned()));
        assert_eq!(parse(b"a,b,c,d", 2), Ok(json!("a,b,c,d")));
        assert_eq!(parse(b"a\xff", 2), Ok(json!("a\u{fffd}")));
        assert_eq!(parse(b"\xef\xbb\xbf[1]", 2), Ok(json!([1])));
    }
}
