//! An InfraKit plugin for tests. It creates networks, volumes and instances as folders on this machine.
//!
//! It has InfraKit's interface `Instance/0.6.1`, and responds as InfraKit's server does. With
//! `cargo rustc --package ebb-tests --bin infrakit-plugin -- -C target-feature=+crt-static` it runs in any container.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::serve::Listener;
use clap::Parser;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};

use crate::folders::InfraFolders;
use crate::rpc::RpcServer;

mod folders;
mod rpc;

/// Serves networks, volumes and instances. Prints each request with its result as a line of JSON.
#[derive(Parser)]
#[command(name = "infrakit-plugin")]
struct PluginCli {
    /// Folder of the networks, volumes and instances
    #[arg(long)]
    dir: PathBuf,
    /// Unix socket to listen on. The name of the file is the name of the plugin
    #[arg(long, required_unless_present = "listen", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// Address and port to listen on
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// File to write the address to: `NAME.listen`, where NAME is the name of the plugin
    #[arg(long, requires = "listen")]
    listen_file: Option<PathBuf>,
    /// Time before the effect of a method, as METHOD=MILLISECONDS, or after it, as METHOD.response=MILLISECONDS
    #[arg(long, value_parser = delay)]
    delay_ms: Vec<(String, Duration)>,
}

fn delay(text: &str) -> anyhow::Result<(String, Duration)> {
    let (step, ms) = text.split_once('=').context("expected METHOD=MILLISECONDS")?;
    Ok((step.to_owned(), Duration::from_millis(ms.parse()?)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let PluginCli { dir, socket, listen, listen_file, delay_ms } = PluginCli::parse();
    let folders = InfraFolders::open(&dir).with_context(|| dir.display().to_string())?.into();
    let router = RpcServer { folders, delays: delay_ms.into_iter().collect() }.router();
    if let Some(path) = &socket {
        // A plugin that was killed leaves its socket.
        std::fs::remove_file(path).ok();
        serve(UnixListener::bind(path).with_context(|| path.display().to_string())?, router).await?;
    } else if let Some(address) = listen {
        let listener = TcpListener::bind(address).await.with_context(|| address.to_string())?;
        if let Some(path) = &listen_file {
            std::fs::write(path, format!("tcp://{}", listener.local_addr()?))?;
        }
        serve(listener, router).await?;
    }
    socket.or(listen_file).map_or(Ok(()), |path| Ok(std::fs::remove_file(path)?))
}

/// Serves until SIGTERM or SIGINT. The first process of a container ignores signals that it does not handle.
async fn serve<L: Listener<Addr: Debug>>(listener: L, router: Router) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = axum::serve(listener, router) => ended,
        _ = terminate.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}
