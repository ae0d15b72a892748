//! The InfraKit plugin of the tests as a program, which runs in a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use ebb_tests::infrakit_plugin;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Serves networks, volumes and instances.
#[derive(Parser)]
#[command(name = "infrakit-plugin")]
struct PluginCli {
    /// Folder of the networks, volumes and instances
    #[arg(long)]
    dir: PathBuf,
    /// Address and port to listen on
    #[arg(long)]
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let PluginCli { dir, listen } = PluginCli::parse();
    let (router, listener) = (infrakit_plugin::router(&dir)?, TcpListener::bind(listen).await?);
    // The first process of a container ignores signals that it does not handle.
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = axum::serve(listener, router) => Ok(ended?),
        _ = terminate.recv() => Ok(()),
    }
}
