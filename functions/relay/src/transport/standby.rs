//! The ports of a relay that waits for its lease. It answers probes, and passes other connections on to the relay that works,
//! because Services select all relays of their namespace.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ebb_protocol::relay::RESPONSE_TIMEOUT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::lease::LeaderAddress;
use crate::lock;

/// Attempts to connect to the relay that works: longer than one needs to take a lease that was given up.
const CONNECTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);
/// Connections of a port at the same time. Any pod of a unit can open them.
const CONNECTIONS: u16 = 512;
/// The time within which a connection begins with a request.
const HEAD: Duration = Duration::from_secs(10);

/// Serves a port until the future is dropped, or until `ended`. Connections that are passed on continue then. After `ended`, it
/// waits for them as long as a control plane does.
///
/// # Errors
/// Returns the error of the listener.
pub async fn stand_by(listener: TcpListener, leader: LeaderAddress, ended: impl Future) -> io::Result<()> {
    let (port, permits) = (listener.local_addr()?.port(), Arc::new(Semaphore::new(usize::from(CONNECTIONS))));
    let mut ended = pin!(ended);
    loop {
        let next = async {
            // This fails only if the semaphore is closed, which never happens.
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            next = next => next,
            _ = &mut ended => break,
        };
        // The listener works on: the process has too many open files, or a waiting connection has ended.
        let Ok((connection, _)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let leader = Arc::clone(&leader);
        tokio::spawn(async move {
            let _permit = permit;
            pass_on(connection, port, leader).await
        });
    }
    let _ = timeout(RESPONSE_TIMEOUT, permits.acquire_many(u32::from(CONNECTIONS))).await;
    Ok(())
}

async fn pass_on(mut from: TcpStream, port: u16, leader: LeaderAddress) -> io::Result<()> {
    let mut head = [0; 1 << 10];
    let bytes = timeout(HEAD, from.read(&mut head)).await??;
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
