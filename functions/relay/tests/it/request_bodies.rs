//! Limits of the bodies of batches and reports: many requests are rejected by their heads, and few bodies are buffered.

use ebb_protocol::entrypoint::REPORT_BODY;
use ebb_protocol::sign::sign;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fixture::*;

const MIB: usize = 1 << 20;
/// Maximum bytes of a batch. The relay buffers two such batches at once.
const BATCH: usize = 32 * MIB;
/// Number of reports of the maximum size that the relay buffers at once.
const REPORTS: usize = 8;

async fn send_head(port: u16, path: &str, length: usize, headers: &[(&str, String)]) -> TcpStream {
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: relay\r\ncontent-length: {length}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    connection.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    connection
}

async fn status_within(connection: &mut TcpStream, within: Duration) -> Option<u16> {
    let mut status = [0; 12];
    tokio::time::timeout(within, connection.read_exact(&mut status)).await.ok()?.unwrap();
    std::str::from_utf8(&status[9..]).unwrap().parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_request_bodies() {
    let fixture = RelayFixture::new("bodies", &[]).await;
    let unit = name("unit", 1);
    fixture.apply(&unit, ObjectTask { until: ready_if("false"), ..objects(vec![config_map("map")]) }).await;
    let record = fixture.record("unit").await;
    let bearer = |token: &str| vec![("authorization", format!("Bearer {token}"))];
    let own = bearer(record["spec"]["token"].as_str().unwrap());
    let secret = WebhookSecret::from_bytes(&[7; 32]).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = now.as_millis() as u64;
    let signed = |at: u64| sign(&secret, &MessageId::parse("m").unwrap(), Timestamp(at), b"").to_vec();
    let mut other = signed(now);
    other[2].1 = "v1a,AAAA".to_owned();
    // The relay rejects these by their heads.
    let (batch, report, soon) = ("/v1/batch", "/v1/reports/unit/1", Duration::from_secs(10));
    for (path, length, headers, expected) in [
        (batch, MIB, vec![], 401),
        (batch, MIB, signed(now - 600_000), 401),
        (batch, MIB, other, 401),
        (batch, BATCH + 1, signed(now), 413),
        (report, MIB, vec![], 401),
        (report, MIB, bearer("another"), 401),
        ("/v1/reports/none/1", MIB, own.clone(), 410),
        (report, REPORT_BODY + 1, own.clone(), 413),
    ] {
        let mut connection = send_head(fixture.port, path, length, &headers).await;
        assert_eq!(status_within(&mut connection, soon).await, Some(expected), "{path} {length} {headers:?}");
    }
    // Requests without bodies fill the buffers. A further batch is rejected before its sender times out.
    let mut connections = Vec::new();
    let batches = std::iter::repeat_n((batch, BATCH, signed(now)), 2);
    for (path, length, mut headers) in batches.chain(std::iter::repeat_n((report, REPORT_BODY, own.clone()), REPORTS)) {
        // With this header, the relay responds with 100 when it starts to read the body.
        headers.push(("expect", "100-continue".to_owned()));
        let mut connection = send_head(fixture.port, path, length, &headers).await;
        assert_eq!(status_within(&mut connection, soon).await, Some(100), "{path}");
        connections.push(connection);
    }
    let mut rejected = send_head(fixture.port, batch, MIB, &signed(now)).await;
    let running = json!({"v": 1, "logBytes": 0, "state": "running"}).to_string();
    let large = format!("{running:<20000}");
    let mut queued = send_head(fixture.port, report, large.len(), &own).await;
    queued.write_all(large.as_bytes()).await.unwrap();
    // A small body needs no buffer.
    let mut small = send_head(fixture.port, report, running.len(), &own).await;
    small.write_all(running.as_bytes()).await.unwrap();
    assert_eq!(status_within(&mut small, soon).await, Some(204));
    fixture.get(&unit).await;
    assert_eq!(status_within(&mut rejected, soon).await, Some(429));
    assert_eq!(status_within(&mut queued, Duration::from_secs(1)).await, None);
    // Closed connections release their buffers.
    drop(connections);
    assert_eq!(status_within(&mut queued, soon).await, Some(204));
    // The relay reads this body to its end and rejects it then.
    let full = json!({"cluster": "x".repeat(31 * MIB), "requests": [], "v": 1});
    let (status, body) = fixture.post(&full, &secret).await.unwrap();
    assert!(status == 409 && body.contains("the batch is for cluster x") && body.len() < 1_000, "{status} {body}");
    // The body of a batch, or of a report, has a wrong form.
    assert_eq!(fixture.post(&json!({"v": 1, "requests": []}), &secret).await.unwrap().0, 400);
    let mut malformed = send_head(fixture.port, report, 2, &own).await;
    malformed.write_all(b"{}").await.unwrap();
    assert_eq!(status_within(&mut malformed, soon).await, Some(400));
    fixture.state(cancel(&unit)).await;
    fixture.close().await;
}
