//! The InfraKit plugin of the tests as a program, which runs in a cluster. It keeps its state in `/made`.

use std::path::Path;
use std::sync::Arc;

use ebb_tests::infrakit_plugin;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let router = infrakit_plugin::router(Path::new("/made"), &Arc::default())?;
    let listener = TcpListener::bind("0.0.0.0:8080").await?;
    // The first process of a container ignores signals that it does not handle.
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = axum::serve(listener, router) => Ok(ended?),
        _ = terminate.recv() => Ok(()),
    }
}
