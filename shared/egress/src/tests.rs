use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let headers = vec![("retry-after".to_owned(), value.to_owned())];
    HttpResponse { headers, ..HttpResponse::new(503, "") }.retry_after(now)
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
        ("Tue, 14 Nov 2023 22:13:19 GMT", seconds(0)),
        ("Fri, 14 Nov 2098 22:13:19 GMT", seconds(86_400)),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
    ] {
        assert_eq!(retry_after(value, NOW), expected, "{value}");
    }
    assert_eq!(HttpResponse::new(503, "").retry_after(NOW), None);
}

proptest! {
    #[test]
    fn arbitrary_headers_do_not_panic(value in "\\PC{0,60}", digits in "[0-9]{0,40}", now in any::<u64>()) {
        for value in [value, digits] {
            let wait = retry_after(&value, Timestamp(now));
            prop_assert!(wait.is_none_or(|wait| wait <= MAX_RETRY_AFTER));
        }
    }
}
