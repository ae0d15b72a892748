//! Events as Lambda gives them to functions: of an HTTP API (payload format 2.0), of the schedule, of a queue.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::cloudevents::LifecycleType;
use ebb_protocol::lifecycle::LifecycleData;
use ebb_protocol::sign::WebhookSecret;
use ebb_tests::platform::SignedRequest;
use serde_json::{Value, json};

/// How the HTTP API writes a body into an event: as text if its type is `text/*` or JSON, JavaScript or XML by their
/// plain names, and in base64 if it is another one, as `application/cloudevents+json` is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BodyEncoding {
    Text,
    Base64,
}

/// A request.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, String)], body: &[u8], how: BodyEncoding) -> Value {
    let headers: serde_json::Map<_, _> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let text = match how {
        BodyEncoding::Text => String::from_utf8_lossy(body).into_owned(),
        BodyEncoding::Base64 => STANDARD.encode(body),
    };
    json!({
        "version": "2.0",
        "routeKey": format!("{method} {path}"),
        "rawPath": path,
        "rawQueryString": "",
        "headers": headers,
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "entry",
            "domainName": "entry.execute-api.eu-west-1.amazonaws.com",
            "domainPrefix": "entry",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1",
                "userAgent": "test",
            },
            "requestId": "JKJaXmPLvHcESHA=",
            "routeKey": format!("{method} {path}"),
            "stage": "$default",
            "time": "22/Nov/2026:10:00:00 +0000",
            "timeEpoch": 1_795_341_600_000_u64,
        },
        "body": text,
        "isBase64Encoded": matches!(how, BodyEncoding::Base64),
    })
}

/// A request with a token.
pub(crate) fn with_token(method: &str, path: &str, token: &str, body: &Value, how: BodyEncoding) -> Value {
    let headers = [("authorization", format!("Bearer {token}")), ("content-type", "application/json".to_owned())];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    request(method, path, &headers, body.as_bytes(), how)
}

/// Returns a signed lifecycle webhook.
pub(crate) fn lifecycle(
    secret: &WebhookSecret,
    asked: LifecycleType,
    data: &LifecycleData,
    how: BodyEncoding,
) -> Value {
    let SignedRequest { headers, body } = SignedRequest::lifecycle(secret, asked, data);
    request("POST", "/v1/events", &headers, &body, how)
}

/// A minute of the schedule, as EventBridge Scheduler writes it to who is given no input of his own.
pub(crate) fn minute() -> Value {
    json!({
        "version": "0",
        "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa",
        "detail-type": "Scheduled Event",
        "source": "aws.scheduler",
        "account": "123456789012",
        "time": "2026-11-22T10:00:00Z",
        "region": "eu-west-1",
        "resources": ["arn:aws:scheduler:eu-west-1:123456789012:schedule/default/ebb-SweepMinute"],
        "detail": "{}",
    })
}

/// A batch of the queue, of messages by their ids.
pub(crate) fn batch(messages: &[(String, String)]) -> Value {
    let records = messages.iter().map(|(id, body)| {
        json!({
            "messageId": id,
            "receiptHandle": "handle",
            "body": body,
            "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1795341600000"},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:ebb",
            "awsRegion": "eu-west-1",
        })
    });
    json!({ "Records": records.collect::<Vec<_>>() })
}
