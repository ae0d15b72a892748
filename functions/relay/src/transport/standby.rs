//! The ports of a relay that waits for its lease. It answers probes, and passes other connections on to the relay that works,
//! because Services select all relays of their namespace.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::lease::LeaderAddress;
use crate::lock;

/// Attempts to connect to the relay that works: longer than one needs to take a lease that was given up.
const CONNECTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// Serves a port until the future is dropped. Connections that are passed on continue then.
///
/// # Errors
/// Returns the error of the listener.
pub async fn stand_by(listener: TcpListener, leader: LeaderAddress) -> io::Result<()> {
    let port = listener.local_addr()?.port();
    loop {
        let (connection, _) = listener.accept().await?;
        tokio::spawn(pass_on(connection, port, Arc::clone(&leader)));
    }
}

async fn pass_on(mut from: TcpStream, port: u16, leader: LeaderAddress) -> io::Result<()> {
    let mut head = [0; 1 << 10];
    let bytes = from.read(&mut head).await?;
    let head = &head[..bytes];
    // Batches and reports are POST requests.
    if head.starts_with(b"GET ") {
        let is_ready = !head.starts_with(b"GET /readyz") || lock(&leader).is_some();
        let status = if is_ready { "200 OK" } else { "503 Service Unavailable" };
        let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        return from.write_all(response.as_bytes()).await;
    }
    for _ in 0..CONNECTS {
        let address = *lock(&leader);
        if let Some(address) = address
            && let Ok(Ok(mut to)) = timeout(PAUSE, TcpStream::connect((address, port))).await
        {
            to.write_all(head).await?;
            return copy_bidirectional(&mut from, &mut to).await.map(drop);
        }
        sleep(PAUSE).await;
    }
    Ok(())
}
