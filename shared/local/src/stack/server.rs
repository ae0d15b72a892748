//! The HTTP server of one machine. A request that has arrived whole is processed, even if its client has left by then.

use std::future::poll_fn;
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
use tokio::sync::watch;
use tokio::time::timeout;
use tower::ServiceExt as _;

/// How long the head of a request may take, and how long a connection may be idle between two requests. Ebb's own clients
/// close idle connections earlier.
const HEAD: Duration = Duration::from_secs(30);
/// For how long a closed connection is read on.
const LINGER: Duration = Duration::from_secs(2);
/// How many bytes are read from it: a few of the largest bodies.
const LINGER_BYTES: u64 = 16 << 20;
/// How long the server waits after a connection could not be accepted, for example because too many files are open.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Answers requests until the stack stops.
pub(super) async fn serve(listener: TcpListener, router: Router, stopped: watch::Receiver<bool>) {
    serve_within(HEAD, listener, router, stopped).await;
}

async fn serve_within(head: Duration, listener: TcpListener, router: Router, mut stopped: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            // An error means that the stack is gone, which is a stop too.
            _ = stopped.wait_for(|&stopped| stopped) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => drop(tokio::spawn(answer(head, stream, router.clone(), stopped.clone()))),
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

/// Answers the requests of one connection. When the stack stops, the request that is under way is the last one.
async fn answer(head: Duration, stream: TcpStream, router: Router, mut stopped: watch::Receiver<bool>) {
    let service = service_fn(move |request: Request<Incoming>| router.clone().oneshot(request.map(Body::new)).boxed());
    // Without half-closed connections a request whose client closes at once is dropped before its handler starts.
    let mut connection = http1::Builder::new()
        .half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .serve_connection(TokioIo::new(stream), service);
    let stop = async move {
        // An error means that the stack is gone, which is a stop too.
        stopped.wait_for(|&stopped| stopped).await.ok();
    };
    let ended = tokio::select! {
        ended = poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
        () = stop => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            poll_fn(|context| connection.poll_without_shutdown(context)).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
        return;
    }
    close(connection.into_parts().io.into_inner()).await;
}

/// Closes a connection after its last answer. A client may still be sending a body that was refused by its head; a reset
/// would discard the answer before the client reads it.
async fn close(mut stream: TcpStream) {
    if stream.shutdown().await.is_ok() {
        let mut rest = stream.take(LINGER_BYTES);
        // The client is gone, or too slow.
        timeout(LINGER, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Instant;

    use axum::routing::get;

    use super::*;

    /// The time for heads in these tests.
    const SHORT: Duration = Duration::from_millis(100);
    /// How long a test waits for what has to happen.
    const LONG: Duration = Duration::from_secs(60);

    /// Sends `request` to a server whose answer takes longer than a head may. Returns what comes until the server closes
    /// the connection.
    async fn exchange(request: &str) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let slow = get(|| async {
            tokio::time::sleep(3 * SHORT).await;
            "answered"
        });
        let (_stop, stopped) = watch::channel(false);
        let server = tokio::spawn(serve_within(SHORT, listener, Router::new().route("/", slow), stopped));
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(LONG, client.read_to_string(&mut answer)).await.expect("the server closes").unwrap();
        server.abort();
        answer
    }

    #[tokio::test]
    async fn a_head_that_does_not_end_is_given_up() {
        assert_eq!(exchange("GET / HTTP/1.1\r\nhost: stack\r\n").await, "");
        assert_eq!(exchange("").await, "");
    }

    #[tokio::test]
    async fn an_answer_may_take_longer_than_a_head() {
        let begun = Instant::now();
        let answer = exchange("GET / HTTP/1.1\r\nhost: stack\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("answered"), "{answer}");
        assert!(begun.elapsed() > 2 * SHORT);
    }
}
