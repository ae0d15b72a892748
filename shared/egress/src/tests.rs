use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// Returns a response with headers such as `retry-after: 1`, separated by ` & `.
fn response(status: u16, headers: &str) -> HttpResponse {
    let headers = headers.split(" & ").filter_map(|header| header.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    HttpResponse { headers, ..HttpResponse::new(status, "") }
}

#[test]
fn retry_after_headers() {
    // Each row has a value and the wait in milliseconds.
    let rows: Vec<(String, Option<u64>)> = serde_json::from_str(include_str!("../tests/retry_after.json")).unwrap();
    for (value, expected) in rows {
        let answer = response(503, &format!("retry-after: {value}"));
        assert_eq!(answer.retry_after(NOW), expected.map(Duration::from_millis), "{value}");
    }
    assert_eq!(HttpResponse::new(503, "").retry_after(NOW), None);
}

/// Each row has a status, headers, the wait in seconds, the shown status if it differs, and a body.
#[test]
fn limits_of_requests() {
    let rows: Vec<(u16, String, Option<u64>, String, String)> =
        serde_json::from_str(include_str!("../tests/limits_of_requests.json")).unwrap();
    for (status, headers, wait, shown, body) in rows {
        let response = HttpResponse { body: body.into(), ..response(status, &headers) };
        assert_eq!(response.retry_after_seconds(NOW), wait, "{status} {headers}");
        let expected = if shown.is_empty() { status.to_string() } else { shown };
        assert_eq!(response.status_text(), expected, "{status} {headers}");
    }
}

proptest! {
    #[test]
    fn arbitrary_headers_do_not_panic(value in "\\PC{0,60}", digits in "[0-9]{0,40}", now in any::<u64>()) {
        for value in [value, digits] {
            for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset", "x-ratelimit-reset-after", "ratelimit"] {
                let wait = response(429, &format!("{name}: {value}")).retry_after(Timestamp(now));
                prop_assert!(wait.is_some_and(|wait| wait <= MAX_RETRY_AFTER));
            }
        }
    }
}
