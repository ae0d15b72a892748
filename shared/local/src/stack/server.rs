//! The HTTP server of one machine. A complete request is processed even if its client disconnects.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use futures::FutureExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tower::ServiceExt as _;

use crate::open_files;

/// The timeout of the head of a request, and of an idle connection. Ebb's own clients close idle connections earlier.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The same while few further connections can be opened.
const SHORT_HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for which a closed connection is still read.
const LINGER: Duration = Duration::from_secs(2);
/// The maximum number of bytes that are read from a closed connection. It exceeds several of the largest bodies.
const LINGER_BYTES: u64 = 16 << 20;
/// The pause after a connection could not be accepted, for example because of too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn serve(listener: TcpListener, router: Router, stopped: watch::Receiver<bool>) {
    serve_within(HEAD_TIMEOUT, listener, router, stopped).await;
}

async fn serve_within(head: Duration, listener: TcpListener, router: Router, mut stopped: watch::Receiver<bool>) {
    let all = open_files::places();
    let places = Arc::new(Semaphore::new(all));
    loop {
        // Further connections wait in the queue of the system. The semaphore is never closed.
        let accept = async { (Arc::clone(&places).acquire_owned().await, listener.accept().await) };
        let (place, accepted) = tokio::select! {
            // An error means that the stack was dropped, which is also a stop.
            _ = stopped.wait_for(|&stopped| stopped) => return,
            accepted = accept => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // Idle connections would keep out others.
                let keep_alive = places.available_permits() > all / 2;
                let head = if keep_alive { head } else { head.min(SHORT_HEAD_TIMEOUT) };
                let response = respond(head, stream, router.clone(), keep_alive, stopped.clone());
                tokio::spawn(async move {
                    response.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves the requests of one connection. When the stack stops, the current request is the last one.
async fn respond(
    head: Duration,
    stream: TcpStream,
    router: Router,
    keep_alive: bool,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(move |request: Request<Incoming>| router.clone().oneshot(request.map(Body::new)).boxed());
    // Without half-closed connections, a request whose client closes at once is dropped before its handler starts.
    let mut connection = http1::Builder::new()
        .half_close(true)
        .keep_alive(keep_alive)
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .serve_connection(TokioIo::new(stream), service);
    // An error means that the stack was dropped, which is also a stop.
    let stop = stopped.wait_for(|&stopped| stopped).map(drop);
    let ended = tokio::select! {
        ended = poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
        () = stop => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            poll_fn(|context| connection.poll_without_shutdown(context)).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection failed");
        return;
    }
    close(connection.into_parts().io.into_inner()).await;
}

/// Closes a connection after its last response.
///
/// A client may still send a body that was rejected by its head. A reset would discard the response before the client
/// reads it.
async fn close(mut stream: TcpStream) {
    if stream.shutdown().await.is_ok() {
        let mut rest = stream.take(LINGER_BYTES);
        // The client has disconnected or is too slow.
        timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Instant;

    use axum::routing::get;

    use super::*;

    /// The time limit of heads in these tests.
    const SHORT: Duration = Duration::from_millis(100);
    /// The time limit of a test.
    const LONG: Duration = Duration::from_secs(60);

    /// Sends `request` to a server whose response takes longer than a head may. Returns all bytes until the server
    /// closes the connection.
    async fn exchange(request: &str) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let slow = get(|| async {
            tokio::time::sleep(3 * SHORT).await;
            "complete"
        });
        let (_stop, stopped) = watch::channel(false);
        let server = tokio::spawn(serve_within(SHORT, listener, Router::new().route("/", slow), stopped));
        client.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        timeout(LONG, client.read_to_string(&mut response)).await.expect("the server closes").unwrap();
        server.abort();
        response
    }

    #[tokio::test]
    async fn an_endless_head_times_out() {
        assert_eq!(exchange("GET / HTTP/1.1\r\nhost: stack\r\n").await, "");
        assert_eq!(exchange("").await, "");
    }

    #[tokio::test]
    async fn a_response_may_take_longer_than_a_head() {
        let started = Instant::now();
        let response = exchange("GET / HTTP/1.1\r\nhost: stack\r\n\r\n").await;
        assert!(response.starts_with("HTTP/1.1 200 OK") && response.ends_with("complete"), "{response}");
        assert!(started.elapsed() > 2 * SHORT);
    }
}
