//! Bodies of requests: none is waited for that cannot be taken, and there is room for so many at one time.

use ebb_protocol::engine::Timestamp;
use ebb_protocol::entrypoint::REPORT_BODY;
use ebb_protocol::sign::{MessageId, sign};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fixture::*;

const MIB: usize = 1 << 20;
/// Bytes of the largest batch, of which there is room for two.
const BATCH: usize = 32 * MIB;
/// How many of the largest reports there is room for.
const REPORTS: usize = 8;

/// Sends the head of a request, and nothing of its body.
async fn begin(port: u16, path: &str, length: usize, headers: &[(&str, String)]) -> TcpStream {
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: relay\r\ncontent-length: {length}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    connection.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    connection
}

/// The status that comes within a time; `None`: none.
async fn answered(connection: &mut TcpStream, within: Duration) -> Option<u16> {
    let mut status = [0; 12];
    tokio::time::timeout(within, connection.read_exact(&mut status)).await.ok()?.unwrap();
    std::str::from_utf8(&status[9..]).unwrap().parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies() {
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
    // Judged by their heads alone.
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
        let mut connection = begin(fixture.port(), path, length, &headers).await;
        assert_eq!(answered(&mut connection, soon).await, Some(expected), "{path} {length} {headers:?}");
    }
    // All that there is room for. The body of one more is waited for no longer than its sender waits.
    let mut held = Vec::new();
    let all = std::iter::repeat_n((batch, BATCH, signed(now)), 2);
    for (path, length, mut headers) in all.chain(std::iter::repeat_n((report, REPORT_BODY, own.clone()), REPORTS)) {
        // Says when it begins to wait for the body.
        headers.push(("expect", "100-continue".to_owned()));
        let mut connection = begin(fixture.port(), path, length, &headers).await;
        assert_eq!(answered(&mut connection, soon).await, Some(100), "{path}");
        held.push(connection);
    }
    let mut late = begin(fixture.port(), batch, MIB, &signed(now)).await;
    let running = json!({"v": 1, "logBytes": 0, "state": "running"}).to_string();
    let large = format!("{running:<20000}");
    let mut waits = begin(fixture.port(), report, large.len(), &own).await;
    waits.write_all(large.as_bytes()).await.unwrap();
    // What is small needs none.
    let mut small = begin(fixture.port(), report, running.len(), &own).await;
    small.write_all(running.as_bytes()).await.unwrap();
    assert_eq!(answered(&mut small, soon).await, Some(204));
    fixture.get(&unit).await;
    assert_eq!(answered(&mut late, soon).await, Some(429));
    assert_eq!(answered(&mut waits, Duration::from_secs(1)).await, None);
    // It is given back by who goes away.
    drop(held);
    assert_eq!(answered(&mut waits, soon).await, Some(204));
    // Read to its end, and only then found to be none.
    let full = json!({"cluster": "x".repeat(31 * MIB), "requests": [], "unknown": 1, "v": 1});
    let (status, said) = fixture.post(&full, &secret).await.unwrap();
    assert!(status == 400 && said.contains("`unknown`"), "{status} {said}");
    fixture.state(cancel(&unit)).await;
    fixture.close().await;
}
