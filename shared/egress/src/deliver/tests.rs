use std::sync::Mutex;

use ebb_protocol::sign::{WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP, WebhookSecret, verify};
use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn secret() -> WebhookSecret {
    WebhookSecret::from_bytes(&[7; 32]).unwrap()
}

async fn delivered(response: CallResult<HttpResponse>) -> (DeliveryOutcome, HttpRequest) {
    let requests = Mutex::new(Vec::new());
    let call = |request: HttpRequest| {
        requests.lock().unwrap().push(request);
        response.clone()
    };
    let id = MessageId::parse("o-1").unwrap();
    let message = WebhookMessage {
        url: "https://platform.example.org/hooks",
        id: &id,
        content_type: "application/cloudevents+json",
        body: b"{\"a\":1}",
    };
    let delivery = deliver((&call, &ByteBudget::new(1)), &secret().into(), message, NOW).await;
    let mut requests = requests.into_inner().unwrap();
    assert_eq!(requests.len(), 1);
    (delivery, requests.remove(0))
}

fn status(status: u16, headers: &[(&str, &str)]) -> CallResult<HttpResponse> {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Ok(HttpResponse { status, headers, body: Vec::new() })
}

#[tokio::test]
async fn messages_are_signed() {
    let (_, request) = delivered(status(204, &[])).await;
    assert_eq!(request.method, "POST");
    assert_eq!(request.timeout, DELIVERY_TIMEOUT);
    let headers: http::HeaderMap =
        request.headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["content-type", WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE]);
    let verified = verify(&secret().into(), &headers, &request.body, NOW).unwrap();
    assert_eq!((verified.id.as_str(), verified.timestamp), ("o-1", NOW));
}

#[tokio::test]
async fn outcomes_of_responses() {
    let mut report = String::new();
    let hour = [("retry-after", "3600")];
    let date = [("date", "x"), ("retry-after", "Tue, 14 Nov 2023 22:15:20 GMT")];
    for given in [200, 202, 204, 299, 301, 308, 400, 401, 404, 409, 410, 429, 500, 503, 101, 999] {
        let headers: &[(&str, &str)] = match given {
            202 | 410 | 429 => &hour,
            503 => &date,
            _ => &[],
        };
        report.push_str(&format!("{given}: {:?}\n", delivered(status(given, headers)).await.0));
    }
    for error in [
        CallError::Refused("the address 10.0.0.1 is not allowed: private network".to_owned()),
        CallError::Connect("connection refused".to_owned()),
        CallError::Timeout(Duration::from_secs(15)),
        CallError::TooLarge(1 << 20),
    ] {
        report.push_str(&format!("{:?}\n", delivered(Err(error)).await.0));
    }
    insta::assert_snapshot!(report);
}

#[test]
fn retry_after_headers() {
    let wait = |value: &str| retry_after(&[("retry-after".to_owned(), value.to_owned())], NOW);
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
        assert_eq!(wait(value), expected, "{value}");
    }
    assert_eq!(retry_after(&[], NOW), None);
}

proptest! {
    #[test]
    fn arbitrary_headers_do_not_panic(value in "\\PC{0,60}", digits in "[0-9]{0,40}", now in any::<u64>()) {
        for value in [value, digits] {
            let wait = retry_after(&[("retry-after".to_owned(), value)], Timestamp(now));
            prop_assert!(wait.is_none_or(|wait| wait <= MAX_RETRY_AFTER));
        }
    }
}
