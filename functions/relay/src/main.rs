//! `ebb-relay`: does in a cluster what the control plane asks for, and takes the reports of runners.

use std::io::Write as _;

use anyhow::Context as _;
use axum::routing::get;
use clap::Parser as _;
use ebb_cluster::Relay;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

mod options;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = options::Options::parse();
    let filter = EnvFilter::try_from_env("EBB_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    let (keys, settings) = (options.keys()?, options.settings()?);
    let client = options.client().await?;
    let relay = Relay::open(client, settings).await.context("the cluster does not answer as it has to")?;
    let recorded = PrometheusBuilder::new().install_recorder().context("metrics cannot be kept")?;
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    // For whoever has asked for any port.
    writeln!(std::io::stdout(), "listening on {}", listener.local_addr()?)?;
    let shown = relay.clone();
    let shown = async move || {
        metrics::gauge!("ebb_relay_works").set(u32::try_from(shown.works()).unwrap_or(u32::MAX));
        recorded.render()
    };
    let app = ebb_cluster::http::routes(relay, keys).route("/metrics", get(shown));
    let mut end = signal(SignalKind::terminate())?;
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            end.recv().await;
        })
        .await?;
    Ok(())
}
