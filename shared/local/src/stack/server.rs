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
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tower::ServiceExt as _;

/// For how long a closed connection is read on.
const LINGER: Duration = Duration::from_secs(2);
/// How many bytes are read from it: a few of the largest bodies.
const LINGER_BYTES: u64 = 16 << 20;
/// How long the server waits after a connection could not be accepted, for example because too many files are open.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Answers requests until the stack stops.
pub(crate) async fn serve(listener: TcpListener, router: Router, mut stopped: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            // An error means that the stack is gone, which is a stop too.
            _ = stopped.wait_for(|&stopped| stopped) => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => drop(tokio::spawn(answer(stream, router.clone(), stopped.clone()))),
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

/// Answers the requests of one connection. When the stack stops, the request that is under way is the last one.
async fn answer(stream: TcpStream, router: Router, mut stopped: watch::Receiver<bool>) {
    let service =
        service_fn(move |request: Request<Incoming>| router.clone().oneshot(request.map(Body::new)).boxed());
    // Without half-closed connections a request whose client closes at once is dropped before its handler starts.
    let mut connection =
        http1::Builder::new().half_close(true).serve_connection(TokioIo::new(stream), service);
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
