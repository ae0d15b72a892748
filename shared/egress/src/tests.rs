use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// Returns a response with headers such as `retry-after: 1`, separated by ` & `.
fn response(status: u16, headers: &str) -> HttpResponse {
    let headers = headers.split(" & ").filter_map(|header| header.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    HttpResponse { headers, ..HttpResponse::new(status, "") }
}

fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    response(503, &format!("retry-after: {value}")).retry_after(now)
}

#[test]
fn retry_after_headers() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (value, expected) in [
        ("0", seconds(0)),
        ("120", seconds(120)),
        (" 120 ", seconds(120)),
        ("86400", seconds(86_400)),
        ("86401", seconds(86_400)),
        ("99999999999999999999999", seconds(86_400)),
        ("Tue, 14 Nov 2023 22:13:21 GMT", seconds(1)),
        ("Tuesday, 14-Nov-23 22:13:21 GMT", seconds(1)),
        ("Tue Nov 14 22:13:21 2023", seconds(1)),
        ("Tue, 14 Nov 2023 22:13:20 GMT", seconds(0)),
        ("Tue, 14 Nov 2023 22:13:19 GMT", None),
        ("Fri, 14 Nov 2098 22:13:19 GMT", seconds(86_400)),
        ("1.5", Some(Duration::from_millis(1_500))),
        (".0001", Some(Duration::from_millis(1))),
        ("", None),
        (".", None),
        ("-1", None),
        ("1e3", None),
        ("inf", None),
        ("soon", None),
    ] {
        assert_eq!(retry_after(value, NOW), expected, "{value}");
    }
    assert_eq!(HttpResponse::new(503, "").retry_after(NOW), None);
}

/// Each row has a status, headers, the wait in seconds, and the shown status if it differs.
#[test]
fn limits_of_requests() {
    let of_github = "x-ratelimit-limit: 60 & x-ratelimit-remaining: 0 & x-ratelimit-reset: 1700001800";
    for (status, headers, wait, shown) in [
        (403, of_github, Some(1800), "403 (no requests left)"),
        (200, of_github, None, ""),
        (202, of_github, None, ""),
        (404, of_github, None, ""),
        (503, of_github, Some(1800), "503 (no requests left)"),
        (503, "x-ratelimit-remaining: 5 & x-ratelimit-reset: 60", None, ""),
        (403, "x-ratelimit-remaining: 1 & x-ratelimit-reset: 60", None, ""),
        (403, "retry-after: 60", Some(60), "403 (no requests left)"),
        (403, "x-ratelimit-remaining: 0", Some(30), "403 (no requests left)"),
        (403, "ratelimit-remaining: 0 & ratelimit-reset: 7", Some(7), "403 (no requests left)"),
        (429, "", Some(30), ""),
        (429, "retry-after: 0 & x-ratelimit-reset: 60", Some(0), ""),
        (429, "retry-after: soon", Some(30), ""),
        (429, "retry-after: Tue, 14 Nov 2023 22:13:19 GMT & x-ratelimit-reset: 60", Some(60), ""),
        (429, "retry-after-ms: 250", Some(1), ""),
        (200, "retry-after-ms: 3000", Some(3), ""),
        (429, "x-ratelimit-reset-after: 2.5 & x-ratelimit-reset: 60", Some(3), ""),
        (429, "x-ratelimit-reset: 1700000060", Some(60), ""),
        (429, "x-ratelimit-reset: 1700000060000", Some(60), ""),
        (429, "x-ratelimit-reset: 1699999999", Some(30), ""),
        (429, "x-ratelimit-reset: 99999999999999999999", Some(86_400), ""),
        (429, "x-ratelimit-reset: 6m0s", Some(30), ""),
        (429, "ratelimit-reset: 1700000060", Some(60), ""),
        (429, "ratelimit: limit=100, remaining=0, reset=5", Some(5), ""),
        (429, "ratelimit: \"default\";r=0;t=40", Some(40), ""),
        (429, "ratelimit: \"minute\";r=3;t=40, \"hour\";r=0;t=900", Some(900), ""),
        (403, "ratelimit: \"default\";r=0;t=40", Some(40), "403 (no requests left)"),
        (403, "ratelimit: \"default\";r=1;t=40", None, ""),
        (200, "ratelimit: limit=100, remaining=0, reset=5", None, ""),
    ] {
        let response = response(status, headers);
        assert_eq!(response.retry_after_seconds(NOW), wait, "{status} {headers}");
        let expected = if shown.is_empty() { status.to_string() } else { shown.to_owned() };
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
